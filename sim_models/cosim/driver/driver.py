"""The GPU driver's side: calls that become register writes.

    driver = Driver(geometry)
    writes = driver.dma_map(2, base=0x10000, limit=0x50000, row_bytes=256, columns=16, pitch_bytes=8192,
                            updates_per_element=2, to=[Destination(3, destination_region=2, address_offset=0x40000)])
    for offset, value in writes:
        apb.write(offset, value)

`remote_map` and `dma_map` are those of the T3 paper (section 4.4, figures 11 and 12). Every call returns a list of
`Write(offset, value)` in the order in which they have to go out, and refuses what the hardware cannot do with one line
that names the field, its value and what is allowed. Sizes are in bytes.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from t3sim.rtl import arbiter
from t3sim.rtl.formats import NUMBERS, PLAIN_SUMS
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import (
    ARRIVAL_RANGES,
    ERRORS,
    FAULTS,
    IDENTITY,
    NO_THRESHOLD,
    OPERATIONS,
    POLICIES,
    READY_COUNT_BITS,
    WAITS,
    WATCHDOG_PERIOD,
    register_map,
)


class DriverError(ValueError):
    """A setting that the hardware cannot honour."""


class Write(NamedTuple):
    """One bus write."""

    offset: int
    value: int


def _check(condition: bool, name: str, value, allowed: str) -> None:
    if not condition:
        raise DriverError(f"{name}={value!r} is not possible: {allowed}")


def _whole(name: str, value, low: int, high: int) -> None:
    _check(isinstance(value, int) and not isinstance(value, bool) and low <= value <= high, name, value,
           f"a whole number from {low} to {high} is allowed")


def _choice(name: str, value, choices: dict) -> int:
    _check(value in choices, name, value, "one of " + ", ".join(choices) + " is allowed")
    return choices[value]


def error_in_words(error: Mapping | None) -> str:
    """Say what `Driver.first_error` returns in one line; "none" without an error."""
    if error is None:
        return "none"
    fault = f"; {error['kind']}, set {error['set']}, way {error['way']}, {error['memory']}" if "kind" in error else ""
    return (f"{error['code']}: workgroup {error['wg']}, wavefront {error['wf']}, region {error['region']}, "
            f"address {error['address']:#x}{fault}")


class Destination(NamedTuple):
    """A device to which a region's lines go; the offsets may be negative."""

    device: int
    destination_region: int
    operation: str = "update"
    address_offset: int = 0  #: added to the address here
    wg_offset: int = 0  #: added to the workgroup here


class _Table:
    """Content of a table of the hardware, and the regions that it is for; entries that are equal are shared."""

    def __init__(self, name: str, entries: int, key: str):
        self.name, self._key = name, key
        self._held: list[Mapping[str, int] | None] = [None] * entries
        self._runs: dict[int, range] = {}  # region: its entries

    def _without(self, region: int) -> list[Mapping[str, int] | None]:
        used = {entry for owner, run in self._runs.items() if owner != region for entry in run}
        return [held if entry in used else None for entry, held in enumerate(self._held)]

    def room(self, region: int, rows: Sequence[Mapping[str, int]]) -> range:
        """Find adjacent entries that hold what a region wants, or may."""
        entries = self._without(region)
        runs = [range(first, first + len(rows)) for first in range(len(entries) - len(rows) + 1)]
        possible = [run for run in runs if all(entries[entry] in (None, one) for entry, one in zip(run, rows))]
        _check(bool(possible), "region", region, f"the hardware's table of {self.name} ({self._key}={len(entries)}) "
               "has no room for it: unmap another one")
        return max(possible, key=lambda run: sum(entries[entry] is not None for entry in run))

    def place(self, region: int, run: range, rows: Sequence[Mapping[str, int]]) -> None:
        """Give a region these entries, and no others."""
        self._held = self._without(region)
        self._runs[region] = run
        for entry, one in zip(run, rows):
            self._held[entry] = one


@dataclass(frozen=True)
class _RegionSettings:
    """Treatment of a region's tiles, in the words of the register map."""

    actions: Collection[str]  #: of `t3sim.rtl.registers.REGION_ACTIONS`
    threshold: int = 0
    arrivals: Collection[int] = ()
    family: int | None = None  #: its own number, if not given
    block: Mapping[str, int] | None = None
    buffer: Mapping[str, int] | None = None
    routes: Sequence[Mapping[str, int]] = ()


