"""The C++ around a Verilated model: packed word arrays in, packed word arrays out."""

from ..engine.port_map import RESET, WORD_BITS, Port, PortMap
from .design_code import CHECKSUM_MULTIPLIER

#: First argument of every function but `t3_new` is the handle that `t3_new` gave.
_TEMPLATE = """\
#include "V{top}.h"
#include "V{top}___024root.h"
#include "V{top}__Syms.h"
#include "verilated.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <vector>

double sc_time_stamp() {{ return 0; }}

namespace {{

constexpr std::size_t input_words = {input_words};
constexpr std::size_t output_words = {output_words};

inline void load(V{top}& top, const std::uint64_t* in) {{
{loads}
}}

inline void store(const V{top}& top, std::uint64_t* out) {{
{stores}
}}

// One instance. With one_evaluation the clock input rests at 1 and Verilator's memory of its last value is set back
// before each rising edge, which spares the evaluation of the falling edge.
template <bool one_evaluation>
struct Simulation {{
    std::uint64_t* const in;
    std::uint64_t* const out;
    std::unique_ptr<VerilatedContext> context;
    std::unique_ptr<V{top}> top;

    Simulation(std::uint64_t* in_, std::uint64_t* out_) : in(in_), out(out_) {{ power_on(); }}
    ~Simulation() {{ power_off(); }}

    // The model's destructor looks for its context in the thread's, which is that of the newest instance.
    void power_off() {{
        if (context) Verilated::threadContextp(context.get());
        top.reset();
    }}

    void power_on() {{
        power_off();
        context = std::make_unique<VerilatedContext>();
        top = std::make_unique<V{top}>(context.get(), "");
        std::memset(in, 0, input_words * sizeof *in);
        load(*top, in);
        top->eval();
        if constexpr (one_evaluation) {{
            {rest}
        }}
        store(*top, out);
    }}

    void load_inputs(const std::uint64_t* from) {{ load(*top, from); }}

    // Without a clock edge.
    void settle() {{ top->eval(); }}

    // One rising edge, all inputs sampled at it.
    void edge() {{
        if constexpr (one_evaluation) {{
            {short_edge}
        }} else {{
            {full_edge}
        }}
    }}
}};

using Model = Simulation<{one_evaluation}>;

}}  // namespace

#define T3_API extern "C" __attribute__((visibility("default")))

T3_API void* t3_new(std::uint64_t* in, std::uint64_t* out) {{ return new Model(in, out); }}

T3_API void t3_free(void* handle) {{ delete static_cast<Model*>(handle); }}

T3_API void t3_reset(void* handle) {{ static_cast<Model*>(handle)->power_on(); }}

// All is evaluated in every cycle.
T3_API int t3_asleep(void*) {{ return 0; }}
T3_API void t3_evaluate_all(void*, int) {{}}

T3_API void t3_step(void* handle) {{
    Model& simulation = *static_cast<Model*>(handle);
    simulation.load_inputs(simulation.in);
    simulation.edge();
    store(*simulation.top, simulation.out);
}}

T3_API void t3_eval(void* handle) {{
    Model& simulation = *static_cast<Model*>(handle);
    simulation.load_inputs(simulation.in);
    simulation.settle();
    store(*simulation.top, simulation.out);
}}

// Replays `cycles` rows of inputs; `outputs`, unless null, receives a row per cycle. Gives the outputs' checksum.
T3_API std::uint64_t t3_run(void* handle, const std::uint64_t* stimulus, std::uint64_t* outputs, std::int64_t cycles) {{
    Model& simulation = *static_cast<Model*>(handle);
    std::uint64_t checksum = 0;
    for (std::int64_t cycle = 0; cycle < cycles; ++cycle, stimulus += input_words) {{
        simulation.load_inputs(stimulus);
        simulation.edge();
        std::uint64_t* row = outputs ? outputs + cycle * output_words : simulation.out;
        store(*simulation.top, row);
        std::uint64_t sum = 0;
        for (std::size_t word = 0; word < output_words; ++word) sum += row[word] * (2 * word + 1);
        checksum = checksum * {multiplier}ULL + sum;
    }}
    if (cycles > 0) {{
        std::memcpy(simulation.in, stimulus - input_words, input_words * sizeof *stimulus);
        store(*simulation.top, simulation.out);
    }}
    return checksum;
}}

// Random inputs on two instances, with and without the falling edge. Inputs
// change in every cycle or rest for a while, in one half of these times at 0. Gives the number of cycles that differ.
T3_API std::int64_t t3_self_test(std::int64_t cycles) {{
    std::vector<std::uint64_t> in(2 * input_words + 2), out(2 * output_words + 2);
    Model quick(in.data(), out.data());
    Simulation<false> full(in.data() + input_words, out.data() + output_words);
    std::uint64_t random = 0x9e3779b97f4a7c15ULL;
    std::int64_t different = 0;
    for (std::int64_t cycle = 0; cycle < cycles; ++cycle) {{
        const int part = cycle / {rest_cycles} % 4;
        const std::size_t changed = part == 0 ? input_words : cycle % {rest_cycles} == {rest_cycles} / 2;
        for (std::size_t word = 0; word < input_words; ++word) {{
            random ^= random << 13, random ^= random >> 7, random ^= random << 17;
            if (word < changed) in[part == 0 ? word : random % input_words] = random;
            else if (part == 2 && cycle % {rest_cycles} == 0) in[word] = 0;
        }}
        {rare_reset}
        quick.load_inputs(in.data());
        full.load_inputs(in.data());
        if (cycle % 2) quick.settle();
        quick.edge();
        full.edge();
        store(*quick.top, out.data());
        store(*full.top, out.data() + output_words);
        different += std::memcmp(out.data(), out.data() + output_words, output_words * sizeof out[0]) != 0;
    }}
    return different;
}}
"""

