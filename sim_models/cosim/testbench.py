"""Runs a block's cocotb testbench, `testbenches/tb_<block>.py`."""

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from amaranth.lib import wiring

from t3sim.cosim import flippable
from t3sim.cosim.cocotb_run import CocotbFailure, build_simulation, run_cocotb
from t3sim.cosim.flippable import FlippableBank
from t3sim.cosim.verilog import component_verilog
from t3sim.rtl.blocks import BLOCKS
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.port_map import PortMap

_FLIPPABLE = Path(flippable.__file__).read_text(encoding="utf-8")
FAILURE = "failure.json"  #: `t3sim.testbenches.failure` writes it


def design_under_test(block: str, geometry: Geometry) -> wiring.Component:
    """Make the block; a Tracker bank with protected memories has ports through which bits of them flip."""
    if block == "tracker" and geometry.tracker.protection != "none":
        return FlippableBank(geometry)
    return BLOCKS[block](geometry)


def block_verilog(block: str, geometry: Geometry) -> tuple[str, PortMap]:
    """Write the Verilog of what the block's testbench runs on, with the block's name as the top module's."""
    return component_verilog(lambda: design_under_test(block, geometry), block, (block, geometry, _FLIPPABLE))


VerilogDesign = tuple[str, PortMap]  #: Verilog and its ports


@dataclass(frozen=True)
class Testbench:
    """A block's testbench on one geometry, with one stimulus."""

    __test__ = False  # for pytest: the name begins like a test's

    block: str
    geometry: Geometry
    seed: int = 1
    simulator: str = "verilator"
    length: int = 1  #: multiplies the rounds of random traffic
    timeout_s: int = 600
    rounds: int | None = None  #: of each test, if fewer than it asks for

    def run(self, design: VerilogDesign, folder: Path, *, waves: bool = False, testcase: str | None = None,
            record: dict | None = None) -> int:
        """Run the tests and return how many passed. Raises CocotbFailure.

        `record`: the test and round whose ports to keep.
        """
        text, ports = design
        simulation = build_simulation(text, ports, self.simulator, waves)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "ports.json").write_text(ports.to_json())
        (folder / "run.json").write_text(json.dumps({"geometry": asdict(self.geometry), "length": self.length,
                                                     "rounds": self.rounds, "record": record}))
        return run_cocotb(simulation, f"t3sim.testbenches.tb_{self.block}", folder, self.seed, testcase,
                          {"T3_BENCH": str(folder.resolve())}, self.timeout_s)


#: Lines about a failure that the testbench has left in a folder (`t3sim.trace.testbench.explain_failure`).
Explain = Callable[[Testbench, VerilogDesign, Path], list[str]]


def run_testbench(testbench: Testbench, folder: Path, *, design: VerilogDesign | None = None, waves: bool = False,
                  testcase: str | None = None, explain: Explain | None = None) -> int:
    """Run a testbench; returns the number of tests that passed.

    `design`: another Verilog than the block's own, say a broken one. A failure's message has the assertion and what
    `explain` adds to it.
    """
    design = design or block_verilog(testbench.block, testbench.geometry)
    (folder / FAILURE).unlink(missing_ok=True)
    try:
        return testbench.run(design, folder, waves=waves, testcase=testcase)
    except CocotbFailure as failure:
        log = folder / "cocotb.log"
        lines = log.read_text(errors="replace").splitlines() if log.exists() else []
        errors = [found[1] for line in lines if (found := re.match(r"\s*(?:[\w.]+\.)?(\w+Error: .*)", line))][:4]
        more = explain(testbench, design, folder) if explain else []
        raise CocotbFailure("\n".join([str(failure), *errors, *more])) from None
