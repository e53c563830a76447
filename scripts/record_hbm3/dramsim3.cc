// One channel of DRAMsim3 under a trace: one request is offered per cycle, after the controller's step, and blocks
// those after it. Prints "accepted done" per request (-1 for writes); the commands are in DRAMsim3's own trace.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <deque>
#include <fstream>
#include <string>
#include <unordered_map>
#include <vector>

#include "dramsim3.h"

int main(int, char **argv) {  // config, trace, folder for the outputs
    struct Request { uint64_t address; bool write; int64_t cycle, accepted = -1, done = -1; };
    std::vector<Request> requests;
    std::ifstream file(argv[2]);
    std::string address, operation;
    int64_t when, now = 0, outstanding = 0, last = 0;
    while (file >> address >> operation >> when)
        requests.push_back({strtoull(address.c_str(), nullptr, 16), operation == "WRITE", when});
    std::unordered_map<uint64_t, std::deque<size_t>> waiting;
    auto read = [&](uint64_t at) {
        auto &queue = waiting[at];
        requests[queue.front()].done = now;
        queue.pop_front();
        outstanding--;
        last = now;
    };
    auto *memory = dramsim3::GetMemorySystem(argv[1], argv[3], read, [&](uint64_t) {});
    clock_t begin = clock();
    for (size_t next = 0; next < requests.size() || outstanding || now < last + 20000; now++) {
        memory->ClockTick();
        if (next == requests.size() || requests[next].cycle > now) continue;
        auto &request = requests[next];
        if (!memory->WillAcceptTransaction(request.address, request.write)) continue;
        if (!request.write) waiting[request.address].push_back(next), outstanding++;
        memory->AddTransaction(request.address, request.write);
        request.accepted = last = now;
        next++;
    }
    fprintf(stderr, "%f\n", (clock() - begin) / double(CLOCKS_PER_SEC));
    for (auto &request : requests) printf("%ld %ld\n", request.accepted, request.done);
    exit(0);
}
