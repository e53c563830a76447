"""The register map: one table from which the bus decoder, the driver and the documentation come.

Plain Python. Offsets are in bytes and fixed; field widths follow the geometry. A 64-bit quantity is a pair of
registers, `_LO` first.
"""

from dataclasses import dataclass

from t3sim.rtl import arbiter
from t3sim.rtl.check_bits import PROTECTIONS
from t3sim.rtl.formats import NUMBERS, PLAIN_SUMS, SUM_BITS, SUMS
from t3sim.rtl.geometry import Geometry, bits_for

IDENTITY = 0x54335454  #: "T3TT"
VERSION = 0x0004_0000  #: major in the upper half, minor in the lower

EPOCH_BITS = 8  #: of a kernel's number, which is never 0
ARRIVAL_RANGES = 2  #: ranges of memory that can be open to peers
WATCHDOG_PERIOD = 256  #: cycles, the unit of the watchdog's limit
WATCHDOG_LIMIT_BITS = 16
READY_COUNT_BITS = 12  #: of a counter of the ready table
POLL_PERIOD = 16  #: cycles from one look of a command in memory at a place to the next, at least

SPACE_BYTES = 0x400  #: of the registers that are there once, and of each table

POLICIES = {policy.name: policy.code for policy in arbiter.POLICIES.values()}  #: codes of `t3sim.rtl.arbiter.POLICIES`

REGION_ACTIONS = ("send_stores", "send_dma", "event")  #: fields of one bit; with none of them a region is not mapped

OPERATIONS = {"store": 0, "update": 1}  #: ROUTE_TO.operation
#: As `t3sim.rtl.layouts.ErrorCode`; a test compares the two.
ERRORS = {"none": 0, "region_unconfigured": 1, "threshold_exceeded": 2, "id_reused": 3,
          "address_out_of_range": 4, "completion_unexpected": 5, "tracker_memory": 6, "arrival_refused": 7,
          "tracker_full": 8, "region_mismatch": 9, "watchdog": 10, "head_refused": 11, "restart_refused": 12,
          "reset_forced": 13, "data_unexpected": 14, "command_unknown": 15, "word_misaligned": 16,
          "word_out_of_range": 17, "doorbell_refused": 18, "sum_unknown": 19, "line_unexpected": 20,
          "store_refused": 21}
FAULTS = {"none": 0, "corrected": 1, "uncorrectable": 2}  #: TRACKER_FAULT.kind
NO_THRESHOLD = arbiter.THRESHOLD_NONE  #: an occupancy that no DRAM queue reaches: communication is never held back

#: Blocks that report themselves busy, and other levels, in the order of their STATUS bits.
STATUS_BITS = (
    ("tracker_busy", "an update is in the update network or in the Tracker's pipeline, or memory is being cleared"),
    ("tracker_occupied", "at least one tile is partly updated"),
    ("dma_table_busy", "a trigger or a ready command waits for an engine"),
    ("engines_busy", "an address generator or the line router works on a command"),
    ("egress_busy", "a line is on its way through an egress lane"),
    ("channels_busy", "a request or an access waits in a memory channel"),
    ("dispatch_blocked", "the next request for a workgroup waits for a window to move, here or at a peer"),
    ("drain", "the producer kernel has ended; communication drains"),
    ("monitor_done", "the intensity monitor has chosen a threshold"),
    ("merge_busy", "a trigger waits for the DMA table or the event stream"),
    ("events_busy", "an event waits to be taken"),
    ("window_open", "ids are open, requests wait for the window, or its memory is being cleared"),
    ("reads_outstanding", "data that DMA has asked for have not left yet"),
    ("resetting", "a soft reset is not done yet"),
    ("reset_done", "a soft reset is done: nothing is tracked or sent until a restart"),
    ("heads_busy", "the head of the dispatch window is still due to one that sends to this GPU"),
    ("queue_busy", "a command in memory is not done"),
    ("queue_halted", "a command in memory failed: nothing is begun until CONTROL.resume_queue or skip_command"),
    ("lines_owed", "a line that the command queue has read, also before a soft reset, has not come"),
    ("channels_hold", "a tracked write, an update or a DMA read waits in a memory channel"),
    ("copy_failed", "the command in memory that failed is a copy: only CONTROL.skip_command goes on"),
)

