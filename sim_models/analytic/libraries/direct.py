"""Collectives of one kernel that loads or stores at all other GPUs: what serving frameworks have for small messages."""

from t3sim.analytic.libraries.links import pair_gb_per_s
from t3sim.machine import Machine


def direct_ns(machine: Machine, kind: str, gpus: int, size: float) -> float:
    """Return the fastest of one shot, two shots, and packets that carry flags."""
    return min(ways(machine, kind, gpus, size).values())


def ways(machine: Machine, kind: str, gpus: int, size: float) -> dict[str, float]:
    """Return the time of each way, ns; `size`: of the whole tensor."""
    direct, part = machine.direct, size / gpus
    rate = pair_gb_per_s(machine, gpus) * direct.efficiency
    if kind == "all_to_all":  # stores, of which the next kernel needs all
        stores = pair_gb_per_s(machine, gpus) * machine.wires.all_efficiency
        return {"one-shot": direct.base_ns + direct.phase_ns + part / stores}
    if kind in ("all_gather", "reduce_scatter"):
        return {"one-shot": direct.base_ns + part / rate}
    found = {"one-shot": direct.base_ns + size / rate,
             "two-shot": direct.base_ns + direct.phase_ns + 2 * part / rate}
    if direct.packets:
        found["two-shot, packets"] = direct.base_ns + 4 * part / rate
    return found
