"""Reference for `rtl.dispatch_window`, transaction-level: what may start, and how far `head` gets.

The RTL's head and limit may lag behind the model's, never lead; they agree when it has settled.
"""

from dataclasses import dataclass, field

from rtl.geometry import TrackerGeometry


@dataclass
class DispatchWindowModel:
    """`dispatched` and `completed` return the error's name or None."""

    geometry: TrackerGeometry
    window: int
    shift: int = 0
    enable_downstream: bool = False
    downstream_head: int = 0
    epoch: int = 0
    downstream_epoch: int = 0
    head: int = 0
    following: int = 0  #: the workgroup that must come next
    left: dict[int, int] = field(default_factory=dict)  #: workgroup -> tiles that have not completed

    @property
    def limit(self) -> int:
        """Workgroups below it may start."""
        window = min(self.window, self.geometry.window_slots)
        here = self.head + window
        if self.enable_downstream and self.downstream_epoch != self.epoch:
            return 0
        return min(here, self.downstream_head + window - self.shift) if self.enable_downstream else here

    def restart(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.head = self.following = 0
        self.left.clear()

    def dispatched(self, wg: int, tiles: int) -> str | None:
        assert self.following < self.limit, f"workgroup {self.following} starts at limit {self.limit}"
        if wg != self.following:
            return "DISPATCH_ORDER"
        self.left[wg] = tiles
        self.following += 1
        self._advance()
        return None

    def completed(self, wg: int) -> str | None:
        if not self.left.get(wg):
            return "COMPLETION_UNEXPECTED"
        self.left[wg] -= 1
        self._advance()
        return None

    def _advance(self) -> None:
        while self.left.get(self.head) == 0:
            del self.left[self.head]
            self.head += 1
