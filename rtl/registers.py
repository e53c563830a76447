"""The register map: one table for the bus decoder, the driver and the documentation.

Plain Python. Offsets are fixed byte offsets; field widths follow the geometry. A 64-bit quantity is a pair of
registers, `_LO` first.
"""

from dataclasses import dataclass

from t3sim.rtl import arbiter
from t3sim.rtl.check_bits import PROTECTIONS
from t3sim.rtl.formats import NUMBERS, PLAIN_SUMS, SUM_BITS, SUMS
from t3sim.rtl.geometry import Geometry, bits_for

IDENTITY = 0x54335454  #: "T3TT"
VERSION = 0x0004_0000  #: major in the upper half, minor in the lower

EPOCH_BITS = 8  #: of a kernel's number, never 0
ARRIVAL_RANGES = 2
WATCHDOG_PERIOD = 256  #: cycles
WATCHDOG_LIMIT_BITS = 16
READY_COUNT_BITS = 12  #: of a counter of the ready table
POLL_PERIOD = 16  #: least cycles between two reads of a poll

SPACE_BYTES = 0x400  #: of the fixed registers, and of each table

POLICIES = {policy.name: policy.code for policy in arbiter.POLICIES.values()}  #: codes of `t3sim.rtl.arbiter.POLICIES`

REGION_ACTIONS = ("send_stores", "send_dma", "event")  #: one-bit fields; with none of them a region is not mapped

OPERATIONS = {"store": 0, "update": 1}  #: ROUTE_TO.operation
#: As `t3sim.rtl.layouts.ErrorCode`; a test compares the two.
ERRORS = {"none": 0, "region_unconfigured": 1, "threshold_exceeded": 2, "id_reused": 3,
          "address_out_of_range": 4, "completion_unexpected": 5, "tracker_memory": 6, "arrival_refused": 7,
          "tracker_full": 8, "region_mismatch": 9, "watchdog": 10, "head_refused": 11, "restart_refused": 12,
          "reset_forced": 13, "data_unexpected": 14, "command_unknown": 15, "word_misaligned": 16,
          "word_out_of_range": 17, "doorbell_refused": 18, "sum_unknown": 19, "line_unexpected": 20,
          "store_refused": 21}
FAULTS = {"none": 0, "corrected": 1, "uncorrectable": 2}  #: TRACKER_FAULT.kind
NO_THRESHOLD = arbiter.THRESHOLD_NONE  #: more than any DRAM queue: communication is never held back

#: In the order of the bits of STATUS.
STATUS_BITS = (
    ("tracker_busy", "an update is in the update network or the Tracker's pipeline, or memory is being cleared"),
    ("tracker_occupied", "at least one tile is partly updated"),
    ("dma_table_busy", "a trigger or a ready command waits for an engine"),
    ("engines_busy", "an address generator or the line router has a command or a line"),
    ("egress_busy", "a line is in an egress lane"),
    ("channels_busy", "a request or an access waits in a memory channel"),
    ("dispatch_blocked", "the next request for a workgroup waits for a window, here or at a peer"),
    ("drain", "the producer kernel has ended; communication drains"),
    ("monitor_done", "the intensity monitor has chosen a threshold"),
    ("merge_busy", "a trigger waits for the DMA table or the event stream"),
    ("events_busy", "an event waits to be taken"),
    ("window_open", "ids are open, requests wait for the window, or its memory is being cleared"),
    ("reads_outstanding", "data of DMA reads have not left"),
    ("resetting", "a soft reset is in progress"),
    ("reset_done", "a soft reset is done; nothing is tracked or sent until a restart"),
    ("heads_busy", "the dispatch window's head is still due to a GPU that sends to this one"),
    ("queue_busy", "a command in memory is not done"),
    ("queue_halted", "a command in memory failed; nothing begins until CONTROL.resume_queue or skip_command"),
    ("lines_owed", "a line that the command queue requested, even before a soft reset, has not arrived"),
    ("channels_hold", "a tracked write, an update or a DMA read waits in a memory channel"),
    ("copy_failed", "the failed command in memory is a copy; only CONTROL.skip_command continues"),
)

