// An activity in C++: c++ -o filter filter.cpp $(pkg-config --cflags --libs tahti)
#include <array>
#include <cstdio>
#include <memory>
#include <tahti.h>

int main() {
    std::unique_ptr<tahti_frame, decltype(&tahti_frame_leave)> frame(
        tahti_frame_join("fast", "filter", nullptr, 20000), &tahti_frame_leave);
    if (!frame) {
        std::fprintf(stderr, "filter: %s\n", tahti_error());
        return 1;
    }
    std::array<double, 512> state{};
    tahti_turn turn{};
    turn.size = sizeof turn;
    unsigned long calls = 0;
    int said;
    while ((said = tahti_frame_yield(frame.get(), &turn)) == 1) {
        for (int round = 0; round < 20; ++round)
            for (std::size_t i = 1; i < state.size(); ++i)
                state[i] = 0.9 * state[i] + 0.1 * state[i - 1] + static_cast<double>(turn.minor);
        ++calls;
    }
    if (said < 0) {
        std::fprintf(stderr, "filter: %s\n", tahti_error());
        return 1; // a failure, so the plant restarts it
    }
    std::printf("filter: the frame has ended after %lu calls\n", calls);
}
