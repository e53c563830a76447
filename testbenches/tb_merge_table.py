"""MergeTable against its model: parts of few lines from every source, what leaves for want of room or of parts."""

from itertools import repeat

from t3sim.rtl import formats
from t3sim.testbenches.bench import Bench, rounds
from t3sim.testbenches.drivers import StreamDriver
from t3sim.testbenches.floats import element
from t3sim.testbenches.monitors import CycleMonitor, StreamMonitor
from t3sim.testbenches.reference.merge_table import MergeTableModel
from t3sim.testbenches.reference.nmc_alu import AluDtype
from t3sim.testbenches.scoreboard import Scoreboard

_TAKES = ("begins", "joins", "completes", "refuses")
_LEAVES = ("evicts", "expires")


class Flushes:
    """Asks for a flush now and then, until it `rests`."""

    def __init__(self, bench: Bench) -> None:
        self._bench, self.rests = bench, False

    def drive(self) -> None:
        chance = 0.04 / self._bench.geometry.switch.merge_sets  # one after the other, no sum would ever expire
        self._bench.set("flush", int(not self.rests and self._bench.rng.random() < chance))

    def sample(self) -> None:
        pass

    def reset(self) -> None:
        self._bench.set("flush", 0)


def random_request(bench: Bench, address: int, op: int) -> dict:
    """Draw what a packet says besides; its bytes are in one line."""
    rng, t, size = bench.rng, bench.geometry.tracker, bench.geometry.switch.packet_bytes
    return {"address": address, "bytes": rng.randint(1, size - address % size), "op": op, "source": rng.randrange(4),
            "region": rng.randrange(bench.geometry.dma.regions), "wf": rng.getrandbits(t.wf_bits),
            "wg": rng.getrandbits(t.wg_bits)}


def random_part(bench: Bench, lines: list[int], epochs: tuple[int, ...] = (1,)) -> dict:
    """Draw a part of one of the lines; at times of another type or kernel, one that no GPU sends, or with any bits.

    Mostly of all bytes of its line.
    """
    rng, g = bench.rng, bench.geometry
    dtype = AluDtype.FP16 if rng.random() < 0.8 else rng.choice(list(AluDtype))
    form = getattr(formats, dtype.name)
    column = sum(element(rng, form) << at for at in range(0, 8 * g.switch.packet_bytes, form.width))
    parts = rng.getrandbits(g.switch.part_bits) if rng.random() < 0.1 else 1
    offset, size = 0, g.switch.packet_bytes
    if rng.random() < 0.1:
        offset, size = rng.randrange(g.switch.packet_bytes), rng.choice((
            rng.randrange(g.switch.packet_bytes + 2), rng.getrandbits(g.channel.byte_count_bits)))
    request = random_request(bench, rng.choice(lines) << g.switch.packet_shift, 2)
    request |= {"address": request["address"] + offset, "bytes": size}
    epoch = rng.choice(epochs) if rng.random() < 0.2 else epochs[0]
    return {"request": request, "epoch": epoch, "dtype": int(dtype), "parts": parts, "column": column}


def whole_line(bench: Bench, line: int) -> dict:
    """Draw a part of all bytes of a line, as a GPU sends it."""
    request = random_request(bench, line << bench.geometry.switch.packet_shift, 2)
    return random_part(bench, [line]) | {"request": request | {"bytes": bench.geometry.switch.packet_bytes}, "parts": 1}


def near_lines(bench: Bench) -> list[int]:
    """Draw somewhat more lines than the table holds, any two of which may differ in a single bit."""
    rng, switch = bench.rng, bench.geometry.switch
    bits = bench.geometry.tracker.address_bits - switch.packet_shift
    lines = [rng.getrandbits(bits)]
    for _ in range(rng.choice((1, 2)) * min(switch.merge_sets, 8) * switch.merge_ways + 1):
        low = rng.random() < 0.5  # another set, most likely
        lines.append(rng.choice(lines) ^ 1 << (rng.randrange(min(bits, switch.merge_set_bits + 1)) if low
                                               else rng.randrange(bits)))
    return lines