#: A soft reset waits for RESET_ENDS and clears the others. A restart is accepted only without all of them, so nothing
#: of a kernel can count for the next one.
RESET_ENDS = ("channels_hold", "reads_outstanding", "egress_busy")
KERNEL_INSIDE = (*RESET_ENDS, "tracker_busy", "tracker_occupied", "merge_busy", "events_busy", "dma_table_busy",
                 "engines_busy")

#: Waiting places, in the order of the bits of WATCHDOG_WAITS.
WAITS = (
    ("tiles", "tiles lack bytes, from compute units here or from a peer"),
    ("updates", "an update waits for the Tracker, or a trigger for the merge"),
    ("triggers", "a trigger waits for the DMA table or the event stream"),
    ("events", "an event waits to be taken"),
    ("commands", "a DMA command waits for an engine"),
    ("engines", "a DMA engine has not requested all lines of its command"),
    ("room", "a DMA engine has all its outstanding lines and waits for data to leave"),
    ("lines", "a DMA read waits for its channel"),
    ("guard", "a DMA read waits until DRAM has performed an older write"),
    ("channels", "a tracked write, an update or a DMA read waits in a channel"),
    ("dram", "a channel with a tracked write or a DMA read waits for its DRAM queue"),
    ("data", "data of DMA reads have not arrived, or not left"),
    ("link", "a packet waits for the link"),
    ("window", "the next workgroup waits for the oldest unfinished id here"),
    ("peer", "the next workgroup waits for the oldest unfinished id of a peer, or for the peer's restart"),
    ("start", "a workgroup may start, but the dispatcher does not start it"),
    ("workgroups", "ids are open, or requests for workgroups wait"),
    ("fetch", "the command queue waits for a command's line, or a line from before a soft reset is outstanding"),
    ("poll", "a command in memory polls, and its value is not there"),
    ("signal", "a word written by the command queue waits to be taken"),
)

#: 32-bit counters, modulo 2**32, cleared by CONTROL.clear_counters.
COUNTERS = (
    ("updates", "updates that the Tracker accepted"),
    ("triggers", "tiles that reached their threshold"),
    ("commands", "DMA commands that an engine accepted"),
    ("lines", "lines that the DMA engines issued"),
    ("packets", "packets that left towards the link"),
    ("guard_stall", "cycles, summed over channels, in which a DMA read waited for an older update of its address"),
    ("coalesced", "tracked accesses that were merged with another one before the Tracker"),
    ("set_full", "updates refused because their Tracker set had no free way"),
    ("ready_high_water", "largest number of commands that waited for an engine"),
    ("errors", "errors reported by blocks, latched or not"),
    ("arrivals_refused", "unlawful arrivals, which were dropped"),
)

#: Only with protected Tracker memories.
PROTECTION_COUNTERS = (
    ("tracker_corrected", "corrected flips in a row's tags or in an entry, when an update met them"),
    ("tracker_uncorrectable", "the same for flips that could only be detected"),
)


@dataclass(frozen=True)
class Field:
    """Bits of a register. A field of width 0 does not exist in this geometry."""

    name: str
    lsb: int
    width: int
    description: str
    reset: int = 0

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1

    def encode(self, value: int) -> int:
        return (value & self.mask) << self.lsb

    def decode(self, word: int) -> int:
        return (word >> self.lsb) & self.mask


@dataclass(frozen=True)
class Register:
    """One 32-bit register. Access: rw, ro, or w1 (a pulse per bit written as 1; reads as 0)."""

    name: str
    offset: int
    access: str
    fields: tuple
    description: str = ""

    @property
    def reset(self) -> int:
        return sum(field.encode(field.reset) for field in self.fields)

    def field(self, name: str) -> Field:
        for field in self.fields:
            if field.name == name:
                return field
        raise KeyError(f"{self.name} has no field {name!r}")


