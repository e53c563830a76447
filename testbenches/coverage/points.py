"""The coverage points of every block: one declaration per group, with what tells its points."""

from collections.abc import Callable, Iterable

from t3sim.rtl.formats import FIXED, FIXED_SCALES, FP32, SUMS, FloatFormat, Sum
from t3sim.rtl.geometry import DmaGeometry, Geometry, bits_for
from t3sim.rtl.registers import (
    ERRORS,
    NO_THRESHOLD,
    OPERATIONS,
    POLICIES,
    READY_COUNT_BITS,
    REGION_ACTIONS,
    register_map,
)
from t3sim.testbenches.coverage.cross import Bench, Cross, Point
from t3sim.testbenches.reference import wide_alu
from t3sim.testbenches.reference.line_router import channel_of_line
from t3sim.testbenches.reference.memory_channel import is_tracked
from t3sim.testbenches.reference.nmc_alu import FORMATS, AluDtype, AluOp, Operands, combine, width

#: Signals inside a block that its crosses read, besides its ports; the port whose fields a signal has, if it has any.
INSIDE = {
    "coalescer": {"held_valid": ""},
    "tracker": dict.fromkeys(("match", "used", "hit", "valid", "done", "refused", "set_full", "wrong_family",
                              "complete", "closes"), "") | {"current": "updates.payload"},
}

SOURCES = ("local", "remote", "dma")
_QUEUE_OPS = ("copy", "poll", "signal", "timestamp", "addition", "unknown")
_POLICY_NAMES = tuple(POLICIES)
_ACTIONS = ("nothing", *REGION_ACTIONS, "several")
_ERROR_NAMES = {code: name for name, code in ERRORS.items()}


def moves(bench: Bench, stream: str) -> bool:
    return bool(bench.get(f"{stream}.valid") and bench.get(f"{stream}.ready"))


def numbers(count: int) -> tuple[str, ...]:
    return tuple(map(str, range(count)))


def fill(level: int, most: int) -> str:
    return "empty" if not level else "full" if level >= most else "some"


FILL = ("empty", "some", "full")


# arbiter

