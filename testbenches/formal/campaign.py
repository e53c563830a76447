"""Every property, and what a run of one yields."""

from . import (
    address_generator,
    arbiter,
    coalescer,
    conservation,
    counters,
    dma_table,
    forward_progress,
    memory_codec,
    order_guard,
    protected_tracker,
    streams,
    tracker,
)
from .broken import Broken
from .property import Property
from .solver import ENGINE

PROPERTIES: list[Property] = [
    *tracker.properties(),
    *protected_tracker.properties(),
    *memory_codec.properties(),
    *arbiter.properties(),
    *forward_progress.properties(),
    *order_guard.properties(),
    *dma_table.properties(),
    *address_generator.properties(),
    *coalescer.properties(),
    *conservation.properties(),
    *counters.properties(),
    *streams.properties(),
]


def prove(item: Property, broken: tuple[Broken, ...] | None = None) -> dict:
    """The property on the design, and its claims on the designs that must violate them: all, or only `broken`."""
    claims, verdict = item.prove()
    caught_on = []
    for design in item.broken if broken is None else broken:
        caught = item.catch(design)
        caught_on.append({"what": design.what, "claim": design.claim, "caught": caught.status == "fail",
                          "status": caught.status, "seconds": round(caught.seconds, 2)})
    problems = [] if verdict.status == "pass" else [f"{verdict.status}; see {verdict.folder}"]
    problems += [f"not caught: {told['what']} ({told['claim']})" for told in caught_on if not told["caught"]]
    unshown = set(claims) - {design.claim for design in item.broken}
    problems += [f"no broken design shows that '{claim}' can fail" for claim in sorted(unshown)]
    return {
        "block": item.block, "property": item.name, "statement": item.statement,
        "claims": claims,
        "geometry": item.geometry if isinstance(item.geometry, str) else "own", "reason": item.reason,
        "bounded": item.bounded, "depth": item.depth, "engine": ENGINE, "verdict": verdict.status,
        "seconds": round(verdict.seconds, 2), "broken": caught_on, "ok": not problems, "why": "; ".join(problems),
    }