RESET_PERIOD_CYCLES = 512  #: of the self test
_REST_CYCLES = 32  #: of the self test


def previous_clock(ports: PortMap) -> str:
    """Name Verilator's private copy of the clock's last value."""
    return f"__Vtrigprevexpr___TOP__{ports.clock}__0"


def wrapper(ports: PortMap, one_evaluation: bool) -> str:
    """Write C++ source for the ports; `one_evaluation` spares the falling edge."""
    clock, previous, reset = f"top->{ports.clock}", f"top->rootp->{previous_clock(ports)}", ports.inputs.get(RESET)
    return _TEMPLATE.format(
        top=ports.top, input_words=ports.input_words, output_words=ports.output_words, multiplier=CHECKSUM_MULTIPLIER,
        one_evaluation=str(one_evaluation).lower(), rest_cycles=_REST_CYCLES,
        rest=f"{clock} = 1; {previous} = 1;" if one_evaluation else "",
        short_edge=f"{previous} = 0; top->eval();" if one_evaluation else "",
        full_edge=f"{clock} = 1; top->eval(); {clock} = 0; top->eval();" if ports.clock else "top->eval();",
        rare_reset=f"in[{reset.offset}] = cycle % {RESET_PERIOD_CYCLES} == {RESET_PERIOD_CYCLES - 1};" if reset else "",
        loads="\n".join(line for port in ports.inputs.values() for line in _load(port)),
        stores="\n".join(line for port in ports.outputs.values() for line in _store(port)))


def cpp_name(verilog_name: str) -> str:
    """Write a name as Verilator does, with the second underscore of two in hexadecimal."""
    return verilog_name.replace("__", "___05F")


def _load(port: Port) -> list[str]:
    """Write the loading of a port. Bits above the port's width are dropped: Verilator relies on them being 0."""
    name = f"top.{cpp_name(port.verilog)}"
    if port.width <= WORD_BITS:
        return [f"    {name} = in[{port.offset}] & {_mask(port.width)};"]
    lines = []
    for half in range(-(-port.width // 32)):
        word = f"in[{port.offset + half // 2}]" + (" >> 32" if half % 2 else "")
        mask = _mask(min(32, port.width - half * 32))
        lines.append(f"    {name}[{half}] = static_cast<std::uint32_t>({word}) & {mask};")
    return lines


def _store(port: Port) -> list[str]:
    name = f"top.{cpp_name(port.verilog)}"
    if port.width <= WORD_BITS:
        return [f"    out[{port.offset}] = {name};"]
    halves = -(-port.width // 32)
    return [f"    out[{port.offset + word}] = {name}[{2 * word}]"
            + (f" | static_cast<std::uint64_t>({name}[{2 * word + 1}]) << 32;" if 2 * word + 1 < halves else ";")
            for word in range(port.words)]


def _mask(width: int) -> str:
    return f"0x{(1 << width) - 1:x}ULL"
