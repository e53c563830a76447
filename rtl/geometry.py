"""Every size of the hardware, in frozen dataclasses that refuse impossible values.

Plain Python, because the models and testbenches read these sizes without Amaranth.
"""

from dataclasses import dataclass, field, fields

from t3sim.rtl.check_bits import PROTECTIONS
from t3sim.rtl.formats import PLAIN_SUMS, SUMS, Sum


class GeometryError(ValueError):
    """A geometry that cannot be built. The message names the field, its value and the allowed values."""


def _require(condition: bool, name: str, value, allowed: str) -> None:
    if not condition:
        raise GeometryError(f"{name}={value!r} is impossible: {allowed}")


def _is_power_of_two(value: int) -> bool:
    return value > 0 and value & (value - 1) == 0


def _require_integers(geometry) -> None:
    for spec in fields(geometry):
        value = getattr(geometry, spec.name)
        if spec.type in (int, "int"):
            _require(type(value) is int, spec.name, value, "a whole number is needed")


def bits_for(count: int) -> int:
    """Return the width that numbers `count` things (at least 1 bit)."""
    return max(1, (count - 1).bit_length())


@dataclass(frozen=True)
class TrackerGeometry:
    """The Tracker (T3 paper, section 4.2.1): 256 sets of 8 ways are the paper's 19 KB."""

    sets: int = 256  #: indexed by the low bits of the workgroup id
    ways: int = 8  #: one per wavefront of a workgroup
    banks: int = 8  #: updates accepted per cycle; bank = lowest bits of the set
    wg_bits: int = 16  #: workgroup id
    wf_bits: int = 3  #: wavefront id, up to eight wavefronts per workgroup
    address_bits: int = 48  #: virtual address
    count_bits: int = 16  #: bytes counted towards the threshold
    protection: str = "none"  #: of the memories: "parity" detects a flipped bit, "secded" corrects it and detects two

    def __post_init__(self) -> None:
        _require_integers(self)
        _require(_is_power_of_two(self.sets), "sets", self.sets, "a power of two is needed")
        _require(_is_power_of_two(self.banks), "banks", self.banks, "a power of two is needed")
        _require(self.banks <= self.sets, "banks", self.banks, f"at most sets={self.sets}")
        _require(1 <= self.ways <= 64, "ways", self.ways, "1 to 64")
        _require(1 <= self.wf_bits <= 6, "wf_bits", self.wf_bits, "1 to 6")
        _require(self.set_bits < self.wg_bits <= 24, "wg_bits", self.wg_bits,
                 f"more than log2(sets)={self.set_bits}, at most 24")
        _require(32 <= self.address_bits <= 64, "address_bits", self.address_bits, "32 to 64")
        _require(8 <= self.count_bits <= 32, "count_bits", self.count_bits, "8 to 32")
        _require(self.protection in PROTECTIONS, "protection", self.protection, f"one of {', '.join(PROTECTIONS)}")

    @property
    def set_bits(self) -> int:
        """log2 of the sets."""
        return (self.sets - 1).bit_length()

    @property
    def bank_bits(self) -> int:
        """log2 of the banks."""
        return (self.banks - 1).bit_length()

    @property
    def sets_per_bank(self) -> int:
        return self.sets // self.banks

    @property
    def tag_bits(self) -> int:
        """wg_msb and wf_id."""
        return self.wg_bits - self.set_bits + self.wf_bits

    @property
    def window_slots(self) -> int:
        """Workgroups that can be open at once (slot = wg mod window_slots), with any number of tiles."""
        per_set = -(-self.ways // (1 << self.wf_bits))
        return min(self.sets << (per_set - 1).bit_length(), 1 << self.wg_bits)

    @property
    def entry_bits(self) -> int:
        return 1 + self.tag_bits + self.address_bits + self.count_bits

    @property
    def storage_bits(self) -> int:
        return self.sets * self.ways * self.entry_bits


@dataclass(frozen=True)
class ChannelGeometry:
    """The memory channels and the DRAM queue that each arbiter feeds."""

    channels: int = 32
    interleave_bytes: int = 256  #: consecutive bytes on one channel
    request_bytes: int = 64  #: largest request; one line
    queue_entries: int = 32  #: entries of a channel's DRAM queue, whose occupancy the arbiter sees
    guard_buckets: int = 64  #: counters per channel that order DMA reads behind queued updates
    dma_fifo: int = 32  #: DMA reads that can wait at one channel
    coalescer_timeout_cycles: int = 16  #: longest delay of an update that waits for a neighbour
    sample_bits: int = 24  #: MCA's threshold is based on at most 2**sample_bits cycles: 17 ms at 1 GHz
    more_bits: int = 0  #: width of a request's number of parts beyond the first; 0: requests have one part
    sums: str = "plain"  #: near-memory sums; plain: fp16, bf16 and fp32 in one format each; others by name, joined by +

    def __post_init__(self) -> None:
        _require_integers(self)
        wide = {one.name: one for one in SUMS if one not in PLAIN_SUMS}
        names = [] if self.sums == "plain" else self.sums.split("+")
        _require(all(name in wide for name in names) and len(set(names)) == len(names), "sums", self.sums,
                 f"plain, or once each, a + between: {', '.join([*wide][:2])} and {len(wide) - 2} more")
        _require(1 <= self.channels <= 255, "channels", self.channels, "1 to 255")
        _require(self.request_bytes == 64, "request_bytes", self.request_bytes, "64 is the only supported line")
        _require(_is_power_of_two(self.interleave_bytes) and self.interleave_bytes >= self.request_bytes,
                 "interleave_bytes", self.interleave_bytes, f"a power of two, at least {self.request_bytes}")
        _require(4 <= self.queue_entries <= 127, "queue_entries", self.queue_entries, "4 to 127")
        _require(_is_power_of_two(self.guard_buckets) and self.guard_buckets <= 256, "guard_buckets",
                 self.guard_buckets, "a power of two up to 256 is needed")
        _require(1 <= self.dma_fifo <= 64, "dma_fifo", self.dma_fifo, "1 to 64")
        _require(1 <= self.coalescer_timeout_cycles <= 255, "coalescer_timeout_cycles",
                 self.coalescer_timeout_cycles, "1 to 255")
        _require(1 <= self.sample_bits <= 32, "sample_bits", self.sample_bits, "1 to 32")
        _require(0 <= self.more_bits <= 7, "more_bits", self.more_bits, "0 to 7")

    @property
    def wide_sums(self) -> tuple[Sum, ...]:
        """Sums in addition to `PLAIN_SUMS`, in the order of `SUMS`."""
        return tuple(one for one in SUMS if one.name in self.sums.split("+"))

    @property
    def channel_bits(self) -> int:
        return self.fold_bits + (self.odd_channels - 1).bit_length()

    @property
    def fold_bits(self) -> int:
        """log2 of the largest power of two that divides the number of channels."""
        return (self.channels & -self.channels).bit_length() - 1

    @property
    def odd_channels(self) -> int:
        return self.channels >> self.fold_bits

    @property
    def byte_count_bits(self) -> int:
        """Width of a number from 1 to `request_bytes`."""
        return self.request_bytes.bit_length()

    @property
    def amount_bits(self) -> int:
        """Width of a coalesced update's bytes: up to four interleave units, each byte once for each part of a sum."""
        return (4 * self.interleave_bytes).bit_length() + self.more_bits

    @property
    def occupancy_bits(self) -> int:
        return self.queue_entries.bit_length()


@dataclass(frozen=True)
class DmaGeometry:
    """The DMA command table and its engines (T3 paper, section 4.2.2)."""

    regions: int = 16  #: address-space mappings; region 0: not mapped by T3
    block_shapes: int = 8  #: shapes of DMA blocks, shared by all regions
    routes: int = 16  #: destinations with offsets, shared by all regions
    buffers: int = 4  #: ranges of memory that DMA may read, shared by all regions
    copies: int = 1  #: routes of one region: data are read once and sent on each
    device_bits: int = 6
    engines: int = 4  #: one 64-byte line per cycle each
    ready_commands: int = 2048  #: complete blocks that can wait for an engine; see DispatchWindow
    outstanding_lines: int = 2048  #: lines read but not yet on the link, of all engines
    egress_lanes: int = 2  #: 64-byte packets towards the link per cycle
    queue_commands: int = 0  #: places of a command queue in memory; 0: no queue
    ready_groups: int = 0  #: counters of the ready table, for kernels that wait for tiles; 0: no table
    peers: int = 1  #: GPUs whose dispatch windows this GPU's workgroups must fit into

    def __post_init__(self) -> None:
        _require_integers(self)
        _require(_is_power_of_two(self.regions) and 2 <= self.regions <= 64, "regions", self.regions,
                 "a power of two from 2 to 64 is needed")
        for name in ("block_shapes", "routes", "buffers"):
            entries = getattr(self, name)
            _require(1 <= entries <= 64, name, entries, "1 to 64")
        _require(1 <= self.copies <= self.routes, "copies", self.copies, f"1 to routes={self.routes}")
        _require(1 <= self.device_bits <= 10, "device_bits", self.device_bits, "1 to 10")
        _require(_is_power_of_two(self.engines) and self.engines <= 8, "engines", self.engines,
                 "1, 2, 4 or 8")
        _require(2 <= self.ready_commands <= 65535, "ready_commands", self.ready_commands, "2 to 65535")
        _require(2 * self.engines <= self.outstanding_lines <= 65535, "outstanding_lines", self.outstanding_lines,
                 f"2 x engines={2 * self.engines} to 65535")
        _require(1 <= self.egress_lanes <= 8, "egress_lanes", self.egress_lanes, "1 to 8")
        _require(self.queue_commands in (0, *(1 << bit for bit in range(1, 13))), "queue_commands", self.queue_commands,
                 "0, or a power of two from 2 to 4096")
        _require(self.ready_groups in (0, *(1 << bit for bit in range(1, 13))), "ready_groups", self.ready_groups,
                 "0, or a power of two from 2 to 4096")
        _require(1 <= self.peers <= 31, "peers", self.peers, "1 to 31")

    @property
    def region_bits(self) -> int:
        return bits_for(self.regions)


@dataclass(frozen=True)
class SwitchGeometry:
    """The switch between GPUs: 128 sets of 5 ways are 40 KB of sums per port, as in CAIS (HPCA 2026)."""

    ports: int = 8  #: GPUs, each with its own merge table
    packet_bytes: int = 64  #: data of one packet, all of one line
    merge_sets: int = 128  #: indexed by the low bits of the line's number
    merge_ways: int = 5  #: sums of a set that can be open at once
    part_bits: int = 7  #: parts of a sum, up to one less than 2^part_bits
    buffer_packets: int = 256  #: places at each end of a link, and its credits: they cover a round trip

    def __post_init__(self) -> None:
        _require_integers(self)
        _require(2 <= self.ports <= 72, "ports", self.ports, "2 to 72")
        _require(_is_power_of_two(self.packet_bytes) and 4 <= self.packet_bytes <= 128, "packet_bytes",
                 self.packet_bytes, "a power of two from 4 to 128 is needed")
        _require(_is_power_of_two(self.merge_sets) and self.merge_sets <= 65536, "merge_sets", self.merge_sets,
                 "a power of two up to 65536 is needed")
        _require(1 <= self.merge_ways <= 16, "merge_ways", self.merge_ways, "1 to 16")
        _require(1 <= self.part_bits <= 8, "part_bits", self.part_bits, "1 to 8")
        _require(2 <= self.buffer_packets <= 4096, "buffer_packets", self.buffer_packets, "2 to 4096")

    @property
    def packet_shift(self) -> int:
        """log2 of the bytes of a packet."""
        return (self.packet_bytes - 1).bit_length()

    @property
    def merge_set_bits(self) -> int:
        """log2 of the sets."""
        return (self.merge_sets - 1).bit_length()

    @property
    def merge_bytes(self) -> int:
        """Bytes of sums in a port's table."""
        return self.merge_sets * self.merge_ways * self.packet_bytes

    @property
    def latency_cycles(self) -> int:
        """Return the cycles from a part's arrival to its sum's departure without contention.

        Stages: input queue, row read, sum read, five adder stages, output queue, departure.
        """
        return 10


@dataclass(frozen=True)
class Geometry:
    """One GPU's Track & Trigger hardware, and the switch that it may be connected to."""

    tracker: TrackerGeometry = field(default_factory=TrackerGeometry)
    channel: ChannelGeometry = field(default_factory=ChannelGeometry)
    dma: DmaGeometry = field(default_factory=DmaGeometry)
    switch: SwitchGeometry = field(default_factory=SwitchGeometry)

    def __post_init__(self) -> None:
        channel, address_bits = self.channel, self.tracker.address_bits
        _require(channel.channels * channel.interleave_bytes <= 1 << address_bits, "interleave_bytes",
                 channel.interleave_bytes, f"each of channels={channel.channels} needs that many of the bytes of "
                 f"address_bits={address_bits}")
        ids = 1 << self.tracker.wg_bits
        _require(self.dma.ready_groups < ids, "ready_groups", self.dma.ready_groups,
                 f"less than the {ids} ids of wg_bits={self.tracker.wg_bits}")

    @property
    def most_parts(self) -> int:
        """Largest number of parts of a sum in a switch: one per source, and countable in packets."""
        parts = min(self.switch.ports, (1 << self.switch.part_bits) - 1)
        return min(parts, 1 << self.channel.more_bits) if self.channel.more_bits else parts

    @property
    def block_bits(self) -> tuple[int, int]:
        """Widths of a DMA block's bytes per column, and of its number of columns.

        Tiles of a Tracker with wider counts are larger: for every 8 bits of `count_bits` beyond 16 both are 1 bit
        wider, as far as they fit into one register with the number of tiles.
        """
        wider = min(max(0, self.tracker.count_bits - 16) // 8, (8 - self.tracker.wf_bits) // 2)
        return 13 + wider, 10 + wider
