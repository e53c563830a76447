"""Cycle-exact model of the order guard (T3 paper, section 4.2.2; the question it answers is left open there)."""

from t3sim.rtl.geometry import Geometry


def bucket_of(address: int, geometry: Geometry) -> int:
    """Return the bucket of a line: its block's number but for the lowest field, XORed in fields as wide as a bucket."""
    channel = geometry.channel
    block = address // channel.interleave_bytes // (channel.channels & -channel.channels)
    bucket = 0
    while block and channel.guard_buckets > 1:
        block, field = divmod(block, channel.guard_buckets)
        bucket ^= field
    return bucket


class OrderGuardModel:
    """Counts the tracked writes of each bucket that were granted and have not retired.

    Per cycle: `blocked` for the query (with the write reported in this cycle), `room`, then `tick` with the cycle's
    events.
    """

    def __init__(self, geometry: Geometry) -> None:
        self._geometry = geometry
        self.outstanding = [0] * geometry.channel.guard_buckets
        self.most = (2 << geometry.channel.occupancy_bits) - 1  #: a bucket's counters tell no more apart

    def blocked(self, query: int, write_address: int | None = None) -> bool:
        bucket = bucket_of(query, self._geometry)
        if write_address is not None and bucket_of(write_address, self._geometry) == bucket:
            return True
        return self.outstanding[bucket] > 0

    def room(self, write_address: int | None = None) -> bool:
        """Return whether one more write may be granted in the cycle in which this one, granted before, is told."""
        return sum(self.outstanding) + (write_address is not None) < self.most

    def tick(self, write_address: int | None = None, retired_bucket: int | None = None) -> None:
        if write_address is not None:
            self.outstanding[bucket_of(write_address, self._geometry)] += 1
        if retired_bucket is not None:
            assert self.outstanding[retired_bucket] > 0, f"bucket {retired_bucket} has no write to retire"
            self.outstanding[retired_bucket] -= 1
