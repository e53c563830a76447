// One channel of Ramulator 2.1 under a trace, offered as dramsim3.cc does; a cycle is two of its ticks. A line of the
// trace is "PSEUDO_CHANNEL BANK_GROUP BANK ROW COLUMN R|W CYCLE". Prints "accepted done" per request (-1 for writes).
#include <ramulator/base/config.h>
#include <ramulator/base/factory.h>
#include <ramulator/base/request.h>
#include <ramulator/frontend/i_frontend.h>
#include <ramulator/memory_system/i_memory_system.h>

#include <cstdio>
#include <ctime>
#include <fstream>
#include <vector>

using Ramulator::Request;

int main(int, char **argv) {  // config, trace
    struct Line { std::vector<int> place; bool write; long cycle, accepted = -1, done = -1; };
    std::vector<Line> lines;
    std::ifstream file(argv[2]);
    int channel, group, bank, row, column;
    char operation;
    long cycle, outstanding = 0, last = 0;
    while (file >> channel >> group >> bank >> row >> column >> operation >> cycle)
        lines.push_back({{0, channel, 0, group, bank, row, column}, operation == 'W', cycle});
    auto config = Ramulator::Config::parse_config_file(argv[1]);
    auto *frontend = Ramulator::Factory::create_frontend(config);
    auto *memory = Ramulator::Factory::create_memory_system(config);
    frontend->connect_memory_system(memory);
    memory->connect_frontend(frontend);
    clock_t begin = clock();
    size_t next = 0;
    for (long now = 0; next < lines.size() || outstanding || now < last + 20000; now++) {
        memory->tick();
        memory->tick();
        if (next == lines.size() || lines[next].cycle > now) continue;
        auto &line = lines[next];
        long flat = line.place[1];
        for (size_t i = 3; i < line.place.size(); i++) flat = flat * 65536 + line.place[i];
        Request request(line.place, line.write ? Request::Type::Write : Request::Type::Read);
        request.addr = flat;
        request.size_bytes = 32;
        request.source_id = 0;
        if (!line.write) request.callback = [&line, &outstanding, &last](Request &done) {
            line.done = (done.depart - 1) / 2;
            last = std::max(last, line.done);
            outstanding--;
        };
        if (!memory->send(request)) continue;
        line.accepted = last = now;
        outstanding += !line.write;
        next++;
    }
    fprintf(stderr, "%f\n", (clock() - begin) / double(CLOCKS_PER_SEC));
    frontend->finalize();
    memory->finalize();
    for (auto &line : lines) printf("%ld %ld\n", line.accepted, line.done);
}
