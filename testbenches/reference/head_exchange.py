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
        self._resets: set[int] = set()  #: peers to whose next packet kernel 0 is to precede
        self._next = 0  #: peer that is first in turn
        self._leaving: HeadPacket | None = None
        self.known = [(0, 0)] * peers  #: (head, epoch) of each peer
        self._heard: list[int] = [0] * peers
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
        new = {peer for peer, listener in enumerate(told) if listener != self._told[peer]}
        before = self._before[1]
        if epoch != before:
            self._resets |= set(range(len(told))) if epoch == 0 else self._due if before else set()
        if epoch:
            self._resets |= new
        hears = [arriving is not None and arriving.source == device for device in heard]
        known = [known if device == same else (0, 0) for known, device, same in zip(self.known, heard, self._heard)]
        keeps = [hear and self._keeps(arriving, sender, at) for hear, at in zip(hears, known)]
        news = any(keep and at != (arriving.head, arriving.epoch) for keep, at in zip(keeps, known))
        shown = Shown(self._leaving, tuple(self.known), bool(due) or self._leaving is not None, news, self._refused)
        self._refused = arriving if hears != keeps else None
        if self._leaving is None or taken:
            self._leaving = None
            if due:
                peer = min(due, key=lambda peer: (peer - self._next) % len(told))
                self._next = (peer + 1) % len(told)
                if epoch and peer in self._resets:
                    self._leaving = HeadPacket(0, 0, number, told[peer].device)
                else:
                    due.remove(peer)
                    self._leaving = HeadPacket(head, epoch, number, told[peer].device)
                self._resets.discard(peer)
        self.known = [(arriving.head, arriving.epoch) if keep else at for keep, at in zip(keeps, known)]
        self._before, self._told, self._heard, self._due = (head, epoch), list(told), list(heard), due
        return shown

    def _keeps(self, packet: HeadPacket, sender: int, known: tuple[int, int]) -> bool:
        """Say whether a peer of which this is known can have the head of `packet`."""
        head, epoch = known
        if sender != packet.source or packet.head > self._last or (packet.head and not packet.epoch):
            return False
        return packet.head >= head if packet.epoch == epoch else packet.epoch == 0 or follows(packet.epoch, epoch)
