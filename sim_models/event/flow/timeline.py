"""A collective of the event level as a Perfetto timeline.

It shows each GPU's messages, what its links carry, and an arrow from each message to its arrival. Opens in
https://ui.perfetto.dev; times are in ns.
"""

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from t3sim.base.output import whole_file
from t3sim.base.perfetto_writer import TimelineWriter
from t3sim.event.flow.collective import CollectiveFlow
from t3sim.machine.topologies import Topology


@dataclass
class LinkRates:
    """Rates of every link, whenever they changed: a `watch` for `run_program`."""

    changes: list[tuple[float, np.ndarray]] = field(default_factory=list)  #: time, bytes per ns of each link

    def __call__(self, now: float, rates: np.ndarray) -> None:
        self.changes.append((now, rates.copy()))


def write_timeline(path: Path, title: str, topology: Topology, run: CollectiveFlow, rates: LinkRates) -> None:
    """Write the timeline of one run.

    Messages of one GPU that start and end together are one slice; slices that overlap get a track each.
    """
    messages: dict[int, dict[tuple[float, float], list[tuple[int, int]]]] = defaultdict(lambda: defaultdict(list))
    for chunk, source, destination, start, end in run.steps:
        messages[source][start, end].append((chunk, destination))
    with whole_file(path, "wb") as file:
        out = TimelineWriter(file, 1.0)
        whole = out.track(title)
        names = [f"GPU {node}" if node < topology.gpus else f"switch {node - topology.gpus}"
                 for node in range(topology.nodes)]
        gpus = [out.track(name, whole) for name in names]
        arrivals = [out.track("arrivals", gpu) for gpu in gpus[:topology.gpus]]
        arrow = 0
        for source in sorted(messages):
            lane_of = _lanes(sorted(messages[source]), lambda number, gpu=gpus[source]: out.track(
                "messages" if not number else f"messages {number + 1}", gpu))
            for (start, end), sent in sorted(messages[source].items()):
                arrow += 1
                to = sorted({destination for _, destination in sent})
                what = f"chunk {sent[0][0]}" if len(sent) == 1 else f"{len(sent)} chunks"
                out.slice(start, end, lane_of[start, end], f"{what} to " + (
                    f"GPU {to[0]}" if len(to) == 1 else f"{len(to)} GPUs"), arrow, chunks=len(sent))
                for destination in to:
                    out.instant(end, arrivals[destination], f"from GPU {source}", arrow, last=destination == to[-1])
        for number, link in enumerate(topology.links):
            counter, before = out.track(f"link to {names[link.destination]}", gpus[link.source], unit="MB/s"), None
            for now, carried in rates.changes:
                if (value := round(1e3 * carried[number])) != before:
                    out.counter(now, counter, value)
                    before = value


def _lanes(spans: Sequence[tuple[float, float]], new_track: Callable[[int], int]) -> dict[tuple[float, float], int]:
    """Spread spans, sorted by their starts, over tracks so that none overlaps another of its track."""
    free: list[tuple[float, int]] = []  # when each track is free
    found = {}
    for start, end in spans:
        place = next((place for place, (until, _) in enumerate(free) if until <= start), len(free))
        if place == len(free):
            free.append((0.0, new_track(place)))
        free[place] = end, free[place][1]
        found[start, end] = free[place][1]
    return found