#: Of these a soft reset lets come to an end what the first say, and forgets what the others say. With none of them
#: nothing of a kernel is inside that could count for the next one, so a restart is taken.
RESET_ENDS = ("channels_hold", "reads_outstanding", "egress_busy")
KERNEL_INSIDE = (*RESET_ENDS, "tracker_busy", "tracker_occupied", "merge_busy", "events_busy", "dma_table_busy",
                 "engines_busy")

#: What the watchdog names, in the order of the bits of WATCHDOG_WAITS.
WAITS = (
    ("tiles", "tiles lack bytes, from compute units here or from a peer"),
    ("updates", "an update waits for the Tracker, or a trigger of the Tracker for the merge"),
    ("triggers", "a trigger waits for the DMA table or the event stream"),
    ("events", "an event waits to be taken"),
    ("commands", "a DMA command waits for an engine"),
    ("engines", "a DMA engine has not asked for all lines of its command"),
    ("room", "a DMA engine waits for data to leave: it may not have more lines outstanding"),
    ("lines", "a line that DMA asks for waits for its channel"),
    ("guard", "a DMA read waits for an older write, which DRAM has not performed"),
    ("channels", "a tracked write, an update or a DMA read waits in a channel"),
    ("dram", "a channel that holds such a thing waits for its DRAM queue to take a request"),
    ("data", "data that DMA has asked for have not come, or not left"),
    ("link", "a packet waits for the link"),
    ("window", "the next workgroup waits for the oldest id here that is not finished"),
    ("peer", "the next workgroup waits for the oldest id of a peer that is not finished, or for its restart"),
    ("start", "a workgroup may start, and nobody starts it"),
    ("workgroups", "ids are open, or requests for workgroups wait"),
    ("fetch", "the command queue waits for a command's line, or one of before a soft reset has not come"),
    ("poll", "a command in memory polls, and what it waits for has not come"),
    ("signal", "a word that the command queue writes is not taken"),
)

#: 32-bit counters, modulo 2**32, cleared by CONTROL.clear_counters.
COUNTERS = (
    ("updates", "updates that the Tracker accepted"),
    ("triggers", "tiles that reached their threshold"),
    ("commands", "DMA commands that an engine accepted"),
    ("lines", "lines that the DMA engines issued"),
    ("packets", "packets that left towards the link"),
    ("guard_stall", "cycles, summed over channels, in which a DMA read waited for an older update of its address"),
    ("coalesced", "tracked accesses that joined another one on their way to the Tracker"),
    ("set_full", "updates that were refused because their set of the Tracker had no free way"),
    ("ready_high_water", "largest number of ready commands that waited for an engine"),
    ("errors", "errors that blocks have reported, latched or not"),
    ("arrivals_refused", "packets that arrived, were not lawful and were dropped"),
)

#: Further ones, of a Tracker with protected memories.
PROTECTION_COUNTERS = (
    ("tracker_corrected", "tags of a row, or entries, that an update met with a flipped bit and that were corrected"),
    ("tracker_uncorrectable", "the same, of bits that could only be detected"),
)


@dataclass(frozen=True)
class Field:
    """Some bits of a register. A field of width 0 does not exist in this geometry."""

    name: str
    lsb: int
    width: int
    description: str
    reset: int = 0

    @property
    def mask(self) -> int:
        return (1 << self.width) - 1

    def encode(self, value: int) -> int:
        """Return the field's contribution to the register's value."""
        return (value & self.mask) << self.lsb

    def decode(self, word: int) -> int:
        return (word >> self.lsb) & self.mask


