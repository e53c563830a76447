"""Measure how fast each simulator is on the same RTL and the same stimulus."""

import time
from collections.abc import Callable, Sequence

import numpy as np
from amaranth.lib import wiring

from t3sim.base.errors import Failure
from t3sim.cosim.component import build_component
from t3sim.cosim.verilog import component_verilog
from t3sim.rtlsim.amaranth_backend import AmaranthBackend
from t3sim.rtlsim.simulator import Simulator
from t3sim.rtlsim.stimulus import checksum

_BARE_SECONDS = 1.0
_AMARANTH_SECONDS = 3.0
_COCOTB_CYCLES = 2000
_CHUNK_CYCLES = 20


def benchmark(factory: Callable[[], wiring.Component], name: str, stimulus: np.ndarray,
              parameters: object = None,
              engines: Sequence[str] = ("bare", "full", "cocotb", "amaranth")) -> dict[str, float]:
    """Measure simulated cycles per second of a core's time on every simulator (cocotb: of time that passed).

    They are `bare` (a C++ loop), `full` (the same, with all evaluated), `cocotb` (on Verilator's C++, compiled
    without optimisation) and `amaranth`.

    Building and starting are not counted. The slow simulators replay only the stimulus' beginning, and Failure is
    raised if their outputs differ from the compiled RTL's. For `factory`, `name` and `parameters` see
    `build_component`.
    """
    speeds, sums = {}, {}
    design = build_component(factory, name, parameters)
    with Simulator(design) as backend:
        backend.reset()
        expected = backend.run(stimulus)
        seconds = {name: 0.0 for name in ("bare", "full") if name in engines}
        rounds = 0
        while any(spent < _BARE_SECONDS for spent in seconds.values()):
            rounds += 1
            for name in seconds:  # in turns: the machine's speed changes
                backend.reset()
                backend.evaluate_all(name == "full")
                start = time.thread_time()
                sums[name] = backend.checksum(stimulus)
                seconds[name] += time.thread_time() - start
        speeds |= {name: rounds * len(stimulus) / spent for name, spent in seconds.items()}
        for name, found in sums.items():
            if found != checksum(expected):
                raise Failure(f"{name} and the compiled RTL differ.")

    if "cocotb" in engines:
        from t3sim.cosim.cocotb_run import build_simulation, replay_cocotb  # not above: the others need no extra
        text, ports = component_verilog(factory, name, parameters)
        beginning = stimulus[:_COCOTB_CYCLES]
        outputs, seconds = replay_cocotb(build_simulation(text, ports), ports, beginning)
        compare("cocotb", outputs, expected)
        speeds["cocotb"] = len(beginning) / seconds

    if "amaranth" in engines:
        with AmaranthBackend(factory(), design.ports) as backend:
            speeds["amaranth"], outputs = amaranth_speed(backend, stimulus)
        compare("amaranth", outputs, expected)
    return speeds


def amaranth_speed(backend: AmaranthBackend, stimulus: np.ndarray) -> tuple[float, np.ndarray]:
    """Return cycles per second of Amaranth's simulator, and what outputs show over the stimulus' beginning."""
    traces, seconds = [], 0.0
    for first in range(0, len(stimulus), _CHUNK_CYCLES):
        start = time.thread_time()
        traces.append(backend.run(stimulus[first:first + _CHUNK_CYCLES]))
        seconds += time.thread_time() - start
        if seconds > _AMARANTH_SECONDS:
            break
    outputs = np.concatenate(traces)
    return len(outputs) / seconds, outputs


def compare(simulator: str, outputs: np.ndarray, expected: np.ndarray) -> None:
    """Raise Failure where outputs of the stimulus' beginning are not those of the compiled RTL."""
    different = np.flatnonzero((outputs != expected[:len(outputs)]).any(axis=1))
    if len(different):
        raise Failure(f"{simulator} and the compiled RTL differ from cycle {different[0]} on.")
