"""A failed cocotb test as a trace: the same events, from the same signals, as of a run in the lockstep loop.

The testbench runs again, with the same stimulus, on the design that shows its inner signals, and keeps what all ports
show in the round that failed (`testbenches/failure.py`).
"""

import json
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.by_reference import by_reference
from t3sim.base.compiled.jit import compiled
from t3sim.base.output import collect_versions
from t3sim.cosim.cocotb_run import CocotbFailure
from t3sim.cosim.gpu import model_ports
from t3sim.cosim.ports import Ports
from t3sim.cosim.testbench import FAILURE, Testbench, VerilogDesign
from t3sim.cosim.traced import Probes, groups_of_block, probes
from t3sim.gpu.fabric import bits
from t3sim.gpu.fabric.bits import RequestBits
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.port_map import PortMap
from t3sim.rtlsim.shown import show
from t3sim.rtlsim.toolchain import ToolchainError
from t3sim.trace.describe import geometry_of
from t3sim.trace.recorder import CAPACITY, Recorder, Subject, is_selected, make_recorder, new_event
from t3sim.trace.rtl_events import observe_ports, observe_rtl
from t3sim.trace.schema import ALONE, Kind
from t3sim.trace.store import TraceWriter

_SAMPLES = "samples.npz"  #: of `t3sim.testbenches.failure`
_DISPATCH = int(Kind.DISPATCH)


def explain_failure(testbench: Testbench, design: VerilogDesign, folder: Path) -> list[str]:
    """Write lines that name the commands which show what happened; none where a trace has nothing to say."""
    groups = groups_of_block(testbench.block, testbench.geometry)
    if groups is None or not (folder / FAILURE).exists():
        return []
    failure = json.loads((folder / FAILURE).read_text())
    again, out = folder / "again", folder / "trace"
    traced = show(*design, groups)
    (again / _SAMPLES).unlink(missing_ok=True)
    try:
        testbench.run(traced, again, testcase=failure["test"],
                      record={name: failure[name] for name in ("test", "round", "end")})
    except CocotbFailure:
        pass  # as before
    except ToolchainError as error:  # a design from elsewhere may lack what is to be shown
        return [f"No trace: {str(error).splitlines()[0]}"]
    if not (again / _SAMPLES).exists():
        return ["No trace: the failure did not come again."]
    with np.load(again / _SAMPLES) as arrays:
        samples = Samples(*(arrays[name].view(np.int64) for name in ("inputs", "before", "behind")),
                          int(arrays["first"]))
    write_samples(
        testbench.block, testbench.geometry, traced[1], samples, out,
        f"testbench {testbench.block}, {failure['test']}, round {failure['round']}, seed {testbench.seed}",
        {"outcome": "failed", "problem": failure["problem"], "cycles_of_run": failure["cycle"]})
    tiles, cycle = dict.fromkeys(map(tuple, failure["tiles"])), failure["cycle"]
    questions = [f"t3 explain --wg {wg} --wf {wf}" for wg, wf in tiles]
    questions += [f"t3 explain --channel 0 --cycle {cycle}"] if testbench.block in ("arbiter", "memory_channel") else []
    return ["What happened:", *(f"  {question} {out}" for question in (
        *questions, "t3 explain", f"t3 step --cycle {cycle}"))]


class Samples(NamedTuple):
    """A testbench's ports, int64[cycle, word] each, and the first cycle."""

    inputs: np.ndarray
    before: np.ndarray  # outputs before the clock edge
    behind: np.ndarray  # and after it
    first: int


def write_samples(block: str, g: Geometry, ports: PortMap, taken: Samples, out: Path, title: str,
                  outcome: dict) -> None:
    """Write the trace of a block's samples. `ports` show its `groups_of_block`."""
    p, first, end = probes(ports, g), taken.first, taken.first + len(taken.inputs)
    with TraceWriter(out, limit=1 << 62) as writer:
        _record(writer, block, g, ports, p, taken)
        window = {"from": first, "until": end, "complete_until": end, "events": writer.written, "dropped": 0} | outcome
        writer.commit({
            "title": title, "simulated_devices": 1, "mirrored": False, "numbers": [0], "clock_ghz": 1.0,
            "starvation_limit": int(taken.behind[-1, p.channel[0] + 3]) if len(p.channel) else 0,
            "link_latency_cycles": 0, "geometry": geometry_of(g), "names": 1 << g.tracker.wg_bits,
            "wavefronts": 1 << g.tracker.wf_bits, "filter": {"kinds": None, "channels": None, "wgs": None},
            "recorded": window, "versions": collect_versions()})


def _record(writer: TraceWriter, block: str, g: Geometry, ports: PortMap, p: Probes, samples: Samples) -> None:
    b, top = bits.request_bits(g), block == "gpu_top"
    ids = np.arange(1 << b.wg_bits)[None]
    recorder = make_recorder(b, len(p.channel), 1, p, Subject(ids, np.full_like(ids, ALONE), np.ones(1, np.int64)))
    at = model_ports(ports, g) if top else None
    # A granted request is in the register behind the arbiter; an arbiter alone has none, and shows zeros.
    dram = (at.dram if top else np.array([ports.port("dram.payload").offset]) if block == "memory_channel"
            else p.channel + 1)
    batch = CAPACITY // (8 * len(p.channel) + 8 * len(p.bank) + 8 * len(p.engine) + 64)
    for start in range(0, len(samples.inputs), batch):
        part = slice(start, start + batch)
        _observe(at, b, recorder, samples.inputs[part], samples.before[part], samples.behind[part], dram,
                 samples.first + start)
        writer.write(recorder.events[:recorder.count[0]].copy())
        recorder.count[0] = 0


@compiled
def _observe(top: Ports | None, b: RequestBits, r: Recorder, inputs: np.ndarray, before: np.ndarray,
             behind: np.ndarray, dram: np.ndarray, first: int) -> None:
    """Record the cycles of a testbench; `top`: where the top's ports are, or None for another design."""
    b = by_reference(b)
    r = by_reference(r)
    p = by_reference(top)
    for i in range(len(inputs)):
        now = first + i
        if top is not None:
            wg = before[i, p.grant] >> 1
            r.asking[0] = wg
            observe_ports(p, b, r, 0, inputs[i], before[i], now)
            if inputs[i, p.start] and before[i, p.grant] & 1 and is_selected(r, _DISPATCH, wg):
                new_event(r, _DISPATCH, now, 0, 0).wg = wg
        observe_rtl(b, r, 0, behind[i], dram, now)