@dataclass(frozen=True)
class Register:
    """One 32-bit register. Access: rw, ro, or w1 (a pulse per bit written as one; reads as zero)."""

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
    """Return the register pair of a quantity of up to 64 bits; the fields carry its name in lower case."""
    low, high = min(width, 32), max(width - 32, 0)
    return [Register(f"{name}_LO", offset, access, (Field(name.lower() + "_lo", 0, low, f"{description}; low word"),)),
            Register(f"{name}_HI", offset + 4, access,
                     (Field(name.lower() + "_hi", 0, high, f"{description}; high word"),))]


@dataclass(frozen=True)
class Table:
    """Registers that are there once per entry; their offsets are relative to the entry's."""

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
    """Every register of one geometry: `fixed`, and those of `tables`."""

    fixed: tuple
    tables: tuple

    @property
    def address_bits(self) -> int:
        """Width of the bus address."""
        return (SPACE_BYTES * (1 + len(self.tables)) - 1).bit_length()

    def __getitem__(self, name: str) -> Register:
        for register in (*self.fixed, *(one for table in self.tables for one in table.registers)):
            if register.name == name:
                return register
        raise KeyError(f"no register {name!r}")

    def table(self, name: str) -> Table:
        return next(table for table in self.tables if table.name == name)

    def all_registers(self):
        """Give (absolute offset, register, (table's name, entry) or None), lowest offset first."""
        for register in self.fixed:
            yield register.offset, register, None
        for table in self.tables:
            for entry in range(table.entries):
                for register in table.registers:
                    yield table.offset(entry) + register.offset, register, (table.name, entry)


def counters(geometry: Geometry) -> tuple[tuple[str, str], ...]:
    """Return (name, description) of every counter, in the order of their registers."""
    return COUNTERS + (() if geometry.tracker.protection == "none" else PROTECTION_COUNTERS)


def safe_window(geometry: Geometry) -> int:
    """Return how many workgroups may be open at once if each has as many wavefront tiles as there are ids.

    If there are fewer ways than ids, each has as many tiles as ways: a workgroup of more tiles than ways never fits.

    The reset value of WINDOW; a driver that knows the kernel's tiles per workgroup may allow more.
    """
    tracker = geometry.tracker
    return min(tracker.sets * max(1, tracker.ways >> tracker.wf_bits), tracker.window_slots)


def ready_shift_bits(geometry: Geometry) -> int:
    """Width of the log2 of the ids that a group of the ready table has."""
    return geometry.tracker.wg_bits.bit_length()


