// A team of threads in C++ that meets at a barrier twice a round: work on shares, then one adds them up.
#include <array>
#include <cstdio>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>
#include <tahti.h>

int main() {
    constexpr int team = 2, rounds = 1000;
    std::unique_ptr<tahti_barrier, decltype(&tahti_barrier_close)> barrier(
        tahti_barrier_create(nullptr, team), &tahti_barrier_close);
    if (!barrier) {
        std::fprintf(stderr, "barrier: %s\n", tahti_error());
        return 1;
    }
    std::array<long, team> shares{};
    long total = 0;
    auto member = [&](int me) {
        for (int round = 0; round < rounds; ++round) {
            shares[me] = me + round;
            if (tahti_barrier_wait(barrier.get(), 20'000, -1) == 1)
                total += std::accumulate(shares.begin(), shares.end(), 0L);
            tahti_barrier_wait(barrier.get(), 20'000, -1);
        }
    };
    std::vector<std::thread> threads;
    for (int me = 0; me < team; ++me)
        threads.emplace_back(member, me);
    for (auto &thread : threads)
        thread.join();
    std::printf("total %ld\n", total);
    return total == static_cast<long>(team) * rounds * (rounds - 1) / 2 + static_cast<long>(rounds) * team * (team - 1) / 2 ? 0 : 1;
}
