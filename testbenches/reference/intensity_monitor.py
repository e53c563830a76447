"""Model of the intensity monitor: sampling is cycle-exact, the result is exact, its latency is not modelled."""

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import NO_THRESHOLD


class IntensityMonitorModel:
    """Call `step` once per cycle. `mean` and `threshold` are the result once the phase has `ended`."""

    def __init__(self, geometry: Geometry) -> None:
        self._channels = geometry.channel.channels
        self._samples_most = 1 << geometry.channel.sample_bits
        self._forget(watching=False)

    def _forget(self, watching: bool) -> None:
        self.watching = watching
        self.seen = False
        self.ended = False
        self.total = 0
        self.samples = 0

    def step(self, *, restart: int, producer_active: int, communication_seen: int, occupancy: list[int],
             least: int = 0) -> None:
        self.seen = bool(self.watching and (self.seen or communication_seen))
        enough = self.samples >= min(64 * least, self._samples_most)
        if self.seen and (enough or (self.samples and not producer_active)):
            self.watching = self.seen = False
            self.ended = True
        elif self.watching and producer_active and self.samples < self._samples_most:
            self.total += occupancy[self.samples % self._channels]
            self.samples += 1
        if restart:
            self._forget(watching=True)

    @property
    def mean(self) -> int:
        """Quarters of an entry."""
        return 4 * self.total // self.samples if self.ended and self.samples else 0

    def threshold(self, breakpoints: list[int]) -> int:
        if not self.ended:
            return NO_THRESHOLD
        for breakpoint, threshold in zip(breakpoints, (NO_THRESHOLD, 15, 5)):
            if self.mean < breakpoint:
                return threshold
        return 3