def register_map(geometry: Geometry) -> RegisterMap:
    """Build the register map of `geometry`."""
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
            Field("soft_reset", 0, 1, "let what is under way end, forget all that was tracked, wait for a restart"),
            Field("restart", 1, 1, "a new kernel: ids count from 0, the monitor measures again. Refused, which is an "
                  "error, unless EPOCH follows, a soft reset is done, and these of STATUS are 0: "
                  + ", ".join(KERNEL_INSIDE)),
            Field("clear_error", 2, 1, "forget the first error"),
            Field("clear_counters", 3, 1, "all counters to zero"),
            Field("resume_queue", 4, int(d.queue_commands != 0),
                  "the command queue goes on after a command was refused, and reads it again; after a copy that failed "
                  "it does not"),
            Field("skip_command", 5, int(d.queue_commands != 0),
                  "the command queue goes on after a failure, without the command that failed"))),
        Register("POLICY", 0x014, "rw", (
            Field("policy", 0, arbiter.POLICY_BITS, "arbiter: " + ", ".join(
                f"{policy.code} {policy.title}" for policy in arbiter.POLICIES.values()), POLICIES["mca"]),
            Field("auto_threshold", 4, 1, "1: MCA's threshold comes from the intensity monitor", 1))),
        Register("THRESHOLD", 0x018, "rw", (
            Field("threshold", 0, 7, "occupancy at which MCA holds communication back (auto_threshold 0); 0 counts as "
                  "1; 127: none", NO_THRESHOLD),)),
        Register("STARVATION_LIMIT", 0x01C, "rw", (
            Field("starvation_limit", 0, 16, "cycles since communication last went after which MCA lets it go first; "
                  "0: never"),)),
        Register("MONITOR", 0x020, "rw", (
            Field("breakpoint0", 0, 8, "mean occupancy, in quarter entries, below which there is no threshold", 16),
            Field("breakpoint1", 8, 8, "below this mean: threshold 15", 64),
            Field("breakpoint2", 16, 8, "below this mean: threshold 5; from it on: 3", 128),
            Field("least_samples", 24, 8, "samples, in units of 64, before communication ends the measurement", 64))),
        Register("CHOSEN_THRESHOLD", 0x024, "ro", (
            Field("chosen_threshold", 0, 7, "the intensity monitor's choice; 127: none"),)),
        Register("MONITOR_MEAN", 0x028, "ro", (
            Field("monitor_mean", 0, 16, "mean occupancy that the choice rests on, in quarter entries"),)),
        Register("GEOMETRY2", 0x02C, "ro", (
            Field("wg_bits", 0, 8, "width of a workgroup id", t.wg_bits),
            Field("wf_bits", 8, 8, "width of a wavefront id", t.wf_bits),
            Field("address_bits", 16, 8, "width of an address", t.address_bits),
            Field("count_bits", 24, 8, "width of a threshold", t.count_bits))),
        Register("GEOMETRY3", 0x060, "ro", (
            Field("ready_commands", 0, 16, "DMA commands that may wait for an engine", d.ready_commands),
            Field("outstanding_lines", 16, 16, "lines read and not yet on the link, at most", d.outstanding_lines))),
        Register("GEOMETRY4", 0x064, "ro", (
            Field("device_bits", 0, 4, "width of a device number", d.device_bits),
            Field("interleave_log2", 4, 5, "log2 of the consecutive bytes that stay on a channel",
                  bits_for(c.interleave_bytes)),
            Field("guard_log2", 9, 4, "log2 of the order guard's buckets", (c.guard_buckets - 1).bit_length()),
            Field("dma_fifo", 13, 7, "DMA reads that may wait at a channel", c.dma_fifo),
            Field("request_bytes", 20, 8, "bytes of a line", c.request_bytes),
            Field("more_bits", 28, 3, "width of the parts of a sum that a packet has beside the first", c.more_bits))),
        Register("GEOMETRY5", 0x068, "ro", (
            Field("coalescer_timeout_cycles", 0, 8, "cycles for which an update is held back for a neighbour",
                  c.coalescer_timeout_cycles),
            Field("sample_bits", 8, 6, "log2 of the samples that MCA's threshold rests on, at most", c.sample_bits),
            Field("queue_log2", 14, 4, "log2 of the places of a command queue in memory; 0: there is none",
                  d.queue_commands.bit_length() - (d.queue_commands != 0)),
            Field("ready_log2", 18, 4, "log2 of the groups of the ready table; 0: there is none",
                  d.ready_groups.bit_length() - (d.ready_groups != 0)),
            Field("peers", 22, 5, "GPUs whose windows a workgroup must fit into", d.peers),
            Field("protection", 27, 2, "of the Tracker's memories: 0 none, 1 parity, 2 SECDED",
                  PROTECTIONS.index(t.protection)),
            Field("wide_sums", 29, 1, "1: memory adds more than elements of one format, as GEOMETRY7 says",
                  int(bool(c.wide_sums))))),
        *([] if not c.wide_sums else [Register("GEOMETRY7", 0x034, "ro", (
            Field("sums", 0, 1 << SUM_BITS, "what memory adds: a bit for each number of REGION_ACTIONS.sum",
                  sum(1 << NUMBERS[one.name] for one in (*PLAIN_SUMS, *c.wide_sums))),))]),
        Register("GEOMETRY6", 0x05C, "ro", (
            Field("block_shapes", 0, 7, "entries of the table of blocks", d.block_shapes),
            Field("buffers", 8, 7, "of that of buffers", d.buffers),
            Field("routes", 16, 7, "of that of routes", d.routes),
            Field("copies", 24, 7, "routes of a region, at most", d.copies))),
        Register("DEVICE", 0x07C, "rw", (
            Field("device_number", 0, d.device_bits, "this GPU's number, under which others know its head"),)),
        Register("WINDOW", 0x030, "rw", (
            Field("window", 0, window_bits, "ids that may be open at once", safe_window(geometry)),
            Field("tiles", 25, t.wf_bits + 1, "wavefront tiles of a workgroup, at most: what arrives for another one "
                  "is refused", 1 << t.wf_bits))),
        Register("STATUS", 0x03C, "ro", status + (
            Field("error_overflow", 30, 1, "another error has come since the one that is latched"),
            Field("error", 31, 1, "an error is latched"))),
        Register("ERROR_CODE", 0x040, "ro", (Field("error_code", 0, 5, "the first error; 0: none"),)),
        Register("ERROR_TILE", 0x044, "ro", (
            Field("error_wf", 0, t.wf_bits, "its wavefront"),
            Field("error_region", 8, d.region_bits, "its region"))),
        Register("ERROR_WG", 0x048, "ro", (Field("error_wg", 0, t.wg_bits, "its workgroup"),)),
        Register("STAGE", 0x04C, "rw", (
            Field("stage", 0, window_bits, "workgroups that run at once: what the ring must get through in the time of "
                  "as many more", safe_window(geometry)),)),
        Register("RESET_QUIET", 0x06C, "rw", (
            Field("quiet_cycles", 0, 16, "cycles without an arrival, at least 16, after which a soft reset clears: "
                  "more than the link takes", 1024),
            Field("reset_limit", 16, WATCHDOG_LIMIT_BITS, f"periods of {WATCHDOG_PERIOD} cycles after which a soft "
                  "reset clears whatever it waits for, which is an error; 0: never", 4096))),
        Register("EPOCH", 0x070, "rw", (
            Field("epoch", 0, EPOCH_BITS, "number of the kernel that the next restart begins, the same on all devices: "
                  "what reaches a peer starts when that has restarted, too. 1 to 255 and then 1 again; it must follow "
                  "that of the kernel before"),)),
        Register("WATCHDOG", 0x074, "rw", (
            Field("watchdog_limit", 0, WATCHDOG_LIMIT_BITS, f"periods of {WATCHDOG_PERIOD} cycles in which nothing "
                  "of T3's moves and something waits, after which that is an error: more than memories are cleared, a "
                  "soft reset is quiet or a workgroup computes in; 0: never"),)),
        Register("WATCHDOG_WAITS", 0x078, "ro", tuple(
            Field(f"waits_{name}", bit, 1, text) for bit, (name, text) in enumerate(WAITS)),
                 "what waited when the watchdog reported; cleared by clear_error"),
        *_halves("ERROR_ADDRESS", 0x050, "ro", t.address_bits, "its address"),
        *(register for i in range(ARRIVAL_RANGES) for register in (
            *_halves(f"ARRIVALS{i}_BASE", 0x0C0 + 16 * i, "rw", t.address_bits,
                     f"first byte of range {i} that peers may write, in whole lines"),
            *_halves(f"ARRIVALS{i}_LAST", 0x0C8 + 16 * i, "rw", t.address_bits, "its last byte"))),
        *(Register(f"PEER{i}", 0x200 + 4 * i, "rw", (
            Field(f"peer{i}_heard", 0, d.device_bits, f"peer {i} of the dispatch window: whose head is heard"),
            Field(f"peer{i}_told", 16, d.device_bits, "a GPU that sends to this one: to whom the head is reported"),
            Field(f"peer{i}_telling", 31, 1, "1: it is reported")))
          for i in range(d.peers)),
        *([] if not d.queue_commands else [
            *_halves("QUEUE_BASE", 0x100, "rw", t.address_bits,
                     "first byte of the command queue, a multiple of its bytes"),
            Register("DOORBELL", 0x108, "rw", (
                Field("doorbell", 0, d.queue_commands.bit_length(), "commands written since the soft reset, which "
                      "clears it, modulo twice the places"),)),
            Register("QUEUE_TAKEN", 0x10C, "ro", (
                Field("queue_taken", 0, d.queue_commands.bit_length(), "commands done, modulo the same"),)),
            *_halves("QUEUE_WORDS_BASE", 0x118, "rw", t.address_bits,
                     "first byte that commands may poll and write, in whole lines"),
            *_halves("QUEUE_WORDS_LIMIT", 0x120, "rw", t.address_bits, "one past the last byte")]),
        *([] if not d.ready_groups else [Register("READY", 0x110, "rw", (
            Field("ready_shift", 0, ready_shift_bits(geometry), "log2 of the ids of a group of the ready table; is "
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
            Field("send_stores", 0, 1, "compute units' stores leave on the routes as they come"),
            Field("send_dma", 1, 1, "tiles are tracked; complete blocks are sent on the routes by DMA"),
            Field("event", 2, 1, "tiles are tracked; complete ones raise an event. The register is written last: with "
                                 "one of the three the region is mapped"),
            Field("arrivals", 4, ARRIVAL_RANGES,
                  "bit i: peers may write into range ARRIVALSi under this region, if its tiles are tracked"),
            Field("family", 8, d.region_bits,
                  "the same for all regions of one tile's updates: the region under which its arrivals come"),
            *(() if not c.wide_sums else (
                Field("sum", 16, SUM_BITS,
                      "what memory adds of what peers send under it; compute units here store fp32, or, of a sum "
                      "in one format, that: "
                      + ", ".join(f"{number} {one.name}" for number, one in enumerate(SUMS))
                      + ". One that this hardware lacks is an error, and not written"),
                Field("narrow", 20, 1, "what DMA reads for a link has the 8 bits of what arrives; 0: 16 bits, or all"),
                Field("saturate", 21, 1, "and a sum that is too large for them is the largest number"),
                Field("scale", 24, 8, "of the unit of a fixed point, e8m0"))))),
        Register("REGION_THRESHOLD", 0x04, "rw", (
            Field("threshold", 0, t.count_bits, "bytes of a tile x updates per element"),)),
        Register("REGION_USES", 0x08, "rw", (
            Field("block", 0, bits_for(d.block_shapes), "shape of its blocks: an entry of that table"),
            Field("buffer", 8, bits_for(d.buffers), "what DMA may read of it: an entry of that table"),
            Field("route", 16, bits_for(d.routes), "where it goes: the first entry of that table"),
            Field("more_routes", 24, (d.copies - 1).bit_length(), "entries after that, where it goes, too"))),
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
            Field("operation", 24, 1, "what memory there does: 0 stores, 1 updates"))),
        Register("ROUTE_WG", 0x04, "rw", (
            Field("wg_offset", 0, t.wg_bits, "added to the workgroup id, modulo its width"),)),
        *_halves("ADDRESS_OFFSET", 0x08, "rw", t.address_bits, "added to the address, modulo its width"),
    ]
    tables = (("region", 0x10, d.regions, region, "what becomes of the tiles of a region"),
              ("block", 0x08, d.block_shapes, block, "shapes of DMA blocks"),
              ("buffer", 0x10, d.buffers, buffer, "what DMA may read"),
              ("route", 0x10, d.routes, route, "where lines go, and what they are there"))
    return RegisterMap(tuple(sorted(fixed, key=lambda r: r.offset)), tuple(
        Table(name, SPACE_BYTES * number, stride, entries, tuple(registers), text)
        for number, (name, stride, entries, registers, text) in enumerate(tables, start=1)))