@dataclass(frozen=True)
class MemorySum:
    """The sum that memory makes of what arrives under a region."""

    name: str  #: of `t3sim.rtl.formats.SUMS`
    scale: int = 0  #: of the unit of a fixed point, e8m0
    narrow: bool = False  #: it leaves in the 8 bits of what arrives
    saturate: bool = False  #: and what is too large for those is the largest number


class Driver:
    """Turns settings into register writes for one GPU's hardware of one geometry.

    It knows which entries of the hardware's tables its regions have, and nothing else of what it has written.
    """

    def __init__(self, geometry: Geometry):
        self.geometry = geometry
        self.registers = register_map(geometry)
        self._sums: dict[int, MemorySum] = {}
        dma = geometry.dma
        self._tables = {name: _Table(f"{name}s", entries, key) for name, key, entries in (
            ("block", "block_shapes", dma.block_shapes), ("buffer", "buffers", dma.buffers),
            ("route", "routes", dma.routes))}

    # Address space (section 4.4)

    def remote_map(self, region: int, *, base: int, limit: int, to: Sequence[Destination]) -> list[Write]:
        """Map stores to [base, limit) to other devices: they leave at once, and store or update there.

        Several destinations need hardware of as many `copies`.
        """
        self._range(base, limit)
        return self._map(region, _RegionSettings({"send_stores"}, routes=self._routes(*to)))

    def dma_map(self, region: int, *, base: int, limit: int, to: Sequence[Destination], row_bytes: int,
                columns: int, pitch_bytes: int, updates_per_element: int, admitted: bool = False,
                tiles_per_block: int = 1, event: bool = False, arrivals: Collection[int] = (),
                arrival_region: int | None = None, counted_bytes: int | None = None) -> list[Write]:
        """Track tiles in [base, limit); a complete block of them is read once, and sent to all of `to` by DMA.

        With `event` a complete tile also raises one. Several destinations need hardware of as many `copies`.

        A block has `columns` columns of `row_bytes` contiguous bytes, `pitch_bytes` apart; its `tiles_per_block`
        wavefront tiles lie side by side, the same number of columns each. A tile is complete after
        `updates_per_element` updates of each of its elements (ring reduce-scatter: 2), and, if it is `admitted`, not
        before the dispatch window has let its request go: a tile of which no workgroup here makes a part. `arrivals`:
        numbers of the ranges of memory (`open_memory`) that peers may write under this region. `arrival_region`: under
        which what peers add to its tiles arrives, if it is another one. `counted_bytes`: of a tile that make it
        complete, if it is not all of them: of one that is in memory before, say, its first line.
        """
        block, buffer = self._block(row_bytes, columns, pitch_bytes, tiles_per_block), self._buffer(base, limit)
        tile_bytes = row_bytes * columns // tiles_per_block
        if counted_bytes is not None:
            _whole("counted_bytes", counted_bytes, 1, tile_bytes)
        threshold = self._threshold(counted_bytes or tile_bytes, updates_per_element, admitted)
        size = (columns - 1) * pitch_bytes + row_bytes
        _check(size <= limit - base, "limit", limit, f"at least base + {size} (one block) is allowed")
        return self._map(region, _RegionSettings(
            {"send_dma", "event"} if event else {"send_dma"}, threshold, arrivals, arrival_region, block, buffer,
            self._routes(*to)))

    def copy_map(self, region: int, *, base: int, limit: int, row_bytes: int, columns: int,
                 to: Sequence[tuple[int, int]], adds: bool = False) -> list[Write]:
        """Map contiguous blocks in [base, limit), of `columns` times `row_bytes`, to be copied untracked.

        They are copied by commands of a queue, or by a trigger if they are written under this region, once each. `to`:
        the devices to which they go, each with what is added to the address there; read once for all of them, as many
        as the hardware's `copies`. With `adds`, memory there adds what arrives.

        A block is one tile. At a destination it arrives under region 0, to which a range of memory must be open
        (`plain_arrivals`).
        """
        return self._map(region, _RegionSettings(
            {"send_dma"}, self._threshold(row_bytes * columns, 1, False),
            block=self._block(row_bytes, columns, row_bytes, 1), buffer=self._buffer(base, limit),
            routes=self._routes(*(Destination(device, 0, "update" if adds else "store", offset)
                                  for device, offset in to), lowest_region=0)))

    def event_map(self, region: int, *, base: int, limit: int, tile_bytes: int, updates_per_element: int,
                  admitted: bool = False, arrivals: Collection[int] = (),
                  arrival_region: int | None = None) -> list[Write]:
        """Track tiles in [base, limit); a complete tile raises an event and goes nowhere.

        `admitted`, `arrivals` and `arrival_region` are those of `dma_map`.
        """
        self._range(base, limit)
        threshold = self._threshold(tile_bytes, updates_per_element, admitted)
        return self._map(region, _RegionSettings({"event"}, threshold, arrivals, arrival_region))

    def open_memory(self, number: int, *, base: int, limit: int) -> list[Write]:
        """Let peers write the lines of [base, limit), under the regions whose `arrivals` have this range's number."""
        _whole("number", number, 0, ARRIVAL_RANGES - 1)
        self._range(base, limit)
        writes = []
        for name, value in ((f"ARRIVALS{number}_BASE", base), (f"ARRIVALS{number}_LAST", limit - 1)):
            writes += [self._write(f"{name}_LO", **{f"{name.lower()}_lo": value}),
                       self._write(f"{name}_HI", **{f"{name.lower()}_hi": value >> 32})]
        return writes

    def plain_arrivals(self, arrivals: Collection[int]) -> list[Write]:
        """Let peers also write the open ranges of these numbers without being tracked, under region 0.

        An all-gather by the compute units needs it. Without a number nothing is open.
        """
        return [self._entry_write("region", 0, "REGION_ACTIONS", event=bool(arrivals), arrivals=self._ranges(arrivals))]

    def unmap(self, region: int) -> list[Write]:
        """Unmap the region; an update that names it is an error from then on."""
        self._region(region)
        for table in self._tables.values():
            table.place(region, range(0), [])
        return [self._entry_write("region", region, "REGION_ACTIONS")]

    def _region(self, region: int) -> None:
        _whole("region", region, 1, self.geometry.dma.regions - 1)

    def _ranges(self, arrivals: Collection[int]) -> int:
        for number in arrivals:
            _whole("arrivals", number, 0, ARRIVAL_RANGES - 1)
        return sum(1 << number for number in set(arrivals))

    def _range(self, base: int, limit: int) -> None:
        highest = (1 << self.geometry.tracker.address_bits) - 1
        _whole("base", base, 0, highest - 1)
        _whole("limit", limit, base + 1, highest)

    def _threshold(self, tile_bytes: int, updates_per_element: int, admitted: bool) -> int:
        """Compute a tile's threshold of bytes; an admission counts as a byte more."""
        highest = (1 << self.geometry.tracker.count_bits) - 1 - admitted
        _whole("tile_bytes", tile_bytes, 1, highest)
        _whole("updates_per_element", updates_per_element, 1, highest // tile_bytes)
        return tile_bytes * updates_per_element + admitted

    def _block(self, row_bytes: int, columns: int, pitch_bytes: int, tiles_per_block: int) -> dict[str, int]:
        bits = {f.name: f.mask for f in self.registers["BLOCK_SHAPE"].fields}
        _whole("row_bytes", row_bytes, 1, bits["row_bytes"])
        _whole("columns", columns, 1, bits["columns"])
        tiles = 1 << self.geometry.tracker.wf_bits
        _check(isinstance(tiles_per_block, int) and 1 <= tiles_per_block <= tiles
               and tiles_per_block & (tiles_per_block - 1) == 0, "tiles_per_block", tiles_per_block,
               f"a power of two up to {tiles} is allowed")
        _check(columns % tiles_per_block == 0, "columns", columns,
               f"a multiple of tiles_per_block={tiles_per_block} is allowed")
        _whole("pitch_bytes", pitch_bytes, row_bytes if columns > 1 else 0, (1 << 32) - 1)
        return {"row_bytes": row_bytes, "columns": columns, "tiles_per_block": tiles_per_block,
                "pitch_bytes": pitch_bytes}

    def _buffer(self, base: int, limit: int) -> dict[str, int]:
        self._range(base, limit)
        return {"base": base, "limit": limit}

    def _routes(self, *to: Destination, lowest_region: int = 1) -> list[dict[str, int]]:
        """Return routes as their table holds them."""
        copies = self.geometry.dma.copies
        _check(1 <= len(to) <= copies, "to", tuple(one.device for one in to),
               f"1 to {copies} (copies={copies}) devices are allowed")
        return [self._route(one, lowest_region) for one in to]

    def _route(self, to: Destination, lowest_region: int) -> dict[str, int]:
        tracker, dma = self.geometry.tracker, self.geometry.dma
        _whole("destination_region", to.destination_region, lowest_region, dma.regions - 1)
        _whole("device", to.device, 0, (1 << dma.device_bits) - 1)
        for name, value, bits in (("address_offset", to.address_offset, tracker.address_bits),
                                  ("wg_offset", to.wg_offset, tracker.wg_bits)):
            _whole(name, value, 1 - (1 << bits), (1 << bits) - 1)
        line_bytes = self.geometry.channel.request_bytes
        _check(to.address_offset % line_bytes == 0, "address_offset", to.address_offset,
               f"a multiple of the line's {line_bytes} bytes is allowed: what arrives may not cross a line")
        return {"device": to.device, "destination_region": to.destination_region,
                "operation": _choice("operation", to.operation, OPERATIONS),
                "wg_offset": to.wg_offset % (1 << tracker.wg_bits),
                "address_offset": to.address_offset % (1 << tracker.address_bits)}

    def memory_sums(self, sums: Mapping[int, MemorySum]) -> None:
        """Say what memory adds of what is written under regions that are mapped from now on.

        Raises DriverError for a sum that this hardware lacks.
        """
        wide = self.geometry.channel.wide_sums
        allowed = [memory_sum.name for memory_sum in (*PLAIN_SUMS, *wide)] if wide else []
        for region, memory_sum in sums.items():
            self._region(region)
            _check(memory_sum.name in allowed, "sum", memory_sum.name,
                   f"{', '.join(allowed) or 'none'} (sums of the geometry)")
            _whole("scale", memory_sum.scale, 0, 255)
        self._sums = dict(sums)

    def _map(self, region: int, new: _RegionSettings) -> list[Write]:
        family = region if new.family is None else new.family
        self._region(region)
        _whole("arrival_region", family, 1, self.geometry.dma.regions - 1)
        arrivals = self._ranges(new.arrivals)
        new_rows = {"block": [new.block] if new.block else [], "buffer": [new.buffer] if new.buffer else [],
                    "route": new.routes}
        runs = {name: table.room(region, new_rows[name]) for name, table in self._tables.items() if new_rows[name]}
        writes = self.unmap(region)  # nothing may use a half-written entry
        for name, run in runs.items():
            self._tables[name].place(region, run, new_rows[name])
            for entry, fields in zip(run, new_rows[name]):
                writes += self._entry_writes(name, entry, fields)
        return [*writes,
                self._entry_write("region", region, "REGION_THRESHOLD", threshold=new.threshold),
                self._entry_write("region", region, "REGION_USES", more_routes=max(0, len(new.routes) - 1),
                                  **{name: run.start for name, run in runs.items()}),
                self._entry_write("region", region, "REGION_ACTIONS", **dict.fromkeys(new.actions, 1), family=family,
                                  arrivals=arrivals, **self._sum(region))]

    def _sum(self, region: int) -> dict[str, int]:
        region_sum = self._sums.get(region)
        return {"sum": NUMBERS[region_sum.name], "scale": region_sum.scale, "narrow": int(region_sum.narrow),
                "saturate": int(region_sum.saturate)} if region_sum else {}

    # Arbitration (section 4.5)

    @property
    def safe_starvation_limit(self) -> int:
        """Cycles after which communication goes first that hold up no ring, however fast its links.

        A line is written once and read once, and egress lanes send no more lines than one each per cycle.
        """
        return max(1, self.geometry.channel.channels // (2 * self.geometry.dma.egress_lanes))

    def policy(self, name: str, threshold="auto", starvation_limit: int | str | None = "auto") -> list[Write]:
        """Set the arbitration policy, and what MCA goes by: the occupancy threshold and the starvation limit.

        The threshold is a number, None (no threshold) or "auto"; the limit is the cycles since
        communication last went after which it goes first, None (never) or "auto" (`safe_starvation_limit`). The
        hardware takes a threshold of 0 for 1, without which communication might wait for a producer that waits for it.
        A policy without a limit (`Policy.ends_starvation`) takes none: "auto" is then none, too.
        """
        code = _choice("policy", name, POLICIES)
        auto = threshold == "auto"
        if not auto and threshold is not None:
            _check(type(threshold) is int and 1 <= threshold < NO_THRESHOLD, "threshold", threshold,
                   f'"auto", None or a whole number from 1 to {NO_THRESHOLD - 1} is allowed')
        has_limit = arbiter.POLICIES[name].ends_starvation
        if starvation_limit == "auto":
            starvation_limit = self.safe_starvation_limit if has_limit else None
        if starvation_limit is not None:
            _check(has_limit, "starvation_limit", starvation_limit,
                   f'policy {name!r} has none: None or "auto" is allowed')
            _whole("starvation_limit", starvation_limit, 1,
                   self.registers["STARVATION_LIMIT"].field("starvation_limit").mask)
        value = NO_THRESHOLD if auto or threshold is None else threshold
        return [self._write("THRESHOLD", threshold=value),
                self._write("STARVATION_LIMIT", starvation_limit=starvation_limit or 0),
                self._write("POLICY", policy=code, auto_threshold=auto)]

    def stage(self, workgroups: int) -> list[Write]:
        """Set how many workgroups the GPU runs at once: ring-aware arbitration judges lateness by it."""
        _whole("workgroups", workgroups, 1, self.registers["STAGE"].field("stage").mask)
        return [self._write("STAGE", stage=workgroups)]

    def monitor(self, none_below: float, thirty_below: float, ten_below: float,
                least_samples: int = 4096) -> list[Write]:
        """Set the mean occupancies between MCA's thresholds none, 15, 5 and 3, and the least number of samples.

        Occupancies are in DRAM queue entries, in steps of 1/4. Without `least_samples` samples (one per cycle of the
        producer) no arrival ends the measurement.
        """
        quarters = {}
        for index, (name, entries) in enumerate((("none_below", none_below), ("thirty_below", thirty_below),
                                                 ("ten_below", ten_below))):
            _check(isinstance(entries, int | float) and 0 <= entries < 64 and entries * 4 == int(entries * 4), name,
                   entries, "a multiple of 0.25 from 0 to 63.75 is allowed")
            quarters[f"breakpoint{index}"] = int(entries * 4)
        _check(none_below <= thirty_below <= ten_below, "ten_below", ten_below,
               "none_below <= thirty_below <= ten_below is allowed")
        _check(isinstance(least_samples, int) and 0 <= least_samples < 1 << 14 and not least_samples % 64,
               "least_samples", least_samples, "a multiple of 64 from 0 to 16320 is allowed")
        return [self._write("MONITOR", **quarters, least_samples=least_samples // 64)]

    # Dispatch window

    def heads(self, device: int, *, sends_to: Sequence[int], receives_from: Sequence[int]) -> list[Write]:
        """Whose dispatch windows' heads this GPU, number `device`, hears, and to whom it tells its own.

        `sends_to`: GPUs whose windows its workgroups must fit into, in the order of the numbers that requests for
        workgroups call them by. To be written on all GPUs before the first of them restarts: a head is reported when it
        moves, and not again.
        """
        peers, last = self.geometry.dma.peers, (1 << self.geometry.dma.device_bits) - 1
        for name, devices in (("sends_to", sends_to), ("receives_from", receives_from)):
            _check(len(devices) <= peers, name, tuple(devices), f"at most {peers}, the hardware's peers, are allowed")
        for name, devices in (("device", (device,)), ("sends_to", sends_to), ("receives_from", receives_from)):
            for one in devices:
                _whole(name, one, 0, last)
        writes = [self._write("DEVICE", device_number=device)]
        for peer in range(peers):
            heard = sends_to[peer] if peer < len(sends_to) else device  # nobody tells itself
            told_peers = {f"peer{peer}_told": receives_from[peer], f"peer{peer}_telling": 1} if (
                peer < len(receives_from)) else {}
            writes.append(self._write(f"PEER{peer}", **{f"peer{peer}_heard": heard}, **told_peers))
        return writes

    def largest_window(self, tiles_per_workgroup: int, waits_for: int | None = None) -> int:
        """Return how many workgroups may be open without filling a set of the Tracker or the queue of DMA commands.

        A trigger that waits for the latter holds up arrivals, whose link then cannot take what would empty it: all
        GPUs of a ring may end up waiting for each other. What waits there is open in the window of one of `waits_for`
        peers, as the schedule says; of all that the hardware knows, if not given.
        """
        tracker, dma = self.geometry.tracker, self.geometry.dma
        if waits_for is None:
            waits_for = dma.peers
        _whole("waits_for", waits_for, 0, dma.peers)
        places = dma.ready_commands // max(1, waits_for)
        _whole("tiles_per_workgroup", tiles_per_workgroup, 1, min(tracker.ways, 1 << tracker.wf_bits, places))
        return min(tracker.sets * (tracker.ways // tiles_per_workgroup), places // tiles_per_workgroup,
                   tracker.window_slots, 1 << tracker.wg_bits)

    def window(self, tiles_per_workgroup: int, *, workgroups: int | None = None, slack: int = 0,
               waits_for: int | None = None) -> list[Write]:
        """Dispatch window: the largest that is safe (`largest_window`), or fewer `workgroups`.

        What arrives for a wavefront beyond `tiles_per_workgroup` is refused.
        `slack` is the schedule's: by how many ids what a device touches early may be ahead of what it touches late. It
        must be below the window, or all devices could wait for each other.
        """
        largest = self.largest_window(tiles_per_workgroup, waits_for)
        if workgroups is None:
            workgroups = largest
        _whole("workgroups", workgroups, 1, largest)
        _check(type(slack) is int and 0 <= slack < workgroups, "slack", slack,
               f"0 to {workgroups - 1}, less than the dispatch window, is allowed; more slices or a larger Tracker "
               "are needed")
        return [self._write("WINDOW", window=workgroups, tiles=tiles_per_workgroup)]

    def command_queue(self, base: int, words: tuple[int, int] | None = None) -> list[Write]:
        """Place the queue of DMA commands at `base`, with nothing in it. Only after a reset or a soft reset.

        `words`: first byte, and one past the last, of the lines that its commands may poll and write; without, none.
        """
        ring = 64 * self.geometry.dma.queue_commands
        _check(ring > 0, "queue_commands", 0, "this hardware has no command queue")
        limit = 1 << self.geometry.tracker.address_bits
        _check(type(base) is int and 0 <= base < limit and base % ring == 0, "base", base,
               f"a multiple of the ring's {ring} bytes below {limit:#x} is allowed")
        first, end = words or (0, 0)
        if words is not None:
            self._range(first, end)
            for place in words:
                _check(place % 64 == 0, "words", place, "a multiple of 64, the bytes of a line, is allowed")
        return [self._write(f"{name}_{half}", **{f"{name.lower()}_{half.lower()}": value >> shift})
                for name, value in (("QUEUE_BASE", base), ("QUEUE_WORDS_BASE", first), ("QUEUE_WORDS_LIMIT", end))
                for half, shift in (("LO", 0), ("HI", 32))]

    def doorbell(self, commands: int) -> list[Write]:
        """Announce that this many commands were written since the last reset or soft reset. Not before a restart.

        No more may be unfinished than the queue has places.
        """
        _whole("commands", commands, 0, (1 << 31) - 1)
        return [self._write("DOORBELL", doorbell=commands % (2 * self.geometry.dma.queue_commands))]

    def resume_queue(self) -> list[Write]:
        """Let the command queue go on after it has refused a command (STATUS `queue_halted`, not `copy_failed`).

        The command is read again: repair it before.
        """
        _check(self.geometry.dma.queue_commands > 0, "queue_commands", 0, "this hardware has no command queue")
        return [self._write("CONTROL", resume_queue=1)]

    def skip_command(self) -> list[Write]:
        """Let the command queue go on after a failure (STATUS `queue_halted`), without the command that failed.

        After a copy that failed (STATUS `copy_failed`) signals behind it are sent, as if it had been done. To do it
        again, write it before them: the places from QUEUE_TAKEN on may be written anew once STATUS shows neither
        `engines_busy` nor `lines_owed`; then ring the doorbell, and skip. A soft reset forgets all instead.
        """
        _check(self.geometry.dma.queue_commands > 0, "queue_commands", 0, "this hardware has no command queue")
        return [self._write("CONTROL", skip_command=1)]

    def ready_table(self, ids_per_group: int, tiles_per_workgroup: int = 1) -> list[Write]:
        """Make groups of the ready table, each of this many consecutive ids, a power of two. Before a restart.

        All tiles of a group must be countable.
        """
        _check(self.geometry.dma.ready_groups > 0, "ready_groups", 0, "this hardware has no ready table")
        shift = ids_per_group.bit_length() - 1 if type(ids_per_group) is int else -1
        _check(0 <= shift <= self.geometry.tracker.wg_bits and ids_per_group == 1 << shift, "ids_per_group",
               ids_per_group, f"a power of two up to {1 << self.geometry.tracker.wg_bits} is allowed")
        tiles, most = ids_per_group * tiles_per_workgroup, (1 << READY_COUNT_BITS) - 1
        _check(tiles <= most, "ids_per_group", ids_per_group, f"a group of up to {most} tiles is allowed, not {tiles}")
        return [self._write("READY", ready_shift=shift)]

    # Control and status

    def soft_reset(self, quiet_cycles: int, limit_cycles: int | None = 1 << 20) -> list[Write]:
        """Forget all that is tracked, and send nothing more, until a restart; configuration, counters and errors stay.

        A command queue is emptied: commands count from 0 again.

        Arrivals are written to memory meanwhile. A device is `reset_done` when its own traffic has ended and for
        `quiet_cycles` nothing arrived, which must be more than the link takes. Reset all devices before the first of
        them restarts.

        After `limit_cycles` (None: never), rounded up to periods of the hardware, it ends though it waits, with an
        error (`reset_forced`). What it waited for and is still inside lets no restart be taken until it is out.
        """
        limit = 0
        if limit_cycles is not None:
            most = self.registers["RESET_QUIET"].field("reset_limit").mask * WATCHDOG_PERIOD
            _whole("limit_cycles", limit_cycles, 1, most)
            limit = -(-limit_cycles // WATCHDOG_PERIOD)
        _whole("quiet_cycles", quiet_cycles, 1, self.registers["RESET_QUIET"].field("quiet_cycles").mask)
        return [self._write("RESET_QUIET", quiet_cycles=quiet_cycles, reset_limit=limit),
                self._write("CONTROL", soft_reset=1)]

    def restart(self, kernel: int = 1) -> list[Write]:
        """Start a new kernel: ids count from 0 again and the intensity monitor measures again.

        `kernel` is its number, the same on all devices and larger than that of the kernel before by 1, or by up to 127:
        what touches ids of a peer starts when that is in the same kernel. The hardware counts from 1 to 255 and on from
        1, and refuses what does not follow (`restart_refused`); after a reset, also a soft one, it is in no kernel.
        It refuses, too, while anything of the kernel before is inside: `t3sim.rtl.registers.KERNEL_INSIDE` of STATUS.
        """
        _whole("kernel", kernel, 1, (1 << 31) - 1)
        last = self.registers["EPOCH"].field("epoch").mask
        return [self._write("EPOCH", epoch=(kernel - 1) % last + 1), self._write("CONTROL", restart=1)]

    @property
    def least_watchdog_cycles(self) -> int:
        """Cycles in which a restart or a soft reset clears every memory, and nothing moves."""
        tracker = self.geometry.tracker
        return max(WATCHDOG_PERIOD, tracker.window_slots << (tracker.wf_bits - 1), self.geometry.channel.guard_buckets)

    def watchdog(self, cycles: int | None) -> list[Write]:
        """Raise an error (`watchdog`) when for this many cycles something waits and nothing moves.

        The method `waiting` then says what. The cycles are rounded up to periods of the hardware; None: never.

        Units that compute for longer without a memory access, or a peer that lets wait for longer, are taken for a
        hang; so is a soft reset whose `quiet_cycles` are more.
        """
        if cycles is None:
            return [self._write("WATCHDOG", watchdog_limit=0)]
        most = self.registers["WATCHDOG"].field("watchdog_limit").mask * WATCHDOG_PERIOD
        _whole("cycles", cycles, self.least_watchdog_cycles, most)
        return [self._write("WATCHDOG", watchdog_limit=-(-cycles // WATCHDOG_PERIOD))]

    def waiting(self, read) -> list[str]:
        """Name what waited when the watchdog reported, as in `t3sim.rtl.registers.WAITS`.

        `read(offset)` reads a register.
        """
        word = self.decode("WATCHDOG_WAITS", read(self.registers["WATCHDOG_WAITS"].offset))
        return [name for name, _ in WAITS if word[f"waits_{name}"]]

    def clear_error(self) -> list[Write]:
        return [self._write("CONTROL", clear_error=1)]

    def clear_counters(self) -> list[Write]:
        return [self._write("CONTROL", clear_counters=1)]

    def status(self, read) -> set[str]:
        """Name the STATUS bits that are 1; `read(offset)` reads a register."""
        register = self.registers["STATUS"]
        return {name for name, value in self.decode("STATUS", read(register.offset)).items() if value}

    def decode(self, name: str, word: int) -> dict[str, int]:
        """Return the fields of a register that was read as `word`."""
        return {field.name: field.decode(word) for field in self.registers[name].fields}

    def first_error(self, read) -> dict | None:
        """Return the latched error as {code, wg, wf, region, address} and `tracker_fault`, or None.

        `read(offset)` reads a register.
        """
        def fields(name):
            return self.decode(name, read(self.registers[name].offset))

        names = {code: name for name, code in ERRORS.items()}
        code = fields("ERROR_CODE")["error_code"]
        if code == ERRORS["none"]:
            return None
        tile = fields("ERROR_TILE")
        address = fields("ERROR_ADDRESS_LO")["error_address_lo"] | fields("ERROR_ADDRESS_HI")["error_address_hi"] << 32
        return {"code": names.get(code, str(code)), "wg": fields("ERROR_WG")["error_wg"], "wf": tile["error_wf"],
                "region": tile["error_region"], "address": address, **self.tracker_fault(read)}

    def tracker_fault(self, read) -> dict:
        """Return where the Tracker's first flipped bits were, or the first that could not be corrected.

        The result is {kind, set, way, memory}; it is empty without any, or if the Tracker is not protected.
        """
        if self.geometry.tracker.protection == "none":
            return {}
        fault = self.decode("TRACKER_FAULT", read(self.registers["TRACKER_FAULT"].offset))
        kind = next(name for name, code in FAULTS.items() if code == fault["fault_kind"])
        return {} if kind == "none" else {
            "kind": kind, "set": fault["fault_set"], "way": fault["fault_way"],
            "memory": "entry" if fault["fault_in_entry"] else "tag"}

    def check_identity(self, read) -> None:
        """Refuse hardware that is not T3, or has another geometry; `read(offset)` reads a register."""
        for name in ("ID", *(register.name for register in self.registers.fixed
                             if register.name.startswith("GEOMETRY"))):
            value, expected = read(self.registers[name].offset), self.registers[name].reset
            if name == "ID":
                _check(value == expected, name, f"{value:#010x}", f"{IDENTITY:#010x} is allowed")
            for field in self.registers[name].fields:
                _check(field.decode(value) == field.reset, field.name, field.decode(value),
                       f"this driver was made for {field.reset}")

    def _write(self, name: str, **values) -> Write:
        return self._encode(self.registers[name], 0, values)

    def _entry_write(self, table: str, entry: int, name: str, **values) -> Write:
        return self._encode(self.registers[name], self.registers.table(table).offset(entry), values)

    def _entry_writes(self, table: str, entry: int, fields: Mapping[str, int]) -> list[Write]:
        """Write a whole entry of a table."""
        halves = {f"{name}_{half}": value >> shift for name, value in fields.items()
                  for half, shift in (("lo", 0), ("hi", 32))}
        return [self._entry_write(table, entry, register.name,
                                  **{f.name: (fields | halves)[f.name] for f in register.fields})
                for register in self.registers.table(table).registers]

    @staticmethod
    def _encode(register, origin, values) -> Write:
        return Write(origin + register.offset, sum(register.field(name).encode(int(value))
                                                   for name, value in values.items()))
