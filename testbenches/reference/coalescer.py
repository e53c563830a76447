"""Reference for `t3sim.rtl.channel.coalescer`, cycle-exact: when an access is accepted and which updates leave when."""

from typing import NamedTuple

from t3sim.rtl.geometry import Geometry


class Update(NamedTuple):
    """Fields as in `t3sim.rtl.layouts.update`."""

    address: int
    amount: int
    source: int
    region: int
    wf: int
    wg: int

    @property
    def key(self) -> tuple[int, int, int]:
        return self.wg, self.wf, self.region


def totals(updates) -> dict[tuple[int, int, int], int]:
    """Sum the bytes per (wg, wf, region), which no coalescing may change."""
    sums: dict[tuple[int, int, int], int] = {}
    for update in updates:
        sums[update.key] = sums.get(update.key, 0) + update.amount
    return sums


class CoalescerModel:
    """Call `cycle` once per clock cycle; `ready` and `waiting` show the outputs before it."""

    def __init__(self, geometry: Geometry):
        self._largest = (1 << geometry.channel.amount_bits) - 1
        self._timeout = geometry.channel.coalescer_timeout_cycles
        self.held: Update | None = None
        self.waited = 0
        self.waiting: list[Update] = []

    @property
    def ready(self) -> bool:
        return self.held is None or len(self.waiting) < 2

    def joins(self, access: Update | None) -> bool:
        """Return whether an access that is accepted now joins the one that is held."""
        held = self.held
        return (access is not None and held is not None and held.key == access.key
                and held.amount + access.amount <= self._largest)

    def cycle(self, access: Update | None, leave: bool) -> Update | None:
        """Step one clock cycle; return the update that left. `access` must only be given when `ready`."""
        room = len(self.waiting) < 2
        left = self.waiting.pop(0) if leave and self.waiting else None
        if access is not None:
            held = self.held
            if self.joins(access):
                access = access._replace(amount=held.amount + access.amount, address=min(held.address, access.address))
            elif held is not None:
                self.waiting.append(held)
            self.held, self.waited = access, 0
        elif self.held is not None:
            self.waited += 1
            if self.waited >= self._timeout and room:
                self.waiting.append(self.held)
                self.held = None
        return left