@rounds(10, cover=("begins", "joins", "completes", "refuses", "evicts", "expires"))
async def random_parts(bench: Bench) -> None:
    """Send parts of more lines than fit, which differ in one bit; compare packets and events with the model."""
    rng, g = bench.rng, bench.geometry
    most = min(5, g.most_parts)
    # The first round is sure to have sums of many parts, none of which is waited for long.
    whole, timeout = (rng.randint(1, most), rng.choice((0xFFFF, 0xFFFF, 2, 30))) if bench.number else (most, 2)
    first = rng.randint(1, 255)
    epochs = (first, first % 255 + 1)
    bench.set("whole", whole)
    bench.set("timeout", timeout)
    bench.set("oldest", first)
    flushes = Flushes(bench)  # of what is over: nothing
    bench.add(flushes)
    bench.reach("joins", g.most_parts < 3)  # a sum of two parts has none
    inside = [0] * g.switch.ports  # parts of each source that were taken and have not left
    model, sums, lines = MergeTableModel(g, whole), Scoreboard("sums"), near_lines(bench)
    names = bench.elements("parts")
    touched: dict[tuple[int, int], int] = {}  # cycle of a sum's last part, by address and type

    def watch() -> None:
        """Tell the model of what happens, in the cycle in which it does."""
        assert bench.get("holds") == model.held
        pending = bench.get("pending")
        assert pending == sum(bool(count) << source for source, count in enumerate(inside)), f"pending: {pending:b}"
        if bench.get("sums.valid") and bench.get("sums.ready"):
            for source in range(g.switch.ports):
                inside[source] -= bench.get("sums.payload")["sources"] >> source & 1
        event = bench.get("happened")
        kinds = [name for name in (*_TAKES, *_LEAVES) if event[name]]
        moved = [name for name in names if bench.get(f"{name}.valid") and bench.get(f"{name}.ready")]
        assert len(moved) == sum(kind in _TAKES for kind in kinds) == len(kinds) - sum(
            kind in _LEAVES for kind in kinds) and len(kinds) <= 1, f"{kinds}, parts taken: {moved}"
        for kind in kinds:
            bench.reach(kind)
        if moved:
            part, source = bench.get(f"{moved[0]}.payload"), names.index(moved[0])
            repeats = not model.is_unlike(part)
            kind, leaves = model.take(part, source)
            assert [kind] == kinds, f"{kinds[0]}, and the model says {kind}"
            assert event["source"] == source and event["address"] == part["request"]["address"]
            if kind == "refuses":
                assert event["repeats"] or not repeats
                return
            assert not event["repeats"]
            inside[source] += 1
            if not leaves:
                touched[model.key_of(part)] = bench.now
        elif kinds:
            line = event["address"] >> g.switch.packet_shift
            waits = [bench.get(f"{name}.payload") for name in names if bench.get(f"{name}.valid")]
            full = [part for part in waits if model.needs_room(part) and model.row_of(model.key_of(part).line) is
                    model.row_of(line)]
            assert kinds == ["expires"] or full, "a sum leaves for a part that does not need its place"
            leaves = model.expire(line) if kinds == ["expires"] else model.evict(full[0])
            assert leaves["packet"]["request"]["address"] == event["address"]
            waited = bench.now - touched[model.key_of(leaves["packet"])]
            assert kinds == ["evicts"] or waited >= g.switch.merge_sets * timeout, f"it waited {waited} cycles"
        else:
            return
        if leaves:
            sums.expect(leaves)

    for cycle in range(g.switch.merge_sets):
        assert bench.get("busy") and not any(bench.get(f"{name}.ready") for name in names), f"cycle {cycle}: clearing"
        await bench.cycle()
    CycleMonitor(bench, watch)
    drivers = [StreamDriver(bench, name) for name in names]
    StreamMonitor(bench, "sums", sums.check)
    for driver in drivers:
        driver.send_all(random_part(bench, lines, epochs) for _ in range(150))
    if await bench.run(lambda: all(driver.idle for driver in drivers) and sums.empty, 60_000, settle=20):
        await bench.until(lambda: sums.empty and (timeout == 0xFFFF or not model.held),
                          200 * (timeout + 1) * g.switch.merge_sets)
        flushes.rests = True
        await bench.cycle(20 + 10 * g.switch.merge_sets)
        assert bench.get("busy") == bool(model.held)


