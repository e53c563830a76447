"""Reference for `t3sim.rtl.track.tracker`, transaction-level: one update in, its effect out, in order.

One model serves any number of banks: banks only split the sets. Updates of one workgroup must be given
in the order in which the RTL accepts them.
"""

from typing import NamedTuple

from t3sim.rtl.geometry import TrackerGeometry
from t3sim.testbenches.reference.coalescer import Update

LOCAL = 0  #: `t3sim.rtl.layouts.Source`


class Trigger(NamedTuple):
    """Fields as in `t3sim.rtl.layouts.trigger`."""

    address: int
    region: int
    wf: int
    wg: int


class Outcome(NamedTuple):
    """Outcome of one update; at most one of the fields is set."""

    trigger: Trigger | None = None
    error: str | None = None  #: name of the `t3sim.rtl.layouts.ErrorCode`


class TrackerModel:
    """The Tracker's sets.

    `thresholds[region]` is None for a region that is not tracked; without `families` all regions are of one family.
    """

    def __init__(self, geometry: TrackerGeometry, thresholds: list[int | None], families: list[int] | None = None):
        self._geometry = geometry
        self.thresholds = thresholds
        self.families = families or [0] * len(thresholds)
        self._sets: list[dict[tuple[int, int], list[int]]] = [{} for _ in range(geometry.sets)]

    @property
    def occupied(self) -> int:
        return sum(len(entries) for entries in self._sets)

    def bank(self, wg: int) -> int:
        return wg % self._geometry.banks

    def apply(self, update: Update) -> Outcome:
        threshold = self.thresholds[update.region] if update.region else None
        if not threshold:
            return Outcome(error="REGION_UNCONFIGURED")
        entries = self._sets[update.wg % self._geometry.sets]
        tag = update.wg // self._geometry.sets, update.wf
        if tag in entries and self.families[entries[tag][2]] != self.families[update.region]:
            return Outcome(error="REGION_MISMATCH")
        address, count, region = entries.get(tag, (update.address, 0, update.region))
        address, count = min(address, update.address), count + update.amount
        if update.source == LOCAL:
            region = update.region
        if count < threshold and tag not in entries and len(entries) == self._geometry.ways:
            return Outcome(error="TRACKER_FULL")
        if count < threshold:
            entries[tag] = [address, count, region]
            return Outcome()
        entries.pop(tag, None)
        if count > threshold:
            return Outcome(error="THRESHOLD_EXCEEDED")
        return Outcome(trigger=Trigger(address, region, update.wf, update.wg))
