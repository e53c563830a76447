// A memory channel and a Tracker of t3sim between two sources of stores and a DRAM model in SystemC.
//
// The kernel of this GPU and a neighbour store the same tiles. The channel orders their requests and reports each to
// the Tracker, which sends a trigger when a tile has all its bytes. See docs/how-to/in-your-simulator.md.

#include <cstdio>
#include <deque>
#include <memory>
#include <string>
#include <systemc>
#include <vector>

#include "memory_channel_systemc.h"
#include "tracker_systemc.h"

using namespace sc_core;

typedef decltype(memory_channel_module::compute__payload)::data_type Request;
typedef decltype(memory_channel_module::dram__payload)::data_type Command;
typedef decltype(memory_channel_module::retirement)::data_type Retirement;
typedef decltype(memory_channel_module::occupancy)::data_type Occupancy;
typedef decltype(tracker_module::updates__payload)::data_type Update;
typedef decltype(tracker_module::triggers__payload)::data_type Trigger;

const int TILES = 16, LINES = 16, LINE_BYTES = 64;  // lines that each of the two stores of a tile
const int REGION = 1, BANKS = 8;  // workgroups of one of the Tracker's banks
enum { STORE = 1, UPDATE = 2 };    // operations of a request
enum { LOCAL = 0, REMOTE = 1 };    // its sources

// Fields of a port's value, by the numbers that the library gives them.
template <class Port, class Value>
void put(Value& value, const Port& field, uint64_t bits) {
    value.range(field.lsb + field.width - 1, field.lsb) = bits;
}
template <class Port, class Value>
uint64_t take(const Value& value, const Port& field) {
    return value.range(field.lsb + field.width - 1, field.lsb).to_uint64();
}

// Offers the stores of all tiles, one every `pace` cycles at most.
SC_MODULE(Source) {
    sc_in<bool> clk{"clk"}, ready{"ready"};
    sc_out<bool> valid{"valid"};
    sc_out<Request> payload{"payload"};

    SC_HAS_PROCESS(Source);
    Source(sc_module_name name, int operation, int source, int pace)
        : sc_module(name), operation(operation), source(source), pace(pace) {
        SC_METHOD(tick);
        sensitive << clk.pos();
        dont_initialize();
    }

private:
    const int operation, source, pace;
    int line = 0, wait = 0;
    bool offered = false;

    void tick() {
        if (offered && ready.read()) offered = false, ++line, wait = pace;
        if (wait > 0) --wait;
        offered = offered || (wait == 0 && line < TILES * LINES);
        const int tile = line / LINES;
        Request request = 0;
        put(request, memory_channel_ports[MEMORY_CHANNEL_COMPUTE_PAYLOAD_ADDRESS], 0x10000 + line * LINE_BYTES);
        put(request, memory_channel_ports[MEMORY_CHANNEL_COMPUTE_PAYLOAD_BYTES], LINE_BYTES);
        put(request, memory_channel_ports[MEMORY_CHANNEL_COMPUTE_PAYLOAD_OP], operation);
        put(request, memory_channel_ports[MEMORY_CHANNEL_COMPUTE_PAYLOAD_SOURCE], source);
        put(request, memory_channel_ports[MEMORY_CHANNEL_COMPUTE_PAYLOAD_REGION], REGION);
        put(request, memory_channel_ports[MEMORY_CHANNEL_COMPUTE_PAYLOAD_WF], tile % 4);
        put(request, memory_channel_ports[MEMORY_CHANNEL_COMPUTE_PAYLOAD_WG], tile / 4 * BANKS);
        valid.write(offered);
        payload.write(request);
    }
};

// A queue whose oldest request takes some cycles, more when reads and writes alternate.
SC_MODULE(Dram) {
    sc_in<bool> clk{"clk"}, valid{"valid"};
    sc_in<Command> payload{"payload"};
    sc_out<bool> ready{"ready"};
    sc_out<Occupancy> occupancy{"occupancy"};
    sc_out<Retirement> retirement{"retirement"};

    SC_CTOR(Dram) {
        SC_METHOD(tick);
        sensitive << clk.pos();
        dont_initialize();
    }
    uint64_t served = 0;

private:
    static const unsigned DEPTH = 16;
    static const int SAME_CYCLES = 2, TURN_CYCLES = 7;  // of a request like the last one, and of another
    std::deque<Command> queue;
    int left = 0;
    uint64_t last_operation = 0;

    void tick() {
        if (valid.read() && ready.read()) queue.push_back(payload.read());
        Retirement retired = 0;
        if (!queue.empty()) {
            const Command& oldest = queue.front();
            const uint64_t operation = take(oldest, memory_channel_ports[MEMORY_CHANNEL_DRAM_PAYLOAD_REQUEST_OP]);
            if (left == 0) left = operation == last_operation ? SAME_CYCLES : TURN_CYCLES;
            if (--left == 0) {  // only tracked writes come here
                put(retired, memory_channel_ports[MEMORY_CHANNEL_RETIREMENT_VALID], 1);
                put(retired, memory_channel_ports[MEMORY_CHANNEL_RETIREMENT_BUCKET],
                    take(oldest, memory_channel_ports[MEMORY_CHANNEL_DRAM_PAYLOAD_BUCKET]));
                last_operation = operation;
                queue.pop_front();
                ++served;
            }
        }
        ready.write(queue.size() < DEPTH);
        occupancy.write(queue.size());
        retirement.write(retired);
    }
};