def _halves(name: str, offset: int, access: str, width: int, description: str) -> list:
    """Return the register pair of a quantity of up to 64 bits; fields have its name in lower case."""
    low, high = min(width, 32), max(width - 32, 0)
    return [Register(f"{name}_LO", offset, access, (Field(name.lower() + "_lo", 0, low, f"{description}; low word"),)),
            Register(f"{name}_HI", offset + 4, access,
                     (Field(name.lower() + "_hi", 0, high, f"{description}; high word"),))]


@dataclass(frozen=True)
class Table:
    """Registers of each entry of a table; their offsets are relative to the entry's."""

    name: str
    base: int
    stride: int
    entries: int
    registers: tuple
    description: str

    def offset(self, entry: int) -> int:
        return self.base + entry * self.stride


@dataclass(frozen=True)
class RegisterMap:
    fixed: tuple
    tables: tuple

    @property
    def address_bits(self) -> int:
        return (SPACE_BYTES * (1 + len(self.tables)) - 1).bit_length()

    def __getitem__(self, name: str) -> Register:
        for register in (*self.fixed, *(one for table in self.tables for one in table.registers)):
            if register.name == name:
                return register
        raise KeyError(f"no register {name!r}")

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)

    def all_registers(self):
        """Yield (absolute offset, register, (table name, entry) or None), lowest offset first."""
        for register in self.fixed:
            yield register.offset, register, None
        for table in self.tables:
            for entry in range(table.entries):
                for register in table.registers:
                    yield table.offset(entry) + register.offset, register, (table.name, entry)


def counters(geometry: Geometry) -> tuple[tuple[str, str], ...]:
    """Return (name, description) of every counter, in register order."""
    return COUNTERS + (() if geometry.tracker.protection == "none" else PROTECTION_COUNTERS)


def safe_window(geometry: Geometry) -> int:
    """Return the reset value of WINDOW: ids that can be open if each has the largest number of tiles.

    That number is the wavefront ids, or the ways if there are fewer, because a larger workgroup never fits. A driver
    that knows the kernel's tiles per workgroup may allow more.
    """
    tracker = geometry.tracker
    return min(tracker.sets * max(1, tracker.ways >> tracker.wf_bits), tracker.window_slots)


def ready_shift_bits(geometry: Geometry) -> int:
    """Width of the log2 of a ready table group's ids."""
    return geometry.tracker.wg_bits.bit_length()


