"""Reference for `t3sim.rtl.track.update_network`, transaction-level: which deliveries are legal.

Legal: every update exactly once, at the bank of its workgroup, and those of one channel for one bank in
the order in which the channel sent them.
"""

from t3sim.rtl.geometry import Geometry
from t3sim.testbenches.reference.coalescer import Update
from t3sim.testbenches.reference.trigger_merge import MergeModel


class UpdateNetworkModel:
    """Scoreboard: `accepted` at a channel, `delivered` at a bank."""

    def __init__(self, geometry: Geometry):
        self._banks = [MergeModel(geometry.channel.channels) for _ in range(geometry.tracker.banks)]

    @property
    def inside(self) -> int:
        return sum(bank.waiting for bank in self._banks)

    def accepted(self, channel: int, update: Update) -> None:
        self._banks[update.wg % len(self._banks)].accepted(channel, update)

    def delivered(self, bank: int, update: Update) -> int:
        """Return the channel that an update came from; an error if it may not arrive here now."""
        return self._banks[bank].delivered(update)
