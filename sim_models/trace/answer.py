"""Answer of `t3 explain`, whatever the question was."""

from collections.abc import Iterable
from dataclasses import dataclass, field

from t3sim.base.errors import Words
from t3sim.trace.store import Trace


@dataclass
class Answer:
    """Known events in order of time, and what follows from them."""

    subject: str
    steps: list[tuple[int | None, str]] = field(default_factory=list)  #: (cycle, what happened)
    verdict: list[str] = field(default_factory=list)
    caveats: list[str | Words] = field(default_factory=list)
    gpus: list[dict[str, str]] = field(default_factory=list)  #: what waits where, of a run that stands still

    def tell(self, cycle: int | None, text: str) -> None:
        self.steps.append((None if cycle is None else int(cycle), text))

    def conclude(self, *lines: str) -> None:
        self.verdict += filter(None, lines)

    def in_order(self) -> "Answer":
        """Return the answer with its steps sorted by time; those without a cycle first."""
        self.steps.sort(key=lambda step: -1 if step[0] is None else step[0])
        return self

    def to_json(self) -> dict:
        return {
            "subject": self.subject,
            "steps": [{"cycle": cycle, "text": text} for cycle, text in self.steps],
            "verdict": self.verdict,
            "caveats": [*map(str, self.caveats)],
            "gpus": self.gpus,
        }


def caveats(trace: Trace, wg: int | None = None) -> Iterable[str]:
    """List what the trace cannot know, because of its window, its limit or its filters."""
    first, last = trace.window
    recorded, chosen = trace.run["recorded"], trace.run["filter"]
    if first > 0:
        yield (f"The recording starts at cycle {first:,}; of what happened before, only updates of tiles that were "
               "open then are known.")
    if recorded["dropped"]:
        yield f"The recording reached its limit: events from cycle {last:,} on are missing."
    elif recorded["outcome"] in ("window", "interrupted") or last < recorded["cycles_of_run"]:
        yield f"The recording ends at cycle {last:,}, before the run did."
    if chosen["kinds"] is not None:
        yield f"Only these kinds were recorded: {', '.join(chosen['kinds'])}."
    if chosen["channels"] is not None:
        yield f"Requests were recorded on these channels only: {', '.join(map(str, chosen['channels']))}."
    if wg is not None and chosen["wgs"] is not None and wg not in chosen["wgs"]:
        yield f"Workgroup {wg} is not among those recorded ({', '.join(map(str, chosen['wgs'][:20]))})."
