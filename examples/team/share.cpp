// A team of real-time threads in C++ that share each job: every worker sums the squares of its share of a vector.
//   share [WORKERS]
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <vector>
#include <tahti.h>

struct Shared {
    std::vector<double> x = std::vector<double>(100'000);
};

// The part of one thread. It is created on that thread, on separate cache lines.
struct Part {
    double sum;
};

int main(int argc, char **argv) {
    Shared shared;
    tahti_team_spec spec{};
    spec.size = sizeof spec;
    spec.name = "share";
    spec.workers = argc > 1 ? std::strtoul(argv[1], nullptr, 10) : 1;
    spec.spin_ns = 50'000;
    spec.part_bytes = sizeof(Part);
    auto job = [](void *user, void *part, uint32_t index, uint32_t of) {
        const auto &x = static_cast<Shared *>(user)->x;
        const auto *begin = x.data() + tahti_share(x.size(), index, of), *end = x.data() + tahti_share(x.size(), index + 1, of);
        static_cast<Part *>(part)->sum = std::inner_product(begin, end, begin, 0.0);
    };
    std::unique_ptr<tahti_team, decltype(&tahti_team_close)> team(tahti_team_start(&spec, nullptr, job, &shared), &tahti_team_close);
    if (!team) {
        std::fprintf(stderr, "team: %s\n", tahti_error());
        return 1;
    }
    for (uint32_t index = 0; const char *missing = tahti_team_missing(team.get(), index); ++index)
        std::fprintf(stderr, "%s\n", missing);
    for (int frame = 1; frame <= 1000; ++frame) {
        // Between two jobs only the leader accesses the shared data and the parts.
        shared.x.assign(shared.x.size(), frame);
        if (int who = tahti_team_run(team.get()); who != 0) {
            std::fprintf(stderr, "worker %d did not come back\n", std::abs(who));
            return 1;
        }
        double sum = 0;
        for (uint32_t index = 0; index <= spec.workers; ++index)
            sum += static_cast<Part *>(tahti_team_part(team.get(), index))->sum;
        if (sum != double(frame) * frame * shared.x.size()) {
            std::fprintf(stderr, "frame %d: the sum is %g\n", frame, sum);
            return 1;
        }
    }
    for (uint32_t index = 0; index <= spec.workers; ++index) {
        uint64_t late, took;
        tahti_team_times(team.get(), index, &late, &took);
        std::printf("worker %u began after %lu ns, took %lu ns\n", index, (unsigned long)late, (unsigned long)took);
    }
    return 0;
}
