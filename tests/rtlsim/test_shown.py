"""Inner signals as outputs: the compiled design and Verilog's hierarchical names show the same."""

import numpy as np
import pytest

from t3sim.cosim.cocotb_run import build_simulation, replay_cocotb
from t3sim.cosim.component import build_component
from t3sim.cosim.verilog import generate_verilog
from t3sim.rtlsim import graph
from t3sim.rtlsim.graph import UnsupportedDesign, graphs_of
from t3sim.rtlsim.shown import show, slot
from t3sim.rtlsim.simulator import Simulator
from tests.rtlsim.test_component import WORKERS, Workers, held_stimulus

pytestmark = pytest.mark.builds_rtl

#: Registers, ports and other signals of instances; the top's own.
GROUPS = {f"worker[{i}]": [
    slot(0, 2, f"worker_{i}.word"), slot(4, 1, f"worker_{i}.busy"), slot(6, 1, f"worker_{i}.beside_odd"),
    slot(8, 8, f"worker_{i}.total"), slot(20, 1, f"worker_{i}.work__valid", f"~worker_{i}.work__ready"),
    slot(21, 1, f"|worker_{i}.word"), slot(23, 1), slot(60, 8, f"worker_{i}.shown__data"),
    slot(90, 3, f"worker_{i}.scale"), slot(93, 1, f"worker_{i}.rst")] for i in range(WORKERS)}
GROUPS["top"] = [slot(3, 2, "scale"), slot(64, WORKERS, "busy"), slot(70, 1, "rst"), slot(71, 1, "odd")]


@pytest.mark.parametrize("apart", [False, True])
def test_both_ways_show_the_same(apart, monkeypatch, seed):
    if apart:
        monkeypatch.setattr(graph, "_KEPT_CELLS", 1)
    design = build_component(Workers, "workers", inner=GROUPS)
    text, ports = show(*generate_verilog(Workers(), "workers"), GROUPS)
    assert design.ports == ports
    stimulus = held_stimulus(ports, 1000, seed)
    with Simulator(design) as compiled:
        shown = compiled.run(stimulus)
    np.testing.assert_array_equal(shown, replay_cocotb(build_simulation(text, ports), ports, stimulus)[0])
    assert (shown[:, ports.port("trace.worker[1]").offset] >> np.uint64(20) & np.uint64(3) == 3).any()


@pytest.mark.parametrize("path, message", [
    ("worker_9.left", "there is no worker_9, of which worker_9.left is asked for"),
    ("worker_1.right", "there is no signal right, of worker_1.right")])
def test_what_is_not_there(path, message):
    with pytest.raises(UnsupportedDesign, match=message):
        graphs_of(Workers(), "workers", {"one": [slot(0, 1, path)]})
