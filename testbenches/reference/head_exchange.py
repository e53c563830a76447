"""Cycle-exact model of the head exchange."""

from collections.abc import Sequence
from typing import NamedTuple

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.order import follows


class HeadPacket(NamedTuple):
    """A window's head on its way, as `t3sim.rtl.layouts.head_packet`."""

    head: int
    epoch: int
    source: int
    device: int


class Listener(NamedTuple):
    """Receiver of a head, as `t3sim.rtl.layouts.listener`."""

    device: int
    enable: int


class Shown(NamedTuple):
    """Outputs of a cycle."""

    leaving: HeadPacket | None
    known: tuple[tuple[int, int], ...]  #: (head, epoch) of each peer
    busy: bool
    news: bool  #: a head is kept that was not known
    refused: HeadPacket | None  #: in the cycle before


class HeadExchangeModel:
    """Call `step` once per cycle with the inputs of that cycle; it returns the outputs of the same cycle."""

    def __init__(self, geometry: Geometry) -> None:
        peers = geometry.dma.peers
        self._before: tuple = (0, 0)
        self._told: list[Listener] = [Listener(0, 0)] * peers
        self._due: set[int] = set()
        self._next = 0  #: peer that is first in turn
        self._leaving: HeadPacket | None = None
        self.known = [(0, 0)] * peers  #: (head, epoch) of each peer
        self._refused: HeadPacket | None = None
        self._last = 1 << geometry.tracker.wg_bits

    def step(self, *, head: int, epoch: int, number: int, told: Sequence[Listener], heard: Sequence[int],
             taken: bool, arriving: HeadPacket | None, sender: int) -> Shown:
        """Take the inputs of a cycle; `taken`: the link takes what leaves, if anything does.

        `sender`: from which GPU `arriving` came.
        """
        moved = (head, epoch) != self._before
        due = {peer for peer, listener in enumerate(told)
               if listener.enable and (moved or peer in self._due or listener != self._told[peer])}
        hears = [arriving is not None and arriving.source == device for device in heard]
        keeps = [hear and self._keeps(arriving, sender, known) for hear, known in zip(hears, self.known)]
        news = any(keep and known != (arriving.head, arriving.epoch) for keep, known in zip(keeps, self.known))
        shown = Shown(self._leaving, tuple(self.known), bool(due) or self._leaving is not None, news, self._refused)
        self._refused = arriving if hears != keeps else None
        if self._leaving is None or taken:
            self._leaving = None
            if due:
                peer = min(due, key=lambda peer: (peer - self._next) % len(told))
                due.remove(peer)
                self._next = (peer + 1) % len(told)
                self._leaving = HeadPacket(head, epoch, number, told[peer].device)
        self.known = [(arriving.head, arriving.epoch) if keep else known for keep, known in zip(keeps, self.known)]
        self._before, self._told, self._due = (head, epoch), list(told), due
        return shown

    def _keeps(self, packet: HeadPacket, sender: int, known: tuple[int, int]) -> bool:
        """Say whether a peer of which this is known can have the head of `packet`."""
        head, epoch = known
        if sender != packet.source or packet.head > self._last or (packet.head and not packet.epoch):
            return False
        return packet.head >= head if packet.epoch == epoch else packet.epoch == 0 or follows(packet.epoch, epoch)
