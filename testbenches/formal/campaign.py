"""Every property, and what a run of one yields."""

from . import arbiter, conservation, forward_progress, streams, tracker
from .property import Property
from .solver import ENGINE

PROPERTIES: list[Property] = [
    *tracker.properties(),
    *arbiter.properties(),
    *forward_progress.properties(),
    *conservation.properties(),
    *streams.properties(),
]


def prove(item: Property) -> dict:
    """The property on the design, and each of its claims on the designs that must violate it."""
    claims, verdict = item.prove()
    broken = []
    for design in item.broken:
        caught = item.catch(design)
        broken.append({"what": design.what, "claim": design.claim, "caught": caught.status == "fail",
                       "status": caught.status, "seconds": round(caught.seconds, 2)})
    problems = [] if verdict.status == "pass" else [f"{verdict.status}; see {verdict.folder}"]
    problems += [f"not caught: {told['what']} ({told['claim']})" for told in broken if not told["caught"]]
    unshown = set(claims) - {design.claim for design in item.broken}
    problems += [f"no broken design shows that '{claim}' can fail" for claim in sorted(unshown)]
    return {
        "block": item.block, "property": item.name, "statement": item.statement,
        "claims": claims,
        "geometry": item.geometry if isinstance(item.geometry, str) else "own", "reason": item.reason,
        "bounded": item.bounded, "depth": item.depth, "engine": ENGINE, "verdict": verdict.status,
        "seconds": round(verdict.seconds, 2), "broken": broken, "ok": not problems, "why": "; ".join(problems),
    }
