"""Answer of a run, in a few sentences."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from t3sim.study.results import RunResult

_IDEAL = "ideal-"  #: techniques that are arithmetic on times of others
_NOTABLE = 0.0005  #: share beyond all that is hidden, from which on it is worth a sentence


def answer(result: "RunResult") -> list[str]:
    """Say how fast the GEMM alone is, why a technique is faster than that, and which technique is the fastest."""
    base, producer = result.baseline, result.workload.producer
    if base is None:
        return ["No speedup without the baseline: add sequential to the techniques."]
    lines = []
    if rate := result.gemm_rate:
        lines.append(f"The {producer} alone: {rate.words}.")
    efficiency = result.overlap_efficiency
    if ahead := {name: share for name, share in efficiency.items() if share > 1 + _NOTABLE}:
        name = max(ahead, key=ahead.__getitem__)
        gained = min(result.techniques[name].loss_ns.items(), key=lambda item: item[1])
        lines.append(
            f"More than 100% is no mistake: beside Track & Trigger the {producer} itself takes less time than alone, "
            f"as its output goes past the cache and most of it to other GPUs. {name} gains most by "
            f"\"{gained[0].replace('_', ' ')}\", {-gained[1] / 1e3:,.1f} µs.")
    compared = {name: one for name, one in result.techniques.items()
                if name != base.name and not name.startswith(_IDEAL)}
    if not compared:
        return lines
    name, best = min(compared.items(), key=lambda item: item[1].total_ns)
    hidden = f"; it hides {efficiency[name]:.1%} of the {' and the '.join(result.exchange.hides)}" if (
        0 < efficiency.get(name, 0) <= 1 + _NOTABLE) else ""
    which = "takes" if len(compared) == 1 else "is the fastest:"
    lines.append(f"{name} {which} {best.total_ns / 1e3:,.1f} µs, {result.speedup[name]:.3f} times as fast as "
                 f"{base.name} ({base.total_ns / 1e3:,.1f}){hidden}.")
    return lines