// Prints triggers.
SC_MODULE(Printer) {
    sc_in<bool> clk{"clk"}, valid{"valid"};
    sc_in<Trigger> payload{"payload"};
    int count = 0;

    SC_CTOR(Printer) {
        SC_METHOD(tick);
        sensitive << clk.pos();
        dont_initialize();
    }

private:
    int cycle = 0;

    void tick() {
        if (valid.read()) {
            const Trigger trigger = payload.read();
            std::printf("cycle %d: tile %d.%d at 0x%x\n", cycle,
                        (int)take(trigger, tracker_ports[TRACKER_TRIGGERS_PAYLOAD_WG]),
                        (int)take(trigger, tracker_ports[TRACKER_TRIGGERS_PAYLOAD_WF]),
                        (unsigned)take(trigger, tracker_ports[TRACKER_TRIGGERS_PAYLOAD_ADDRESS]));
            ++count;
        }
        ++cycle;
    }
};

std::vector<std::shared_ptr<void>> tied;

// Ties the ports of a type whose name begins so: inputs to a value, outputs to a signal that no one reads.
template <class Port>
void tie(sc_module& module, const std::string& start, typename Port::data_type value = 0) {
    for (sc_object* child : module.get_child_objects()) {
        Port* port = dynamic_cast<Port*>(child);
        if (!port || std::string(child->basename()).compare(0, start.size(), start) != 0) continue;
        auto signal = std::make_shared<sc_signal<typename Port::data_type>>(sc_gen_unique_name("tied"), value);
        tied.push_back(signal);
        port->bind(*signal);
    }
}

int sc_main(int count, char** words) {
    sc_clock clk("clk", 1, SC_NS);
    memory_channel_module channel("channel");
    tracker_module tracker("tracker");
    Source kernel("kernel", STORE, LOCAL, 1), neighbour("neighbour", UPDATE, REMOTE, 5);
    Dram dram("dram");
    Printer printer("printer");
    channel.clk(clk), tracker.clk(clk), kernel.clk(clk), neighbour.clk(clk), dram.clk(clk), printer.clk(clk);

    sc_signal<bool> compute_valid, compute_ready, inbound_valid, inbound_ready, dram_valid, dram_ready, update_valid,
        update_ready, trigger_valid;
    sc_signal<Request> compute, inbound;
    sc_signal<Command> command;
    sc_signal<Occupancy> occupancy;
    sc_signal<Retirement> retirement;
    sc_signal<Update> update;
    sc_signal<Trigger> trigger;
    kernel.valid(compute_valid), channel.compute__valid(compute_valid);
    kernel.ready(compute_ready), channel.compute__ready(compute_ready);
    kernel.payload(compute), channel.compute__payload(compute);
    neighbour.valid(inbound_valid), channel.inbound__valid(inbound_valid);
    neighbour.ready(inbound_ready), channel.inbound__ready(inbound_ready);
    neighbour.payload(inbound), channel.inbound__payload(inbound);
    channel.dram__valid(dram_valid), dram.valid(dram_valid);
    channel.dram__ready(dram_ready), dram.ready(dram_ready);
    channel.dram__payload(command), dram.payload(command);
    channel.occupancy(occupancy), dram.occupancy(occupancy);
    channel.retirement(retirement), dram.retirement(retirement);
    channel.updates__valid(update_valid), tracker.updates__valid(update_valid);
    channel.updates__ready(update_ready), tracker.updates__ready(update_ready);
    channel.updates__payload(update), tracker.updates__payload(update);
    tracker.triggers__valid(trigger_valid), printer.valid(trigger_valid);
    tracker.triggers__payload(trigger), printer.payload(trigger);

    // The rest of the ports.
    tie<decltype(channel.dma__payload)>(channel, "dma");
    tie<decltype(channel.policy)>(channel, "policy");
    tie<decltype(channel.threshold)>(channel, "threshold");
    tie<decltype(channel.starvation_limit)>(channel, "starvation_limit", 16);
    for (const char* name : {"dma__valid", "drain", "ring_late", "forget", "rst"}) tie<sc_in<bool>>(channel, name);
    for (const char* name : {"dma__ready", "holds", "grant", "starved", "guard_stall", "communication_waiting",
                             "merged", "busy"})
        tie<sc_out<bool>>(channel, name);
    tie<decltype(tracker.thresholds__0)>(tracker, "thresholds", 2 * LINES * LINE_BYTES);
    tie<decltype(tracker.families__0)>(tracker, "families");
    tie<sc_in<bool>>(tracker, "tracked", true);
    tie<sc_in<bool>>(tracker, "triggers__ready", true);
    tie<sc_in<bool>>(tracker, "rst");
    tie<decltype(tracker.error)>(tracker, "error");
    tie<decltype(tracker.occupied)>(tracker, "occupied");
    tie<sc_out<bool>>(tracker, "busy");
    tie<sc_out<bool>>(tracker, "refused_full");

    if (count > 1 && tracker.record(words[1]) != 0) {
        std::fprintf(stderr, "%s cannot be written\n", words[1]);
        return 1;
    }
    sc_start(5, SC_US);
    if (tracker.record(nullptr) != 0) {
        std::fprintf(stderr, "the recording is not whole\n");
        return 1;
    }
    std::printf("%d tiles complete, %llu stores in memory\n", printer.count, (unsigned long long)dram.served);
    return printer.count != TILES;
}
