"""Speed of the event level on this computer: messages per second, and networks of which few GPUs stand for all."""

from collections.abc import Callable

from t3sim.analytic.closed_forms import chunk_bytes, closed_form_ns
from t3sim.base.at_once import processor_seconds
from t3sim.event.flow.collective import FlowNetwork
from t3sim.event.flow.layout import Layout, Play
from t3sim.event.flow.runs import request
from t3sim.study.results import EventCase

_SIZE_BYTES = 192_000_000
#: Machine, topology, collective, algorithm.
_EVERY = (("torus-128", "torus:8x16", "ar", "all-rings"), ("torus-128", "torus:16x16", "a2a", "direct"),
          ("mi210-2x4", "nodes:8x16", "a2a", "direct"))
_FEW = (("torus-128", "torus:32x32", "ar", "all-rings"), ("torus-128", "torus:32x32", "a2a", "direct"),
        ("mi210-2x4", "nodes:128x72", "a2a", "direct"), ("torus-128", "ring:100000", "ar", "ring"),
        ("torus-128", "switch:100000", "a2a", "direct"))


def measure_event(progress: Callable[[float], None]) -> tuple[EventCase, ...]:
    """Run collectives of which each GPU is simulated, and larger ones of which few are."""
    _measure("torus-128", "ring:4", "ar", "ring", False)  # compiles the loop
    cases = []
    for every, wanted in ((True, _EVERY), (False, _FEW)):
        for one in wanted:
            cases.append(_measure(*one, every))
            progress(len(cases) / len(_EVERY + _FEW))
    return tuple(cases)


def _measure(machine: str, topology: str, collective: str, name: str, every: bool) -> EventCase:
    started = processor_seconds()
    flow = request(collective, machine, topology, [name], every=every)
    program = flow.program(flow.chosen[0])
    part = chunk_bytes(collective, program, _SIZE_BYTES)
    network = FlowNetwork(Layout([Play(program, lambda chunk: part)], flow.on, flow.costs))
    ready = processor_seconds()
    network.run()
    ended = processor_seconds()
    closed_ns = closed_form_ns(collective, flow.on, name, flow.costs, _SIZE_BYTES)
    ns = network.now + flow.costs.launch_ns + flow.costs.step_ns
    alike = network.layout.alike
    return EventCase(f"{collective}, {name}, {topology}", flow.on.gpus, len(alike.representatives), network.messages,
                     alike.copies * network.messages, ended - started, ended - ready, ns / closed_ns - 1)