def arbiter_requests(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        get = bench.get
        waiting = "held back" if get("communication_waiting") else "none"
        communication = "ready" if get("communication_valid") else waiting
        yield (_POLICY_NAMES[get("policy")], "waiting" if get("compute_valid") else "none", communication,
               "free" if get("ready") else "full")
    return watch


def arbiter_grants(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        get = bench.get
        grant = "compute" if get("grant_compute") else "communication" if get("grant_communication") else "nobody"
        reasons = [name for name in ("starved", "drain", "ring_late") if get(name)] or ["none"]
        for reason in reasons:
            yield _POLICY_NAMES[get("policy")], reason, grant
    return watch


# memory_channel

class Inside:
    """Number of each stream's requests in the channel."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self.count = bench, dict.fromkeys(("compute", "inbound", "dma"), 0)

    def cycle(self) -> None:
        for stream in self.count:
            self.count[stream] += moves(self._bench, stream)
        if moves(self._bench, "dram"):
            command = self._bench.get("dram.payload")
            own = "dma" if command["request"]["op"] == 0 and command["communication"] else "inbound"
            self.count[own if command["communication"] else "compute"] -= 1


def channel_queues(bench: Bench) -> Callable[[], Iterable[Point]]:
    inside = Inside(bench)

    def watch():
        for stream, count in inside.count.items():
            state = "full" if not bench.get(f"{stream}.ready") else "some" if count else "empty"
            yield _POLICY_NAMES[bench.get("policy")], stream, state
        inside.cycle()
    return watch


def channel_dram(bench: Bench) -> Callable[[], Iterable[Point]]:
    most = bench.geometry.channel.queue_entries

    def watch():
        goes = "compute" if bench.get("grant_compute") else "communication" if bench.get("grant_communication") else "-"
        yield _POLICY_NAMES[bench.get("policy")], fill(bench.get("occupancy"), most), goes
    return watch


def channel_requests(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        for stream in ("compute", "inbound", "dma"):
            if moves(bench, stream):
                request = bench.get(f"{stream}.payload")
                kind = "read" if request["op"] == 0 else "tracked write" if is_tracked(request) else "untracked write"
                blocked = bench.get("updates.valid") and not bench.get("updates.ready")
                yield stream, kind, "blocked" if blocked else "free"
    return watch


# order_guard

def guard_queries(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        if bench.get("ready"):
            query, bucket = bench.get("query"), bench.get("write_bucket")
            written = bench.get("write") and bucket == query
            retired = bench.get("retired") and bench.get("retired_bucket") == query
            yield ("blocked" if bench.get("blocked") else "free", "its bucket is written" if written else "not written",
                   "its bucket retires" if retired else "not retired")
    return watch


# coalescer

def coalescer_joins(bench: Bench) -> Callable[[], Iterable[Point]]:
    held: dict = {}

    def watch():
        nonlocal held
        if moves(bench, "accesses"):
            access = bench.get("accesses.payload")
            room = "blocked" if bench.get("updates.valid") and not bench.get("updates.ready") else "free"
            if not bench.get("held_valid"):
                yield "first", room
            elif bench.get("merged"):
                yield "joins", room
            else:
                other = [name for name in ("wg", "wf", "region") if access[name] != held[name]]
                yield f"other {other[0]}" if len(other) == 1 else "others" if other else "too large", room
            held = access
    return watch


# tracker

def refuses(bench: Bench) -> bool:
    return any(bench.get(name) for name in ("refused", "set_full", "wrong_family"))


def tracker_updates(bench: Bench, tell: Callable[[str, str], Iterable[Point]]) -> Callable[[], Iterable[Point]]:
    """Call `tell(outcome, "hit" or "miss")` for every update that counts, in the cycle that decides about it."""
    def watch():
        if bench.get("done") and not refuses(bench):
            outcome = "completes" if bench.get("complete") else "exceeds" if bench.get("closes") else "counts"
            yield from tell(outcome, "hit" if bench.get("hit") else "miss")
    return watch


def tracker_ways(bench: Bench) -> Callable[[], Iterable[Point]]:
    def tell(outcome: str, found: str) -> Iterable[Point]:
        used = bench.get("used")
        if found == "hit":
            yield str(bench.get("match").bit_length() - 1), outcome
        elif outcome == "counts":
            yield str((~used & (used + 1)).bit_length() - 1), "allocated"
    return tracker_updates(bench, tell)


def tracker_sets(bench: Bench) -> Callable[[], Iterable[Point]]:
    return tracker_updates(bench, lambda outcome, found: [
        (fill(bench.get("used").bit_count(), bench.geometry.tracker.ways), found, outcome)])


def tracker_follows(bench: Bench) -> Callable[[], Iterable[Point]]:
    before: dict | None = None
    outcome_before = ""

    def watch():
        nonlocal before, outcome_before
        if bench.get("done"):
            current = {name: bench.get("current")[name] for name in ("wg", "wf")}
            outcome = ("refused" if refuses(bench) else "closes" if bench.get("closes") else "counts")
            if before is not None:
                same_set = not (current["wg"] ^ before["wg"]) % bench.geometry.tracker.sets
                same = "tile" if current == before else "set" if same_set else "neither"
                yield same, outcome_before, outcome
            before, outcome_before = current, outcome
        elif not bench.get("valid"):
            before = None
    return watch


def tracker_sources(bench: Bench) -> Callable[[], Iterable[Point]]:
    return tracker_updates(bench, lambda _, found: [(SOURCES[bench.get("current")["source"]], found)])


# corrected_row

def row_faults(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        fault = bench.get("fault")
        if fault["valid"]:
            yield ("entry" if fault["in_entry"] else "tag", "lost" if fault["uncorrectable"] else "corrected",
                   str(fault["way"]))
    return watch


def row_searches(bench: Bench) -> Callable[[], Iterable[Point]]:
    last_way: int | None = None  # of the search that ended in the cycle before

    def watch():
        nonlocal last_way
        if last_way is not None:
            match, fault = bench.get("match"), bench.get("fault")
            tile = "nowhere" if not match else "in the last write" if match & last_way else "in the row"
            yield tile, ("lost" if fault["uncorrectable"] else "corrected") if fault["valid"] else "right"
        last_way = bench.get("last_way") if bench.get("take") else None
    return watch


# Errors of every block that reports some

def errors(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        error = bench.get("error")
        if error["valid"]:
            yield (_ERROR_NAMES[error["code"]],)
    return watch


def error_cross(block: str, *names: str) -> Cross:
    return Cross(block, "errors", {"error": names}, errors)


# nmc_alu

CLASSES = ("zero", "subnormal", "normal", "infinity", "nan")
SIGNED = tuple(f"{sign}{name}" for name in CLASSES[:-1] for sign in "+-") + ("nan",)


def classify(value: int, dtype: AluDtype) -> str:
    exponent_bits, fraction_bits = FORMATS[dtype]
    exponent, fraction = value >> fraction_bits & (1 << exponent_bits) - 1, value & (1 << fraction_bits) - 1
    sign = "-" if value >> width(dtype) - 1 else "+"
    if exponent == (1 << exponent_bits) - 1:
        return "nan" if fraction else f"{sign}infinity"
    if not exponent:
        return f"{sign}subnormal" if fraction else f"{sign}zero"
    return f"{sign}normal"


def elements(column: int, dtype: AluDtype, bits: int) -> list[int]:
    return [column >> at & (1 << width(dtype)) - 1 for at in range(0, bits, width(dtype))]


def alu_operands(bench: Bench) -> Callable[[], Iterable[Point]]:
    bits = bench["result.payload"].width

    def watch():
        if moves(bench, "operands"):
            item = bench.get("operands.payload")
            dtype = AluDtype(item["dtype"])
            if AluOp(item["op"]) is AluOp.ADD:
                for old, new in zip(elements(item["old"], dtype, bits), elements(item["new"], dtype, bits)):
                    yield dtype.name.lower(), classify(old, dtype), classify(new, dtype)
    return watch


def alu_results(bench: Bench) -> Callable[[], Iterable[Point]]:
    bits = bench["result.payload"].width

    def watch():
        if moves(bench, "operands"):
            item = bench.get("operands.payload")
            dtype, op = AluDtype(item["dtype"]), AluOp(item["op"])
            column = combine(Operands(item["old"], item["new"], op, dtype), bits // 8)
            for result in elements(column, dtype, bits):
                yield op.name.lower(), dtype.name.lower(), classify(result, dtype).lstrip("+-")
    return watch


# wide_alu

ARRIVALS = {one.name: one.arrives for one in SUMS}
BLOCKS = tuple(one.name for one in SUMS if one.scaled and one.total is not FIXED)
BY_FP32 = tuple(one.name for one in SUMS if one.by_fp32)
FIXED_SUMS = tuple(one.name for one in SUMS if one.total is FIXED)


def class_of(bits: int, form: FloatFormat) -> str:
    number = wide_alu.read(bits, form)
    if number.size == wide_alu.NOT_A_NUMBER:
        return "nan"
    tiny = not bits >> form.fraction_bits & (1 << form.exponent_bits) - 1
    kind = "infinity" if number.size == wide_alu.INFINITE else "zero" if not number.size else (
        "subnormal" if tiny else "normal")
    return f"{'-' if number.negative else '+'}{kind}"


def wide_operations(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        if moves(bench, "operands"):
            item = bench.get("operands.payload")
            name = SUMS[item["sum"]].name if item["sum"] < len(SUMS) else "none"
            yield name, wide_alu.WideOp(item["op"]).name.lower()
    return watch


def _wide(bench: Bench, op: wide_alu.WideOp) -> Iterable[tuple[Sum, dict]]:
    """Yield the column that enters for an operation, if one does."""
    if moves(bench, "operands"):
        item = bench.get("operands.payload")
        if item["sum"] < len(SUMS) and item["op"] == op:
            yield SUMS[item["sum"]], item


def wide_arrivals(bench: Bench) -> Callable[[], Iterable[Point]]:
    bits = bench["result.payload"].width

    def watch():
        for one, item in _wide(bench, wide_alu.WideOp.ADD):
            width = one.arrives.width
            for place in range(bits // (32 if one.total is FIXED else one.total.width)):
                yield one.name, class_of(item["new"] >> place * width & (1 << width) - 1, one.arrives)
    return watch


def wide_scales(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        for one, item in _wide(bench, wide_alu.WideOp.ADD):
            scale = item["scale"] & 255
            if one.name in FIXED_SUMS:
                yield one.name, "in range" if scale in FIXED_SCALES else "out of range"
            elif one.name in BLOCKS:
                yield one.name, {0: "least", 255: "no number"}.get(scale, "others")
            elif one.by_fp32:
                yield one.name, class_of(item["scale"], FP32).lstrip("+-")
    return watch


def wide_drains(bench: Bench) -> Callable[[], Iterable[Point]]:
    bits = bench["result.payload"].width

    def watch():
        for one, item in _wide(bench, wide_alu.WideOp.DRAIN):
            if one.narrows and item["narrow"]:
                model = wide_alu.Alu((one.name,), bits // 8)
                column = model.combine(wide_alu.Operands(**item | {"op": wide_alu.WideOp.DRAIN}))
                for place in range(bits // 32):
                    result = class_of(column >> 8 * place & 255, one.arrives)
                    yield one.name, "saturating" if item["saturate"] else "not", result.lstrip("+-")
    return watch


# dispatch_window

def window_states(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        get = bench.get
        granted = get("grant")["valid"]
        state = "a window is closed" if get("blocked") else "no workgroup" if not granted else (
            "one starts" if get("start") else "no room for it")
        yield state, "a tile completes" if get("completion")["valid"] else "none completes"
    return watch


def window_requests(bench: Bench) -> Callable[[], Iterable[Point]]:
    most = (2 << bench.geometry.tracker.wf_bits) - 1

    def watch():
        if moves(bench, "dispatch"):
            request = bench.get("dispatch.payload")
            tiles = request["tiles"]
            size = "none" if not tiles else "one" if tiles == 1 else "as many as fit" if tiles == most else "several"
            opens, reaches, starts = (("-", name)[request[name]] for name in ("opens", "reaches", "starts"))
            yield size, opens, reaches, starts
    return watch


def window_admissions(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        admission = bench.get("admissions.payload")
        what = "none" if not bench.get("admissions.valid") else "the first tile" if not admission["wf"] else "another"
        yield what, "taken" if bench.get("admissions.ready") else "waits"
    return watch


# dma_table

def table_tiles(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        if moves(bench, "triggers"):
            tiles = block_of(bench, bench.get("triggers.payload")["region"])["tiles_per_block"]
            yield str(tiles), fill(bench.get("ready_level"), bench.geometry.dma.ready_commands)
    return watch


def table_queue(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        arrives = "a tile waits" if bench.get("triggers.valid") else "none waits"
        yield (fill(bench.get("ready_level"), bench.geometry.dma.ready_commands), arrives,
               "taken" if bench.get("commands.ready") else "engines busy")
    return watch


def block_of(bench: Bench, region: int) -> dict:
    """Return the shape of a region's blocks; after the last one there are zeros."""
    number = bench.get(f"region[{region}]")["block"]
    return bench.get(f"block[{number}]") if number < bench.geometry.dma.block_shapes else dict.fromkeys(
        bench.get("block[0]"), 0)


def actions_of(region: dict) -> str:
    """Return what a region does with a tile: one of `_ACTIONS`."""
    names = [name for name in REGION_ACTIONS if region[name]]
    return "several" if len(names) > 1 else names[0] if names else "nothing"


# ready_table

def ready_asks(bench: Bench) -> Callable[[], Iterable[Point]]:
    groups = 1 << bench["asks.payload"].width - READY_COUNT_BITS

    def watch():
        if not bench.get("asks.valid"):
            return
        ask, completion = bench.get("asks.payload"), bench.get("completion")
        group = completion["wg"] >> bench.get("shift")
        told = "after the last" if group >= groups else "of its group" if group == ask["group"] else "of another"
        yield (("no tile", "a tile", "several")[min(2, ask["tiles"])], "taken" if bench.get("asks.ready") else "waits",
               told if completion["valid"] else "none")
    return watch


# address_generator

def generator_lines(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        if moves(bench, "lines"):
            line = bench.get("lines.payload")
            yield ("at a boundary" if line["address"] % 64 == 0 else "inside",
                   "at a boundary" if (line["address"] + line["bytes"]) % 64 == 0 else "inside")
    return watch


def generator_commands(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        if moves(bench, "command"):
            region = bench.get("command.payload")["region"]
            block = block_of(bench, region)
            usable = block["row_bytes"] and block["columns"]
            size = "one line" if block["row_bytes"] <= 64 else "several lines"
            yield actions_of(bench.get(f"region[{region}]")), size if usable else "nothing"
    return watch


def generator_credit(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        yield ("allowed" if bench.get("allow") else "not allowed", "busy" if bench.get("busy") else "idle",
               "line waits" if bench.get("lines.valid") and not bench.get("lines.ready") else "no line waits")
    return watch


# command_queue

def queue_commands(bench: Bench) -> Callable[[], Iterable[Point]]:
    written = taken = 0
    places = 1 << bench["taken"].width - 1

    def watch():
        nonlocal written, taken
        if moves(bench, "lines") and taken == bench.get("taken"):
            behind = (written - taken) % (2 * places)
            yield _QUEUE_OPS[min(bench.get("lines.payload")["op"], 5)], ("the last", "more behind it", "a full ring")[
                (behind > 1) + (behind == places)]
            taken = (taken + 1) % (2 * places)  # what follows before the next one is a poll's look
        bell, done = bench.get("doorbell"), bench.get("taken")
        behind, ahead = ((place - done) % (2 * places) for place in (written, bell["place"]))
        if bell["valid"] and behind <= ahead <= places:
            written = bell["place"]
    return watch


def queue_streams(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        for name in ("reads", "copies", "writes"):
            if bench.get(f"{name}.valid"):
                yield (name, "taken" if bench.get(f"{name}.ready") else "waits",
                       "copies have left" if bench.get("settled") else "data under way")
    return watch


def queue_stops(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        what = "reads" if bench.get("under_way") else "works" if bench.get("busy") else "rests"
        yield "stopped" if bench.get("stop") else "halted" if bench.get("halted") else "free", what
    return watch


# egress

def egress_lines(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        if moves(bench, "line"):
            line = bench.get("line.payload")
            yield actions_of(bench.get(f"region[{line['region']}]")), SOURCES[line["source"]]
    return watch


def egress_routes(bench: Bench) -> Callable[[], Iterable[Point]]:
    """Say on how many routes a line leaves that fits its region, and whether they are all in the table."""
    last = bench.geometry.dma.routes - 1

    def watch():
        if moves(bench, "line"):
            line = bench.get("line.payload")
            region = bench.get(f"region[{line['region']}]")
            fits = {"local": region["send_stores"], "dma": region["send_dma"]}.get(SOURCES[line["source"]], 0)
            if fits:
                more = region["more_routes"]
                yield (SOURCES[line["source"]], str(more + 1),
                       "in the table" if region["route"] + more <= last else "past its end")
    return watch


def egress_packets(bench: Bench) -> Callable[[], Iterable[Point]]:
    names = dict(enumerate(OPERATIONS, start=1))  # of `t3sim.rtl.layouts.Op`

    def watch():
        if moves(bench, "packet"):
            packet = bench.get("packet.payload")
            yield names[packet["op"]], SOURCES[packet["source"]]
    return watch


# config_bus

def bus_transfers(bench: Bench) -> Callable[[], Iterable[Point]]:
    access = {offset: register.access for offset, register, _ in register_map(bench.geometry).all_registers()}

    def watch():
        get = bench.get
        if get("psel") and get("penable") and get("pready"):
            offset = get("paddr")
            kind = access.get(offset, "no register" if offset % 4 == 0 else "unaligned")
            yield "write" if get("pwrite") else "read", kind, "refused" if get("pslverr") else "done"
    return watch


def bus_errors(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        valid = sum(bench.get(name)["valid"] for name in bench.elements("reports"))
        if valid:
            yield "one" if valid == 1 else "several", "latched before" if bench.get("error") else "first"
    return watch


# merge_table

_MERGES = ("begins", "joins", "completes", "refuses", "evicts", "expires")


def merge_events(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        event = bench.get("happened")
        kinds = [name for name in _MERGES if event[name]]
        if kinds:
            yield kinds[0], "some" if bench.get("holds") else "none"
    return watch


# Streams that share a way

def crossbar(sources: str, sinks: str, target: Callable[[dict], int]):
    """Cross source and sink, with the others asking for the same sink or not."""
    def watching(bench: Bench) -> Callable[[], Iterable[Point]]:
        names = bench.elements(sources)

        def watch():
            offered = {number: target(bench.get(f"{name}.payload")) for number, name in enumerate(names)
                       if bench.get(f"{name}.valid")}
            for number, sink in offered.items():
                contest = "contested" if list(offered.values()).count(sink) > 1 else "alone"
                yield (str(number), str(sink), contest,
                       "goes" if bench.get(f"{names[number]}.ready") else "waits")
        return watch
    return watching


def shared(block: str, sources: str, count: int, sinks: str, sink_count: int, target: Callable[[dict], int]) -> Cross:
    return Cross(block, "who wants what", {
        "source": numbers(count), "sink": numbers(sink_count), "others": ("alone", "contested"),
        "outcome": ("goes", "waits")}, crossbar(sources, sinks, target))


# Monitors

def monitor_choices(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        if bench.get("done"):
            threshold = bench.get("threshold")
            yield ("none" if threshold == NO_THRESHOLD else str(threshold),)
    return watch


def ring_states(bench: Bench) -> Callable[[], Iterable[Point]]:
    def watch():
        get = bench.get
        yield ("late" if get("late") else "in time", "waits" if get("pending") else "nothing waits",
               "starts" if get("started") else "-", "restart" if get("restart") else "-")
    return watch


_ALU_FORMATS = tuple(dtype.name.lower() for dtype in AluDtype)

def _routes_without_an_end(dma: DmaGeometry) -> dict[Point, str]:
    """Return what cannot be: one route past the end of a table that has as many entries as numbers."""
    full = dma.routes == 1 << bits_for(dma.routes)
    return {("*", "1", "past its end"): "every number is an entry's"} if full else {}


def crosses(geometry: Geometry) -> list[Cross]:
    """Return every block's crosses, of this geometry."""
    t, channel, dma = geometry.tracker, geometry.channel, geometry.dma
    return [
        Cross("arbiter", "every policy in every state of the queues", {
            "policy": _POLICY_NAMES, "compute": ("none", "waiting"), "communication": ("none", "held back", "ready"),
            "output": ("free", "full")}, arbiter_requests),
        Cross("arbiter", "who goes, and under which signal", {
            "policy": _POLICY_NAMES, "signal": ("none", "starved", "drain", "ring_late"),
            "goes": ("nobody", "compute", "communication")}, arbiter_grants),
        Cross("memory_channel", "every policy, with every queue empty and full", {
            "policy": _POLICY_NAMES, "stream": ("compute", "inbound", "dma"), "queue": FILL}, channel_queues),
        Cross("memory_channel", "who goes into which DRAM queue", {
            "policy": _POLICY_NAMES, "DRAM queue": FILL, "goes": ("-", "compute", "communication")}, channel_dram),
        Cross("memory_channel", "every kind of request, with the Tracker free and blocked", {
            "stream": ("compute", "inbound", "dma"), "request": ("read", "tracked write", "untracked write"),
            "updates": ("free", "blocked")}, channel_requests,
            {("inbound", "read", "*"): "a peer only writes", ("dma", "tracked write", "*"): "the DMA engine only reads",
             ("dma", "untracked write", "*"): "the DMA engine only reads"}),
        Cross("order_guard", "a read against writes and retirements of its bucket", {
            "read": ("free", "blocked"), "write": ("its bucket is written", "not written"),
            "retirement": ("its bucket retires", "not retired")}, guard_queries,
            {("free", "its bucket is written", "*"): "the write blocks it",
             ("free", "*", "its bucket retires"): "what retires was outstanding, and blocks until the next cycle"}),
        Cross("coalescer", "why an access joins or does not", {
            "access": ("first", "joins", "other wg", "other wf", "other region", "others", "too large"),
            "output": ("free", "blocked")}, coalescer_joins),
        Cross("tracker", "every way", {
            "way": numbers(t.ways), "event": ("allocated", "counts", "completes", "exceeds")}, tracker_ways),
        Cross("tracker", "updates of empty and full sets", {
            "set": FILL, "entry": ("hit", "miss"), "update": ("counts", "completes", "exceeds")}, tracker_sets,
            {("empty", "hit", "*"): "nothing is there to hit", ("full", "miss", "counts"): "it is refused"}),
        Cross("tracker", "one update after another", {
            "same": ("tile", "set", "neither"), "before": ("counts", "closes", "refused"),
            "update": ("counts", "closes", "refused")}, tracker_follows),
        Cross("tracker", "every source", {"source": SOURCES, "entry": ("hit", "miss")}, tracker_sources),
        error_cross("tracker", "region_unconfigured", "threshold_exceeded", "tracker_full",
                    "region_mismatch"),
        Cross("corrected_row", "every word, corrected and lost", {
            "word": ("tag", "entry"), "flips": ("corrected", "lost"), "way": numbers(t.ways)}, row_faults),
        Cross("corrected_row", "where the tile is, and what became of the tags", {
            "tile": ("nowhere", "in the row", "in the last write"), "tags": ("right", "corrected", "lost")},
              row_searches),
        error_cross("dispatch_window", "id_reused", "completion_unexpected"),
        error_cross("address_generator", "region_unconfigured", "address_out_of_range"),
        error_cross("egress", "region_unconfigured"),
        Cross("dispatch_window", "window, dispatcher and completions", {
            "next": ("a window is closed", "no workgroup", "one starts", "no room for it"),
            "completions": ("a tile completes", "none completes")}, window_states),
        Cross("dispatch_window", "requests", {
            "tiles": ("none", "one", "several", "as many as fit"), "here": ("opens", "-"), "peer": ("reaches", "-"),
            "workgroup": ("starts", "-")}, window_requests),
        Cross("dispatch_window", "admissions", {
            "tile": ("none", "the first tile", "another"), "tracker": ("taken", "waits")}, window_admissions),
        Cross("dma_table", "every size of block, with the queue empty and full", {
            "tiles per block": tuple(str(size) for size in (0, *(1 << bit for bit in range(t.wf_bits + 1)))),
            "queue": FILL}, table_tiles),
        Cross("dma_table", "triggers and engines", {
            "queue": FILL, "trigger": ("a tile waits", "none waits"), "engines": ("taken", "engines busy")},
              table_queue),
        Cross("command_queue", "every command, with the ring empty and full after it", {
            "command": _QUEUE_OPS, "ring": ("the last", "more behind it", "a full ring")}, queue_commands),
        Cross("command_queue", "who waits, and whether data are under way", {
            "what": ("reads", "copies", "writes"), "outcome": ("taken", "waits"),
            "engines": ("copies have left", "data under way")}, queue_streams),
        Cross("command_queue", "stopped in every state", {
            "stop": ("stopped", "halted", "free"), "queue": ("reads", "works", "rests")}, queue_stops),
        Cross("ready_table", "every ask, with its group complete and not", {
            "needs": ("no tile", "a tile", "several"), "answer": ("taken", "waits"),
            "completion": ("of its group", "of another", "after the last", "none")}, ready_asks),
        Cross("address_generator", "where lines begin and end", {
            "begin": ("at a boundary", "inside"), "end": ("at a boundary", "inside")}, generator_lines),
        Cross("address_generator", "every kind of region and shape of block", {
            "actions": _ACTIONS, "row": ("nothing", "one line", "several lines")}, generator_commands),
        Cross("address_generator", "credits", {
            "credit": ("allowed", "not allowed"), "engine": ("busy", "idle"),
            "output": ("line waits", "no line waits")}, generator_credit,
            {("*", "idle", "line waits"): "a waiting line makes it busy"}),
        Cross("egress", "every source to every kind of region", {"actions": _ACTIONS, "source": SOURCES}, egress_lines),
        Cross("egress", "every number of routes", {
            "source": ("local", "dma"),
            "routes": tuple(str(1 + more) for more in range(1 << (dma.copies - 1).bit_length())),
            "last": ("in the table", "past its end")}, egress_routes, _routes_without_an_end(dma)),
        Cross("egress", "packets", {"operation": tuple(OPERATIONS), "source": SOURCES[1:]}, egress_packets),
        Cross("config_bus", "every kind of access", {
            "transfer": ("read", "write"), "register": ("rw", "ro", "w1", "no register", "unaligned"),
            "answer": ("done", "refused")}, bus_transfers,
            {("read", "rw", "refused"): "legal", ("read", "ro", "refused"): "legal", ("read", "w1", "refused"): "legal",
             ("write", "rw", "refused"): "legal", ("write", "w1", "refused"): "legal",
             ("write", "ro", "done"): "illegal", ("*", "no register", "done"): "illegal",
             ("*", "unaligned", "done"): "illegal"}),
        Cross("config_bus", "reports of errors", {
            "reporters": ("one", "several"), "error": ("first", "latched before")}, bus_errors),
        shared("update_network", "updates", channel.channels, "banks", t.banks,
               lambda update: update["wg"] % t.banks),
        shared("trigger_merge", "triggers", t.banks, "merged", 1, lambda _: 0),
        shared("line_router", "lines", dma.engines, "channels", channel.channels,
               lambda line: channel_of_line(line["address"], geometry)),
        Cross("intensity_monitor", "every threshold", {"threshold": ("none", "15", "5", "3")}, monitor_choices),
        Cross("ring_monitor", "every reason to be late", {
            "verdict": ("late", "in time"), "tiles": ("waits", "nothing waits"), "dispatcher": ("starts", "-"),
            "kernel": ("restart", "-")}, ring_states),
        Cross("merge_table", "what becomes of a part, and of sums", {
            "event": _MERGES, "sums": ("none", "some")}, merge_events,
            {(event, "none"): "a sum is there" for event in ("joins", "evicts", "expires")}),
        Cross("nmc_alu", "every class of operand with every other", {
            "format": _ALU_FORMATS, "old": SIGNED, "new": SIGNED}, alu_operands),
        Cross("wide_alu", "every operation on every sum", {
            "sum": (*ARRIVALS, "none"), "operation": tuple(op.name.lower() for op in wide_alu.WideOp)},
              wide_operations),
        Cross("wide_alu", "every class of what arrives", {"sum": tuple(ARRIVALS), "arrives": SIGNED}, wide_arrivals, {
            (name, f"{sign}infinity"): "e4m3 has none" for name, form in ARRIVALS.items() for sign in "+-"
            if not form.infinite}),
        Cross("wide_alu", "every kind of scale", {
            "sum": (*BLOCKS, *FIXED_SUMS, *BY_FP32),
            "scale": ("least", "no number", "others", "in range", "out of range", *CLASSES)}, wide_scales,
              {(name, kind): "another sum's" for names, kinds in (
                  (BLOCKS, ("in range", "out of range", *CLASSES)), (BY_FP32, ("least", "no number", "others",
                                                                              "in range", "out of range")),
                  (FIXED_SUMS, ("least", "no number", "others", *CLASSES))) for name in names for kind in kinds}),
        Cross("wide_alu", "every class of sum that leaves in 8 bits", {
            "sum": tuple(one.name for one in SUMS if one.narrows), "too large": ("saturating", "not"),
            "result": CLASSES}, wide_drains,
              {("*", "saturating", "infinity"): "it is the largest"} | {
                  (one.name, "*", "infinity"): "e4m3 has none" for one in SUMS
                  if one.narrows and not one.arrives.infinite}),
        Cross("nmc_alu", "every class of result", {
            "operation": tuple(op.name.lower() for op in AluOp), "format": _ALU_FORMATS, "result": CLASSES},
              alu_results),
    ]