def register_map(geometry: Geometry) -> RegisterMap:
    t, c, d = geometry.tracker, geometry.channel, geometry.dma
    row_bits, column_bits = geometry.block_bits
    window_bits = t.wg_bits + 1
    status = tuple(Field(name, bit, 1, text) for bit, (name, text) in enumerate(STATUS_BITS))
    fixed = [
        Register("ID", 0x000, "ro", (Field("id", 0, 32, 'the characters "T3TT"', IDENTITY),)),
        Register("VERSION", 0x004, "ro", (Field("version", 0, 32, "major and minor, 16 bits each", VERSION),)),
        Register("GEOMETRY0", 0x008, "ro", (
            Field("set_bits", 0, 8, "log2 of the Tracker's sets", t.set_bits),
            Field("ways", 8, 8, "ways per set", t.ways),
            Field("bank_bits", 16, 8, "log2 of the Tracker's banks", t.bank_bits),
            Field("channels", 24, 8, "memory channels", c.channels))),
        Register("GEOMETRY1", 0x00C, "ro", (
            Field("regions", 0, 8, "entries of the table of regions", d.regions),
            Field("engines", 8, 8, "DMA engines", d.engines),
            Field("egress_lanes", 16, 8, "egress lanes", d.egress_lanes),
            Field("queue_entries", 24, 8, "DRAM queue entries per channel", c.queue_entries))),
        Register("CONTROL", 0x010, "w1", (
            Field("soft_reset", 0, 1, "finish outstanding work, clear all tracking, and wait for a restart"),
            Field("restart", 1, 1, "begin a kernel: ids count from 0, the monitor measures again. Refused with an "
                  "error unless EPOCH follows, no soft reset is in progress, and these of STATUS are 0: "
                  + ", ".join(KERNEL_INSIDE)),
            Field("clear_error", 2, 1, "clear the first error"),
            Field("clear_counters", 3, 1, "set all counters to 0"),
            Field("resume_queue", 4, int(d.queue_commands != 0),
                  "the command queue continues with the refused command, which it reads again; after a failed copy "
                  "it has no effect"),
            Field("skip_command", 5, int(d.queue_commands != 0),
                  "the command queue continues without the failed command"))),
        Register("POLICY", 0x014, "rw", (
            Field("policy", 0, arbiter.POLICY_BITS, "arbiter: " + ", ".join(
                f"{policy.code} {policy.title}" for policy in arbiter.POLICIES.values()), POLICIES["mca"]),
            Field("auto_threshold", 4, 1, "1: MCA's threshold comes from the intensity monitor", 1))),
        Register("THRESHOLD", 0x018, "rw", (
            Field("threshold", 0, 7, "occupancy at which MCA holds communication back (auto_threshold 0); 0 counts as "
                  "1; 127: none", NO_THRESHOLD),)),
        Register("STARVATION_LIMIT", 0x01C, "rw", (
            Field("starvation_limit", 0, 16, "cycles since the last grant to communication after which MCA gives it "
                  "priority; 0: never"),)),
        Register("MONITOR", 0x020, "rw", (
            Field("breakpoint0", 0, 8, "below this mean occupancy, in quarter entries: no threshold", 16),
            Field("breakpoint1", 8, 8, "below this mean: threshold 15", 64),
            Field("breakpoint2", 16, 8, "below this mean: threshold 5; otherwise 3", 128),
            Field("least_samples", 24, 8, "least samples, in units of 64, before communication ends the phase", 64))),
        Register("CHOSEN_THRESHOLD", 0x024, "ro", (
            Field("chosen_threshold", 0, 7, "the intensity monitor's choice; 127: none"),)),
        Register("MONITOR_MEAN", 0x028, "ro", (
            Field("monitor_mean", 0, 16, "the mean occupancy of the choice, in quarter entries"),)),
        Register("GEOMETRY2", 0x02C, "ro", (
            Field("wg_bits", 0, 8, "width of a workgroup id", t.wg_bits),
            Field("wf_bits", 8, 8, "width of a wavefront id", t.wf_bits),
            Field("address_bits", 16, 8, "width of an address", t.address_bits),
            Field("count_bits", 24, 8, "width of a threshold", t.count_bits))),
        Register("GEOMETRY3", 0x060, "ro", (
            Field("ready_commands", 0, 16, "DMA commands that may wait for an engine", d.ready_commands),
            Field("outstanding_lines", 16, 16, "most lines read but not yet on the link", d.outstanding_lines))),
        Register("GEOMETRY4", 0x064, "ro", (
            Field("device_bits", 0, 4, "width of a device number", d.device_bits),
            Field("interleave_log2", 4, 5, "log2 of the consecutive bytes that stay on a channel",
                  bits_for(c.interleave_bytes)),
            Field("guard_log2", 9, 4, "log2 of the order guard's buckets", (c.guard_buckets - 1).bit_length()),
            Field("dma_fifo", 13, 7, "DMA reads that may wait at a channel", c.dma_fifo),
            Field("request_bytes", 20, 8, "bytes of a line", c.request_bytes),
            Field("more_bits", 28, 3, "width of a packet's number of parts beyond the first", c.more_bits))),
        Register("GEOMETRY5", 0x068, "ro", (
            Field("coalescer_timeout_cycles", 0, 8, "cycles for which an update waits for a neighbour",
                  c.coalescer_timeout_cycles),
            Field("sample_bits", 8, 6, "log2 of the most samples for MCA's threshold", c.sample_bits),
            Field("queue_log2", 14, 4, "log2 of the command queue's places; 0: no queue",
                  d.queue_commands.bit_length() - (d.queue_commands != 0)),
            Field("ready_log2", 18, 4, "log2 of the ready table's groups; 0: no table",
                  d.ready_groups.bit_length() - (d.ready_groups != 0)),
            Field("peers", 22, 5, "GPUs whose windows a workgroup must fit into", d.peers),
            Field("protection", 27, 2, "of the Tracker's memories: 0 none, 1 parity, 2 SECDED",
                  PROTECTIONS.index(t.protection)),
            Field("wide_sums", 29, 1, "1: memory has the further sums of GEOMETRY7",
                  int(bool(c.wide_sums))))),
        *([] if not c.wide_sums else [Register("GEOMETRY7", 0x034, "ro", (
            Field("sums", 0, 1 << SUM_BITS, "sums of memory: a bit for each number of REGION_ACTIONS.sum",
                  sum(1 << NUMBERS[one.name] for one in (*PLAIN_SUMS, *c.wide_sums))),))]),
        Register("GEOMETRY6", 0x05C, "ro", (
            Field("block_shapes", 0, 7, "entries of the block table", d.block_shapes),
            Field("buffers", 8, 7, "entries of the buffer table", d.buffers),
            Field("routes", 16, 7, "entries of the route table", d.routes),
            Field("copies", 24, 7, "largest number of routes of a region", d.copies))),
        Register("DEVICE", 0x07C, "rw", (
            Field("device_number", 0, d.device_bits, "this GPU's number, which names its head to others"),)),
        Register("WINDOW", 0x030, "rw", (
            Field("window", 0, window_bits, "ids that may be open at once", safe_window(geometry)),
            Field("tiles", 25, t.wf_bits + 1, "largest number of wavefront tiles of a workgroup; arrivals for another "
                  "one are refused", 1 << t.wf_bits))),
        Register("STATUS", 0x03C, "ro", status + (
            Field("error_overflow", 30, 1, "another error was reported since the latched one"),
            Field("error", 31, 1, "an error is latched"))),
        Register("ERROR_CODE", 0x040, "ro", (Field("error_code", 0, 5, "the first error; 0: none"),)),
        Register("ERROR_TILE", 0x044, "ro", (
            Field("error_wf", 0, t.wf_bits, "its wavefront"),
            Field("error_region", 8, d.region_bits, "its region"))),
        Register("ERROR_WG", 0x048, "ro", (Field("error_wg", 0, t.wg_bits, "its workgroup"),)),
        Register("STAGE", 0x04C, "rw", (
            Field("stage", 0, window_bits, "workgroups that run at once. For ring-aware arbitration the ring is late "
                  "when more than this number have started since no DMA command waited", safe_window(geometry)),)),
        Register("RESET_QUIET", 0x06C, "rw", (
            Field("quiet_cycles", 0, 16, "a soft reset clears after this many cycles without an arrival: at least 16, "
                  "and more than the link's latency", 1024),
            Field("reset_limit", 16, WATCHDOG_LIMIT_BITS, f"a soft reset that still waits after this many "
                  f"periods of {WATCHDOG_PERIOD} cycles clears everything and reports an error; 0: never", 4096))),
        Register("EPOCH", 0x070, "rw", (
            Field("epoch", 0, EPOCH_BITS, "number of the kernel that the next restart begins, equal on all GPUs: a "
                  "workgroup that stores to a peer starts only after the peer's restart. Counts from 1 to 255 and on "
                  "from 1; must follow the previous kernel's number"),)),
        Register("WATCHDOG", 0x074, "rw", (
            Field("watchdog_limit", 0, WATCHDOG_LIMIT_BITS, f"the watchdog's error after this many periods of "
                  f"{WATCHDOG_PERIOD} cycles in which something waits and no T3 traffic moves; 0: never. Must exceed "
                  "the time to clear memories, RESET_QUIET, and a workgroup's computing time"),)),
        Register("WATCHDOG_WAITS", 0x078, "ro", tuple(
            Field(f"waits_{name}", bit, 1, text) for bit, (name, text) in enumerate(WAITS)),
                 "places that waited at the watchdog's report; cleared by clear_error"),
        *_halves("ERROR_ADDRESS", 0x050, "ro", t.address_bits, "its address"),
        *(register for i in range(ARRIVAL_RANGES) for register in (
            *_halves(f"ARRIVALS{i}_BASE", 0x0C0 + 16 * i, "rw", t.address_bits,
                     f"first byte of range {i} that peers may write, in whole lines"),
            *_halves(f"ARRIVALS{i}_LAST", 0x0C8 + 16 * i, "rw", t.address_bits, "its last byte"))),
        *(Register(f"PEER{i}", 0x200 + 4 * i, "rw", (
            Field(f"peer{i}_heard", 0, d.device_bits, f"number of the GPU that is peer {i} of the dispatch window"),
            Field(f"peer{i}_told", 16, d.device_bits, "number of a GPU that sends to this one"),
            Field(f"peer{i}_telling", 31, 1, f"1: this GPU's head is reported to peer{i}_told")))
          for i in range(d.peers)),
        *([] if not d.queue_commands else [
            *_halves("QUEUE_BASE", 0x100, "rw", t.address_bits,
                     "first byte of the command queue, a multiple of its bytes"),
            Register("DOORBELL", 0x108, "rw", (
                Field("doorbell", 0, d.queue_commands.bit_length(), "commands written since the soft reset (which "
                      "clears it), modulo twice the places"),)),
            Register("QUEUE_TAKEN", 0x10C, "ro", (
                Field("queue_taken", 0, d.queue_commands.bit_length(), "commands done, modulo twice the places"),)),
            *_halves("QUEUE_WORDS_BASE", 0x118, "rw", t.address_bits,
                     "first byte that commands may poll and write, in whole lines"),
            *_halves("QUEUE_WORDS_LIMIT", 0x120, "rw", t.address_bits, "one past the last byte")]),
        *([] if not d.ready_groups else [Register("READY", 0x110, "rw", (
            Field("ready_shift", 0, ready_shift_bits(geometry), "log2 of the ids of a ready table group; must be "
                  "written before a restart"),))]),
        *(Register(f"COUNT_{name.upper()}", 0x080 + 4 * i, "ro", (Field(f"count_{name}", 0, 32, text),))
          for i, (name, text) in enumerate(counters(geometry))),
    ]
    if t.protection != "none":
        fixed.append(Register("TRACKER_FAULT", 0x058, "ro", (
            Field("fault_set", 0, t.set_bits, "set of the Tracker's first flipped bit; cleared by clear_error"),
            Field("fault_in_entry", 23, 1, "1: in the entry; 0: in its tag"),
            Field("fault_way", 24, bits_for(t.ways), "its way, the lowest of several"),
            Field("fault_kind", 30, 2, "0 none; 1 corrected; 2 uncorrectable, which replaces a corrected one"))))
    region = [
        Register("REGION_ACTIONS", 0x00, "rw", (
            Field("send_stores", 0, 1, "compute units' stores leave on the routes"),
            Field("send_dma", 1, 1, "tiles are tracked; DMA sends complete blocks on the routes"),
            Field("event", 2, 1, "tiles are tracked; complete ones raise an event. Write this register last: with "
                                 "any of the three the region is mapped"),
            Field("arrivals", 4, ARRIVAL_RANGES,
                  "bit i: peers may write into range ARRIVALSi under this region, if its tiles are tracked"),
            Field("family", 8, d.region_bits,
                  "number of the region that arrivals for its tiles name; equal in all regions of one tile's updates"),
            *(() if not c.wide_sums else (
                Field("sum", 16, SUM_BITS,
                      "sum of peers' updates (compute units here store fp32 or, for a sum "
                      "in one format, that format): "
                      + ", ".join(f"{number} {one.name}" for number, one in enumerate(SUMS))
                      + ". A sum that this hardware lacks is an error and is not written"),
                Field("narrow", 20, 1, "1: DMA sends sums in the 8 bits of arriving elements; 0: in 16 bits, or all"),
                Field("saturate", 21, 1, "1: a sum too large for 8 bits becomes the largest number"),
                Field("scale", 24, 8, "scale of a fixed point's unit, e8m0"))))),
        Register("REGION_THRESHOLD", 0x04, "rw", (
            Field("threshold", 0, t.count_bits, "bytes of a tile x updates per element"),)),
        Register("REGION_USES", 0x08, "rw", (
            Field("block", 0, bits_for(d.block_shapes), "shape of its blocks: index into the block table"),
            Field("buffer", 8, bits_for(d.buffers), "range that DMA may read: index into the buffer table"),
            Field("route", 16, bits_for(d.routes), "first index into the route table"),
            Field("more_routes", 24, (d.copies - 1).bit_length(), "further routes, which follow the first"))),
    ]
    block = [
        Register("BLOCK_SHAPE", 0x00, "rw", (
            Field("row_bytes", 0, row_bits, "contiguous bytes of one column of a block"),
            Field("columns", row_bits, column_bits, "columns of a block"),
            Field("tiles_per_block", row_bits + column_bits, t.wf_bits + 1,
                  "wavefront tiles of one block: a power of two"))),
        Register("BLOCK_PITCH", 0x04, "rw", (
            Field("pitch_bytes", 0, 32, "bytes from one column to the next"),)),
    ]
    buffer = [
        *_halves("BASE", 0x00, "rw", t.address_bits, "first byte that DMA may read"),
        *_halves("LIMIT", 0x08, "rw", t.address_bits, "one past the last byte"),
    ]
    route = [
        Register("ROUTE_TO", 0x00, "rw", (
            Field("device", 0, d.device_bits, "destination device"),
            Field("destination_region", 16, d.region_bits, "region there"),
            Field("operation", 24, 1, "0: store; 1: update"))),
        Register("ROUTE_WG", 0x04, "rw", (
            Field("wg_offset", 0, t.wg_bits, "added to the workgroup id, modulo its width"),)),
        *_halves("ADDRESS_OFFSET", 0x08, "rw", t.address_bits, "added to the address, modulo its width"),
    ]
    tables = (("region", 0x10, d.regions, region, "treatment of a region's tiles"),
              ("block", 0x08, d.block_shapes, block, "shapes of DMA blocks"),
              ("buffer", 0x10, d.buffers, buffer, "ranges that DMA may read"),
              ("route", 0x10, d.routes, route, "destination of lines, with their region and operation there"))
    return RegisterMap(tuple(sorted(fixed, key=lambda r: r.offset)), tuple(
        Table(name, SPACE_BYTES * number, stride, entries, tuple(registers), text)
        for number, (name, stride, entries, registers, text) in enumerate(tables, start=1)))


