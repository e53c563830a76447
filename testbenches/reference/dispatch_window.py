"""Reference for `t3sim.rtl.window.dispatch_window`, transaction-level: what may go, and how far `head` gets.

The RTL's head and limits may lag behind the model's, never lead; they agree when it has settled.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from t3sim.rtl.geometry import TrackerGeometry
from t3sim.rtl.order import may_start
from t3sim.testbenches.reference.coalescer import Update
from t3sim.testbenches.reference.tracker import LOCAL


class Request(NamedTuple):
    """Fields of `t3sim.rtl.layouts.dispatch`; without further ones, a workgroup of this GPU's own."""

    id: int
    tiles: int = 0
    there: int = 0
    peer: int = 0
    opens: int = 1
    reaches: int = 0
    starts: int = 1
    region: int = 0
    last_region: int = 0

    @property
    def arrives(self) -> bool:
        """Say whether its tile is made by no workgroup of this GPU."""
        return bool(self.opens and not self.starts)

    def admissions(self, geometry: TrackerGeometry) -> list[Update]:
        """Return the updates that admit its tile, in order; none for one that a workgroup here makes."""
        highest, last = (1 << geometry.address_bits) - 1, self.tiles - 1
        return [Update(highest, 1, LOCAL, self.last_region if tile == last else self.region,
                       tile % (1 << geometry.wf_bits), self.id)
                for tile in reversed(range(self.tiles if self.arrives else 0))]


@dataclass
class DispatchWindowModel:
    """The dispatch window's model; `goes` and `completed` return the error's name or None."""

    geometry: TrackerGeometry
    window: int
    peer_heads: list[int] = field(default_factory=lambda: [0])
    peer_epochs: list[int] = field(default_factory=lambda: [0])
    epoch: int = 0
    head: int = 0
    left: dict[int, int] = field(default_factory=dict)  #: open id -> tiles that have not completed
    tiles: dict[int, int] = field(default_factory=dict)  #: id -> its tiles
    admissions: deque[Update] = field(default_factory=deque)  #: that have not left

    def may_go(self, request: Request) -> bool:
        """Say whether the request may be admitted now."""
        return self.waits(request) == (False, False) and not (request.arrives and self.admissions)

    def waits(self, request: Request) -> tuple[bool, bool]:
        """Say whether a request waits for the window here, and whether for that of its peer."""
        window = min(self.window, self.geometry.window_slots)
        peer = request.peer
        far = self.peer_heads[peer] + window if self.peer_epochs[peer] == self.epoch else 0
        return (not may_start(request.opens, 0, request.id, 0, self.head + window, 0),
                not may_start(0, request.reaches, 0, request.there, 0, far))

    def restart(self, epoch: int = 0) -> None:
        self.epoch = epoch
        self.head = 0
        self.left.clear()
        self.tiles.clear()
        self.admissions.clear()

    def goes(self, request: Request) -> str | None:
        """Admit a request, which must be able to go."""
        assert self.may_go(request), f"{request} goes outside a window, head {self.head}, peers at {self.peer_heads}"
        if not request.opens:
            return None
        if request.id < self.head or request.id in self.left:
            return "ID_REUSED"
        self.left[request.id] = self.tiles[request.id] = request.tiles
        self.admissions += request.admissions(self.geometry)
        self._advance()
        return None

    def admitted(self, update: Update) -> None:
        """Note that an admission leaves."""
        assert self.admissions.popleft() == update

    def foreign(self, wg: int, wf: int) -> bool:
        """Say whether an id that is open has no such wavefront: its tile goes nowhere."""
        return wg in self.left and wf >= self.tiles[wg]

    def completed(self, wg: int, wf: int = 0) -> str | None:
        if not self.left.get(wg) or self.foreign(wg, wf):
            return "COMPLETION_UNEXPECTED"
        self.left[wg] -= 1
        self._advance()
        return None

    @property
    def idle(self) -> bool:
        """Say whether every id that was opened is finished, and every admission has left."""
        return not self.left and not self.admissions

    def _advance(self) -> None:
        while self.left.get(self.head) == 0:
            del self.left[self.head]
            self.head += 1
