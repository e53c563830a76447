"""Cycle-exact model of the head exchange."""

from collections.abc import Sequence
from typing import NamedTuple

from t3sim.rtl.geometry import Geometry


class HeadPacket(NamedTuple):
    """A window's head on its way, as `t3sim.rtl.layouts.head_packet`."""

    head: int
    epoch: int
    source: int
    device: int


class Listener(NamedTuple):
    """To whom a head is told, as `t3sim.rtl.layouts.listener`."""

    device: int
    enable: int


class Shown(NamedTuple):
    """Outputs of a cycle."""

    leaving: HeadPacket | None
    known: tuple[tuple[int, int], ...]  #: (head, epoch) of each peer
    busy: bool


class HeadExchangeModel:
    """Call `step` once per cycle with the inputs of that cycle; it returns the outputs of the same cycle."""

    def __init__(self, geometry: Geometry) -> None:
        peers = geometry.dma.peers
        self._before: tuple = (0, 0)
        self._told: list[Listener] = [Listener(0, 0)] * peers
        self._due: set[int] = set()
        self._next = 0  #: peer that is first in turn
        self._leaving: HeadPacket | None = None
        self._known = [(0, 0)] * peers

    def step(self, *, head: int, epoch: int, number: int, told: Sequence[Listener], heard: Sequence[int],
             taken: bool, arriving: HeadPacket | None) -> Shown:
        """Take the inputs of a cycle; `taken`: the link takes what leaves, if anything does."""
        moved = (head, epoch) != self._before
        due = {peer for peer, listener in enumerate(told)
               if listener.enable and (moved or peer in self._due or listener != self._told[peer])}
        shown = Shown(self._leaving, tuple(self._known), bool(due) or self._leaving is not None)
        if self._leaving is None or taken:
            self._leaving = None
            if due:
                peer = min(due, key=lambda peer: (peer - self._next) % len(told))
                due.remove(peer)
                self._next = (peer + 1) % len(told)
                self._leaving = HeadPacket(head, epoch, number, told[peer].device)
        if arriving is not None:
            self._known = [(arriving.head, arriving.epoch) if arriving.source == device else known
                           for known, device in zip(self._known, heard)]
        self._before, self._told, self._due = (head, epoch), list(told), due
        return shown