#: Events of all ports of a switch.
SWITCH_COUNTERS = (
    ("arrived", "packets that arrived with a credit"),
    ("left", "packets that left"),
    ("begun", "parts that began a sum that is kept"),
    ("joined", "parts that were added to a sum that lacked others"),
    ("completed", "parts that completed their sum"),
    ("refused", "parts that were refused and dropped"),
    ("evicted", "sums that made room for others"),
    ("expired", "sums that left because no part arrived for long, or because their kernel is over"),
    ("dropped", "packets of a kernel that is over, or of none, which were dropped"),
)
#: As `t3sim.rtl.switch.packets.SwitchError`; a test compares the two.
SWITCH_ERRORS = {"none": 0, "overrun": 1, "nowhere": 2, "refused": 3, "repeated": 4, "stale": 5, "excess": 6,
                 "setting": 7}
SWITCH_IDENTITY = 0x54335357  #: "T3SW"
SWITCH_TIMEOUT_BITS = 16


def switch_registers(geometry: Geometry) -> RegisterMap:
    switch, port_bits = geometry.switch, bits_for(geometry.switch.ports)
    fixed = [
        Register("ID", 0x000, "ro", (Field("id", 0, 32, 'the characters "T3SW"', SWITCH_IDENTITY),)),
        Register("VERSION", 0x004, "ro", (Field("version", 0, 32, "major and minor, 16 bits each", VERSION),)),
        Register("GEOMETRY", 0x008, "ro", (
            Field("ports", 0, 8, "GPUs", switch.ports),
            Field("set_bits", 8, 8, "log2 of the sets of a port's table", switch.merge_set_bits),
            Field("ways", 16, 8, "sums of a set", switch.merge_ways),
            Field("most_parts", 24, 8, "parts that a sum can have", geometry.most_parts))),
        Register("CONTROL", 0x010, "w1", (
            Field("clear_error", 0, 1, "clear the first error"),
            Field("clear_counters", 1, 1, "set all counters to 0"))),
        Register("EPOCH", 0x014, "rw", (
            Field("epoch", 0, EPOCH_BITS, "number of the oldest kernel that is not over. Packets of earlier kernels, "
                  "present or later, do not reach a GPU. 1 to 255, then 1 again; it does not go back. "
                  "After reset no kernel is over"),)),
        Register("WHOLE", 0x018, "rw", (
            Field("whole", 0, switch.part_bits, "parts of a sum, 1 to GEOMETRY.most_parts; write only while "
                  "STATUS.busy is 0", 1),)),
        Register("TIMEOUT", 0x01C, "rw", (
            Field("timeout", 0, SWITCH_TIMEOUT_BITS, "cycles from one set's check for overdue sums to the next set's, "
                  "at least 1. A sum without a new part between two checks of its set leaves",
                  (1 << SWITCH_TIMEOUT_BITS) - 1),)),
        Register("STATUS", 0x020, "ro", (
            Field("busy", 0, 1, "a packet or sum is inside, or a GPU has not returned a credit"),
            Field("starved", 1, 1, "a bit of STARVED is 1"),
            Field("error_overflow", 30, 1, "another error was reported since the latched one"),
            Field("error", 31, 1, "an error is latched"))),
        Register("ERROR", 0x024, "ro", (
            Field("error_code", 0, 4, "the first error: " + ", ".join(
                f"{code} {name}" for name, code in SWITCH_ERRORS.items())),
            Field("error_epoch", 8, EPOCH_BITS, "kernel of the packet"),
            Field("error_port", 16, port_bits, "port; of overrun and nowhere the sender's, else the output's"),
            Field("error_source", 24, port_bits, "source of the packet; 0 if unknown"))),
        *_halves("ERROR_ADDRESS", 0x028, "ro", geometry.tracker.address_bits,
                 "its address; for setting, the register's"),
        *(Register(f"COUNT_{name.upper()}", 0x040 + 4 * i, "ro", (Field(f"count_{name}", 0, 32, text),))
          for i, (name, text) in enumerate(SWITCH_COUNTERS)),
        *(Register(f"{name.upper()}{first // 32}", offset + first // 8, access, (
            Field(f"{name}{first // 32}", 0, min(32, switch.ports - first), text),))
          for name, offset, access, text in (
              ("starved", 0x080, "ro", ("ports whose next packet has waited for a credit of its GPU for at least "
                                        "TIMEOUT cycles; packets behind it wait as well, even for other GPUs")),
              ("restore", 0x0A0, "w1", ("ports that get all credits back, because their GPU's end of the link was "
                                        "reset alone and nothing is on its way between the two")))
          for first in range(0, switch.ports, 32)),
    ]
    return RegisterMap(tuple(fixed), ())