@rounds(1)
async def waits(bench: Bench) -> None:
    """Let a sum wait alone, then among refused parts; it leaves after the timeout, tried with each bit of it.

    In the end let it do so beside parts that come in every cycle, and are refused.
    """
    g = bench.geometry
    driver = StreamDriver(bench, bench.elements("parts")[0])
    others = StreamDriver(bench, bench.elements("parts")[1], repeat(False), lambda part: others.send(part))
    part = whole_line(bench, near_lines(bench)[0])
    bench.set("whole", 2)
    bench.set("sums.ready", 1)
    bits = max(1, 14 - g.switch.merge_set_bits)
    for number, timeout in enumerate([*(1 << bit for bit in range(bits)), 1]):
        bench.set("timeout", timeout)
        driver.send_all([part])
        await bench.until(lambda: bench.get("holds") == 1, g.switch.merge_sets + 100)
        begun = bench.now
        if number == bits:
            others.send(*(whole_line(bench, line) | {"parts": 0} for line in near_lines(bench)))
        look = timeout + (10 if others.waiting else 2)  # cycles to the next one
        await bench.until(lambda: not bench.get("holds"), (2 * g.switch.merge_sets + 1) * look + 100)
        waited = bench.now - begun
        assert waited >= g.switch.merge_sets * timeout, f"timeout {timeout}: {waited} cycles"


@rounds(1)
async def turns(bench: Bench) -> None:
    """Let all sources send complete sums; each gets as many turns as the others."""
    g = bench.geometry
    bits = g.tracker.address_bits - g.switch.packet_shift
    bench.set("whole", 1)
    bench.set("timeout", 0xFFFF)
    bench.set("sums.ready", 1)
    drivers = [StreamDriver(bench, name, repeat(False)) for name in bench.elements("parts")]
    cycles = 6_000  # chance makes little difference in so many
    for driver in drivers:
        driver.send_all(whole_line(bench, bench.rng.getrandbits(bits)) for _ in range(cycles))
    await bench.cycle(g.switch.merge_sets + cycles)
    taken = [driver.accepted for driver in drivers]
    assert max(taken) <= 1.2 * min(taken), f"parts taken: {taken}"


@rounds(2)
async def flushes(bench: Bench) -> None:
    """Flush while sums of an ended kernel and of the next one wait; only the ended kernel's leave."""
    rng, g = bench.rng, bench.geometry
    driver, before = StreamDriver(bench, bench.elements("parts")[0]), rng.randint(1, 255)
    after = before % 255 + 1
    bench.set("whole", 2)
    bench.set("timeout", 0xFFFF)
    bench.set("oldest", before)
    bench.set("sums.ready", 1)
    left: list[dict] = []
    StreamMonitor(bench, "sums", left.append)
    count = min(60, g.switch.merge_sets * g.switch.merge_ways)
    epochs = {line: rng.choice((before, after)) for line in rng.sample(range(g.switch.merge_sets * g.switch.merge_ways),
                                                                       count)}
    driver.send_all(whole_line(bench, line) | {"epoch": epoch} for line, epoch in epochs.items())
    if not await bench.run(lambda: driver.idle, 10_000, settle=20):
        return
    assert not left and bench.get("holds") == count and bench.get("pending") == 1
    bench.set("oldest", after)
    bench.set("flush", 1)
    await bench.cycle()
    bench.set("flush", 0)
    over = sorted(line for line, epoch in epochs.items() if epoch == before)
    await bench.cycle(12 * (g.switch.merge_sets + count) + 20)
    assert sorted(one["packet"]["request"]["address"] >> g.switch.packet_shift for one in left) == over
    assert all(one["packet"]["epoch"] == before for one in left) and bench.get("holds") == count - len(over)
