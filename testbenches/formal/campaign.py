"""Every property, and what a run of one yields."""

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.formal import (
    accounts,
    address_generator,
    arbiter,
    coalescer,
    command_queue,
    config_bus,
    conservation,
    counters,
    dma_table,
    egress,
    forward_progress,
    fp_adder,
    head_exchange,
    ingress,
    intensity_monitor,
    memory_channel,
    memory_codec,
    merge_table,
    one_trigger,
    order_guard,
    protected_tracker,
    read_credits,
    ready_table,
    reset_sequence,
    ring_monitor,
    streams,
    switch,
    tracker,
    watchdog,
)
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.solver import ENGINE

PROPERTIES: list[Property] = [
    *tracker.properties(),
    *protected_tracker.properties(),
    *memory_codec.properties(),
    *memory_channel.properties(),
    *arbiter.properties(),
    *forward_progress.properties(),
    *order_guard.properties(),
    *dma_table.properties(),
    *command_queue.properties(),
    *address_generator.properties(),
    *coalescer.properties(),
    *conservation.properties(),
    *egress.properties(),
    *ingress.properties(),
    *ready_table.properties(),
    *ring_monitor.properties(),
    *head_exchange.properties(),
    *watchdog.properties(),
    *accounts.properties(),
    *one_trigger.properties(),
    *fp_adder.properties(),
    *config_bus.properties(),
    *reset_sequence.properties(),
    *intensity_monitor.properties(),
    *counters.properties(),
    *read_credits.properties(),
    *merge_table.properties(),
    *switch.properties(),
    *streams.properties(),
]


def prove(item: Property, broken: tuple[Broken, ...] | None = None, searches: tuple[Search, ...] | None = None) -> dict:
    """Prove the property on the design, and catch the designs that must violate its claims.

    They are all such designs, or only those given.
    """
    claims, verdict = item.prove()
    caught_on = []
    for search in item.searches if searches is None else searches:
        for design in item.broken if broken is None else broken:
            caught = item.catch(design, search)
            caught_on.append({"what": design.what, "claim": design.claim, "geometry": _name(search.geometry),
                              "caught": caught.status == "fail", "status": caught.status,
                              "seconds": round(caught.seconds, 2)})
    problems = [] if verdict.status == "pass" else [f"{verdict.status}; see {verdict.folder}"]
    problems += [f"not caught on {told['geometry']}: {told['what']} ({told['claim']}): {told['status']}"
                 for told in caught_on if not told["caught"]]
    unshown = set(claims) - {design.claim for design in item.broken}
    problems += [f"no broken design shows that '{claim}' can fail" for claim in sorted(unshown)]
    return {
        "block": item.block, "property": item.name, "statement": item.statement,
        "claims": claims, "geometry": _name(item.geometry), "reason": item.reason, "unsearched": item.unsearched,
        "bounded": item.bounded, "depth": item.depth, "engine": ENGINE, "verdict": verdict.status,
        "seconds": round(verdict.seconds, 2), "broken": caught_on, "ok": not problems, "why": "; ".join(problems),
    }


def _name(geometry: str | Geometry) -> str:
    return geometry if isinstance(geometry, str) else "own"
