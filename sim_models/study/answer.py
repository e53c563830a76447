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
    if shares_above_one := {name: share for name, share in efficiency.items() if share > 1 + _NOTABLE}:
        name = max(shares_above_one, key=shares_above_one.__getitem__)
        largest_gain = min(result.techniques[name].loss_ns.items(), key=lambda item: item[1])
        lines.append(
            f"More than 100% is no mistake: beside Track & Trigger the {producer} itself takes less time than alone, "
            f"as its output goes past the cache and most of it to other GPUs. {name} gains most by "
            f"\"{largest_gain[0].replace('_', ' ')}\", {-largest_gain[1] / 1e3:,.1f} µs.")
    candidates = {name: technique for name, technique in result.techniques.items()
                  if name != base.name and not name.startswith(_IDEAL)}
    if not candidates:
        return lines
    name, best = min(candidates.items(), key=lambda item: item[1].total_ns)
    hidden_text = f"; it hides {efficiency[name]:.1%} of the {' and the '.join(result.exchange.hides)}" if (
        0 < efficiency.get(name, 0) <= 1 + _NOTABLE) else ""
    verb = "takes" if len(candidates) == 1 else "is the fastest:"
    lines.append(f"{name} {verb} {best.total_ns / 1e3:,.1f} µs, {result.speedup[name]:.3f} times as fast as "
                 f"{base.name} ({base.total_ns / 1e3:,.1f}){hidden_text}.")
    return lines
