"""Collectives of Track & Trigger alone: no kernel, no launch; memory adds what arrives, a complete tile is sent on."""

from t3sim.analytic.libraries.links import pair_gb_per_s, ring_gb_per_s
from t3sim.analytic.rings import PASSES
from t3sim.machine import Machine

WAYS = ("ring", "direct")


def triggered_ns(machine: Machine, kind: str, gpus: int, size: float, way: str = "ring",
                 trigger_ns: float = 0.0) -> float:
    """Return the time of a way, of `WAYS`; `size`: of the whole tensor, `trigger_ns`: of each step besides the wires.

    Around a ring a GPU's sums take a step per other GPU; directly all others send to an owner, which sends to all.
    """
    passes = PASSES.get(kind, 1)
    if way == "ring":
        steps, rate = gpus - 1, ring_gb_per_s(machine, gpus) * machine.rings.simple.efficiency
        sent = (gpus - 1) / gpus * size
    else:
        steps, rate = 1, pair_gb_per_s(machine, gpus) * machine.wires.all_efficiency
        sent = size / gpus
    return passes * (steps * (machine.wires.latency_ns + trigger_ns) + sent / rate)
