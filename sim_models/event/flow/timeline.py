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
        writer = TimelineWriter(file, 1.0)
        root_track = writer.track(title)
        names = [f"GPU {node}" if node < topology.gpus else f"switch {node - topology.gpus}"
                 for node in range(topology.nodes)]
        gpus = [writer.track(name, root_track) for name in names]
        arrivals = [writer.track("arrivals", gpu) for gpu in gpus[:topology.gpus]]
        arrow = 0
        for source in sorted(messages):
            lane_of = _lanes(sorted(messages[source]), lambda number, gpu=gpus[source]: writer.track(
                "messages" if not number else f"messages {number + 1}", gpu))
            for (start, end), chunks in sorted(messages[source].items()):
                arrow += 1
                destinations = sorted({destination for _, destination in chunks})
                label = f"chunk {chunks[0][0]}" if len(chunks) == 1 else f"{len(chunks)} chunks"
                writer.slice(start, end, lane_of[start, end], f"{label} to " + (
                    f"GPU {destinations[0]}" if len(destinations) == 1 else f"{len(destinations)} GPUs"), arrow,
                    chunks=len(chunks))
                for destination in destinations:
                    writer.instant(end, arrivals[destination], f"from GPU {source}", arrow,
                                   last=destination == destinations[-1])
        for number, link in enumerate(topology.links):
            counter = writer.track(f"link to {names[link.destination]}", gpus[link.source], unit="MB/s")
            last_value = None
            for now, link_rates in rates.changes:
                if (value := round(1e3 * link_rates[number])) != last_value:
                    writer.counter(now, counter, value)
                    last_value = value


def _lanes(spans: Sequence[tuple[float, float]], new_track: Callable[[int], int]) -> dict[tuple[float, float], int]:
    """Spread spans, sorted by their starts, over tracks so that none overlaps another of its track."""
    free_from: list[tuple[float, int]] = []  # when each track is free
    lanes = {}
    for start, end in spans:
        lane = next((lane for lane, (until, _) in enumerate(free_from) if until <= start), len(free_from))
        if lane == len(free_from):
            free_from.append((0.0, new_track(lane)))
        free_from[lane] = end, free_from[lane][1]
        lanes[start, end] = free_from[lane][1]
    return lanes