#: Events that a switch counts, those of all its ports together.
SWITCH_COUNTERS = (
    ("arrived", "packets that came with a credit"),
    ("left", "packets that left"),
    ("begun", "parts that were the first of a sum that is kept"),
    ("joined", "parts that were added to a sum, which lacked others"),
    ("completed", "parts that were the last of their sum, or all of it"),
    ("refused", "parts that were refused, and are gone"),
    ("evicted", "sums that made room for others"),
    ("expired", "sums that left as no part came for long, or as their kernel is over"),
    ("dropped", "packets of a kernel that is over, or of none, which did not leave"),
)
#: As `t3sim.rtl.switch.packets.SwitchError`; a test compares the two.
SWITCH_ERRORS = {"none": 0, "overrun": 1, "nowhere": 2, "refused": 3, "repeated": 4, "stale": 5, "excess": 6,
                 "setting": 7}
SWITCH_IDENTITY = 0x54335357  #: "T3SW"
SWITCH_TIMEOUT_BITS = 16


def switch_registers(geometry: Geometry) -> RegisterMap:
    """Build the register map of a switch."""
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
            Field("clear_error", 0, 1, "forget the first error"),
            Field("clear_counters", 1, 1, "all counters to zero"))),
        Register("EPOCH", 0x014, "rw", (
            Field("epoch", 0, EPOCH_BITS, "number of the oldest kernel that is not over: what is in the switch of "
                  "those before, or comes later, does not reach a GPU. 1 to 255 and then 1 again; it does not go back. "
                  "After reset no kernel is over"),)),
        Register("WHOLE", 0x018, "rw", (
            Field("whole", 0, switch.part_bits, "parts of a sum, 1 to GEOMETRY.most_parts; is written while "
                  "STATUS.busy is 0", 1),)),
        Register("TIMEOUT", 0x01C, "rw", (
            Field("timeout", 0, SWITCH_TIMEOUT_BITS, "cycles from one set's look for sums that wait to the next set's, "
                  "at least 1: a sum leaves that found no part between two looks", (1 << SWITCH_TIMEOUT_BITS) - 1),)),
        Register("STATUS", 0x020, "ro", (
            Field("busy", 0, 1, "something is in the switch, or a GPU has not given back a credit"),
            Field("starved", 1, 1, "a bit of STARVED is 1"),
            Field("error_overflow", 30, 1, "another error has come since the one that is latched"),
            Field("error", 31, 1, "an error is latched"))),
        Register("ERROR", 0x024, "ro", (
            Field("error_code", 0, 4, "the first error: " + ", ".join(
                f"{code} {name}" for name, code in SWITCH_ERRORS.items())),
            Field("error_epoch", 8, EPOCH_BITS, "kernel of the packet"),
            Field("error_port", 16, port_bits, "port; of overrun and nowhere the sender's, else that of the way out"),
            Field("error_source", 24, port_bits, "whose packet; 0 if that is not known"))),
        *_halves("ERROR_ADDRESS", 0x028, "ro", geometry.tracker.address_bits,
                 "its address; of a setting that of the register"),
        *(Register(f"COUNT_{name.upper()}", 0x040 + 4 * i, "ro", (Field(f"count_{name}", 0, 32, text),))
          for i, (name, text) in enumerate(SWITCH_COUNTERS)),
        *(Register(f"{name.upper()}{first // 32}", offset + first // 8, access, (
            Field(f"{name}{first // 32}", 0, min(32, switch.ports - first), text),))
          for name, offset, access, text in (
              ("starved", 0x080, "ro", ("ports whose next packet has waited for a credit of its GPU, TIMEOUT cycles at "
                                        "least: what is behind it waits, too, also if it is for others")),
              ("restore", 0x0A0, "w1", ("ports that have all credits back: their GPU's end of the link has been reset "
                                        "alone, and nothing is on its way between the two")))
          for first in range(0, switch.ports, 32)),
    ]
    return RegisterMap(tuple(fixed), ())
