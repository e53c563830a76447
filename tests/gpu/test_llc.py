"""The cache against plain models of its replacement policies on random streams; its slices against a list per slice."""

import random
from collections import Counter

import pytest

from t3sim.base.compiled.by_reference import by_reference
from t3sim.base.compiled.jit import compiled
from t3sim.gpu.agents.units import loads
from t3sim.gpu.fabric import bits, queues
from t3sim.gpu.fabric import llc as cache
from t3sim.gpu.fabric.bits import channel_of
from t3sim.machine import load_machine
from t3sim.runs import build
from t3sim.runs.plan import Plan
from t3sim.workload.workloads import gemm_workload
from tests.support.variants import variant

pytestmark = pytest.mark.builds_loops

LINE, WAYS, SETS, UNITS = 128, 4, 16, 70
STREAM = 0  #: a GEMM's


(FIND, LOAD, SEND, SLICES_CYCLE, SLICE_OF, STORE, DATA_BACK, FLUSH) = range(8)


@compiled
def _call(machine, agent, what, device, first, second):
    """One function for all: each that Python calls would be compiled with a whole run's state as its argument.

    That is given as the loop gives it, with which this shares what it calls.
    """
    sim, kernel = by_reference(machine), by_reference(agent)
    if what == FIND:
        return cache.find(sim.llc, device, first, second)[0]
    if what == LOAD:
        return loads.read_line(kernel, sim, device, first, first, second)
    if what == SEND:
        sent = cache.wait_at_slice(sim.llc, sim.mem.m, device, second, first)
        if sent:
            kernel.state.outstanding[0, first] += 1
        return sent
    if what == SLICES_CYCLE:
        loads.serve_slices(kernel, sim, device, first)
    if what == SLICE_OF:
        return cache.slice_of(sim.llc.slices, sim.mem.m, device, first)
    if what == STORE:
        return cache.store(sim.llc, sim.mem, device, first, second, STREAM)
    if what == DATA_BACK:
        loads.fill(kernel, sim, device, first, second)
    if what == FLUSH:
        return cache.flush(sim.llc, sim.mem, device, first, STREAM)
    return 0


class Cache:
    """The compiled cache with its miss path, of a machine with a small one; all knowledge of its insides is here."""

    def __init__(self, replacement: str = "lru", **llc: int) -> None:
        machine = variant(load_machine(), llc={"size_bytes": LINE * WAYS * SETS, "ways": WAYS, "line_bytes": LINE,
                                               "replacement": replacement, **llc},
                          gpu={"compute_units": UNITS})
        workload = gemm_workload("512x512x64", 2)
        self.s = build.make_sim(Plan(machine, workload))
        self.machine, self.agent, _ = self.s.apart()

    def call(self, what: int, first: int, second: int) -> int:
        return _call(self.machine, self.agent, what, 0, first, second)

    def set_of(self, line: int, unit: int = 0) -> int:
        return int(self.call(FIND, line, unit))

    def load(self, unit: int, line: int) -> int:
        return self.call(LOAD, unit, line * LINE)

    def send(self, unit: int, line: int) -> bool:
        """Let a load go to its slice."""
        return bool(self.call(SEND, unit, line * LINE))

    def slices_cycle(self, now: int) -> None:
        self.call(SLICES_CYCLE, now, 0)

    def slice_of(self, line: int) -> int:
        return int(self.call(SLICE_OF, line * LINE, 0))

    def store(self, line: int, unit: int = 0) -> bool:
        return bool(self.call(STORE, line, unit))

    def data_back(self, tag: int, now: int) -> None:
        self.call(DATA_BACK, tag, now)

    def flush(self, cursor: int) -> int:
        return int(self.call(FLUSH, cursor, 0))

    def waiting(self, unit: int) -> int:
        return int(self.s.kernel.state.outstanding[0, unit])

    def requests(self) -> tuple[Counter, list[int]]:
        """Takes what was sent to memory: (line, op) of each whole line, and a tag per read."""
        q, b, halves, tags = self.s.mem.compute, self.s.b, Counter(), []
        for row in range(self.s.mem.m.channels):
            for i in range(int(q.count[row])):
                at = (int(q.head[row]) + i) % q.lo.shape[1]
                lo, hi = int(q.lo[row, at]), int(q.hi[row, at])
                op = bits.get(lo, hi, b.op, 2)
                halves[bits.address_of(lo, b) // 64, op] += 1
                tag = int(q.tag[row, at])
                assert tag & 3 == STREAM
                if op == bits.READ:
                    tags.append(tag >> 2)
                assert bits.get(lo, hi, b.bytes, 7) == 64 and bits.get(lo, hi, b.region, b.region_bits) == 0
            q.count[row] = 0
        lines = Counter({(half // 2, op): n for (half, op), n in halves.items() if half % 2 == 0})
        assert halves == Counter({(2 * line + i, op): n for (line, op), n in lines.items() for i in (0, 1)})
        return lines, tags


class LruModel:
    """Lists of [line, dirty, waiting units or None] per set, least recently used first."""

    def __init__(self, set_of) -> None:
        self.set_of = set_of
        self.sets = {s: [] for s in range(SETS)}
        self.sent = Counter()
        self.units = Counter()
        self.counts = Counter()

    def find(self, line):
        ways = self.sets[self.set_of(line)]
        return ways, next((entry for entry in ways if entry[0] == line), None)

    def victim(self, ways):
        return next((entry for entry in ways if entry[2] is None), None)

    def used(self, ways, entry) -> None:
        ways.append(ways.pop(ways.index(entry)))

    def brought(self, ways, entry) -> None:
        ways.append(entry)

    def make_room(self, ways) -> bool:
        if len(ways) < WAYS:
            return True
        victim = self.victim(ways)
        if victim is None:
            return False
        self.counts["evictions"] += 1
        if victim[1]:
            self.sent[victim[0], bits.STORE] += 1
            self.counts["dirty"] += 1
        ways.remove(victim)
        return True

    def load(self, unit, line) -> int:
        ways, entry = self.find(line)
        if entry is None:
            if not self.make_room(ways):
                self.counts["blocked"] += 1
                return cache.BLOCKED
            entry = [line, False, set()]
            self.brought(ways, entry)
            self.sent[line, bits.READ] += 1
        else:
            self.used(ways, entry)
        if entry[2] is None:
            self.counts["hit"] += 1
            return cache.HIT
        self.counts["pending" if entry[2] else "miss"] += 1
        if unit in entry[2]:
            return cache.KNOWN
        self.units[unit] += 1
        entry[2].add(unit)
        return cache.WAITING

    def store(self, line) -> bool:
        ways, entry = self.find(line)
        if entry is None:
            if not self.make_room(ways):
                return False
            entry = [line, False, None]
            self.brought(ways, entry)
        else:
            self.used(ways, entry)
        entry[1] = True
        return True

    def complete(self, line) -> None:
        entry = self.find(line)[1]
        self.units.subtract(entry[2])
        entry[2] = None


class SrripModel(LruModel):
    """Entries stay in the order of their ways; `interval` says how far the next use of a line is thought to be."""

    def __init__(self, set_of) -> None:
        super().__init__(set_of)
        self.interval = {}

    def victim(self, ways):
        may = [entry for entry in ways if entry[2] is None]
        while may and all(self.interval[entry[0]] < 3 for entry in may):
            for entry in may:
                self.interval[entry[0]] += 1
        self.place = next((place for place, entry in enumerate(ways)
                           if entry[2] is None and self.interval[entry[0]] == 3), None)
        return None if self.place is None else ways[self.place]

    def used(self, ways, entry) -> None:
        self.interval[entry[0]] = 0

    def brought(self, ways, entry) -> None:
        ways.append(entry) if len(self.sets[self.set_of(entry[0])]) < WAYS and self.place is None else ways.insert(
            self.place, entry)
        self.place, self.interval[entry[0]] = None, 2

    place = None


@pytest.mark.parametrize("policy, model_of", [("lru", LruModel), ("srrip", SrripModel)])
@pytest.mark.parametrize("loads, speed", [(0.8, 0.6), (0.5, 0.45), (0.9, 0.45), (1.0, 0.55)])
def test_random_streams(loads, speed, policy, model_of, seed):
    """`speed`: of the memory; when it is slow there are sets without a line that may be evicted."""
    generator = random.Random(f"{seed} {speed}")
    real = Cache(policy)
    model = model_of(real.set_of)
    pool = [generator.randrange(1 << 24) for _ in range(3 * SETS * WAYS)]
    flying = {}  # line: [tag, requests left]
    for step in range(3000):
        line = generator.choice(pool[:40] if generator.random() < 0.4 else pool)
        unit = generator.choice([0, 1, 63, 64, UNITS - 1])
        before = model.sent.copy()
        if generator.random() < loads:
            assert real.load(unit, line) == model.load(unit, line), (step, line)
        else:
            assert bool(real.store(line)) == model.store(line), (step, line)
        sent, tags = real.requests()
        assert sent == model.sent - before, (step, line)
        assert len(set(tags)) <= 1
        if tags:
            flying[line] = [tags[0], len(tags)]
        assert len({tag for tag, _ in flying.values()}) == len(flying), "a tag names one line"
        while flying and generator.random() < speed:
            back = generator.choice(sorted(flying))
            real.data_back(flying[back][0], step)
            flying[back][1] -= 1
            if flying[back][1] == 0:
                del flying[back]
                model.complete(back)
        assert [real.waiting(u) for u in (0, 1, 63, 64, UNITS - 1)] == [
            model.units[u] for u in (0, 1, 63, 64, UNITS - 1)]
    seen = {"hit", "miss", "evictions", "pending"} | ({"dirty"} if loads < 1 else set())
    seen |= {"blocked"} if loads == 0.9 else set()
    assert all(model.counts[name] >= 10 for name in seen), model.counts

    dirty = Counter({(entry[0], bits.STORE): 1 for ways in model.sets.values() for entry in ways if entry[1]})
    flushed, cursor = Counter(), 0
    while cursor < SETS:
        cursor = real.flush(cursor)
        flushed += real.requests()[0]
    assert flushed == dirty


def test_a_load_without_room_in_its_channel_changes_nothing():
    real, sets, lines = Cache(), Counter(), []
    candidates = (line for line in range(1 << 16) if channel_of(line * LINE, real.s.mem.m) == 3)
    for line in candidates:
        sets[real.set_of(line)] += 1
        if sets[real.set_of(line)] <= WAYS:  # else the set is what lacks room
            if real.load(0, line) == cache.BLOCKED:
                break
            lines.append(line)
    assert real.load(0, line) == cache.BLOCKED
    assert real.waiting(0) == len(lines) == queues.QUEUE_DEPTH // 2
    sent, tags = real.requests()
    assert sent == Counter({(line, bits.READ): 1 for line in lines}) and len(set(tags)) == len(lines)
    assert real.load(0, line) == cache.WAITING
    assert real.requests()[0] == Counter({(line, bits.READ): 1})


def test_what_was_used_again_outlives_a_stream():
    """Under SRRIP; under LRU a stream as long as a set's ways takes all with it."""
    for policy, kept in (("lru", False), ("srrip", True)):
        real = Cache(policy)
        lines = [line for line in range(1 << 10) if real.set_of(line) == 5][:2 * WAYS]
        again, *stream = lines
        for step, line in enumerate([again, again, *stream]):
            found = real.load(0, line)
            for tag in real.requests()[1]:
                real.data_back(tag, step)
            assert found == (cache.HIT if step == 1 else cache.WAITING)
        assert (real.load(0, again) == cache.HIT) == kept


@pytest.mark.parametrize("parts", [2, 5])
def test_units_of_another_part_do_not_see_a_line(parts):
    """Each part fetches for itself, and has as many sets of its own."""
    real, line = Cache(parts=parts, size_bytes=LINE * WAYS * SETS * parts), 77
    first = [part * UNITS // parts for part in range(parts)]
    assert [real.set_of(line, unit) // SETS for unit in first] == list(range(parts))
    assert all(real.set_of(line, unit) == real.set_of(line, unit - 1) + SETS for unit in first[1:])
    assert [real.load(unit, line) for unit in first] == [cache.WAITING] * parts
    sent, tags = real.requests()
    assert sent == Counter({(line, bits.READ): parts})
    for tag in tags[:2]:  # the first part's
        real.data_back(tag, 1)
    assert real.load(first[0] + 1, line) == cache.HIT and real.load(first[1] + 1, line) == cache.WAITING
    assert real.store(line + 1, UNITS - 1) and real.load(UNITS - 2, line + 1) == cache.HIT
    assert real.load(0, line + 1) == cache.WAITING


def test_slices_serve_in_order(seed):
    """Against a list per slice, on a memory that is slow at times, so that heads hold hits behind them."""
    generator, real = random.Random(seed), Cache(slices=64, slice_queue_loads=4)
    waiting, missing, flying, seen = {}, {}, {}, Counter()  # per slice: loads; line: units; line: [tag, left]
    here, outstanding, free = set(), Counter(), {}
    cycles = LINE * 64 / 2867.2
    near = [line for line in range(1 << 12) if channel_of(line * LINE, real.s.mem.m) in (3, 4)]
    pool = generator.sample(near, SETS)  # fits the cache, whatever way the sets lie
    crowded = {s for s, count in Counter(map(real.set_of, pool)).items() if count > WAYS}
    pool = [line for line in pool if real.set_of(line) not in crowded]
    assert len(pool) > SETS // 2
    for now in range(4000):
        if generator.random() < 0.7:
            unit, line = generator.choice([0, 63, UNITS - 1]), generator.choice(pool)
            queue = waiting.setdefault(real.slice_of(line), [])
            assert bool(real.send(unit, line)) == (len(queue) < 4)
            if len(queue) < 4:
                queue.append((unit, line))
                outstanding[unit] += 1
            else:
                seen["full"] += 1
        held = now % 400 < 100  # memory takes nothing
        blocked_before = seen["blocked"]
        if held:
            real.s.mem.compute.count[:] = queues.QUEUE_DEPTH
        real.slices_cycle(now)
        for row, queue in waiting.items():
            while queue and free.get(row, 0.0) <= now:
                unit, line = queue[0]
                if line not in here and line not in missing:
                    if held:
                        seen["blocked"] += 1
                        seen["hit held"] += any(behind in here for _, behind in queue[1:])
                        break
                    missing[line] = set()
                queue.pop(0)
                free[row] = max(free.get(row, 0.0), now - 1.0) + cycles
                if line in here or unit in missing[line]:
                    outstanding[unit] -= 1
                    seen["hit" if line in here else "known"] += 1
                else:
                    missing[line].add(unit)
        if held:
            real.s.mem.compute.count[:] = 0
        else:
            sent, tags = real.requests()
            for tag in dict.fromkeys(tags):
                flying[tag] = tags.count(tag)
            assert {line for line, _ in sent} <= missing.keys() and blocked_before == seen["blocked"]
        assert [real.waiting(unit) for unit in range(UNITS)] == [outstanding[unit] for unit in range(UNITS)], now
        if flying and generator.random() < 0.3:
            tag = generator.choice(sorted(flying))
            line = int(real.s.llc.tag[0, real.s.llc.miss_set[0, tag], real.s.llc.miss_way[0, tag]])
            real.data_back(tag, now)
            flying[tag] -= 1
            if flying[tag] == 0:
                del flying[tag]
                outstanding.subtract(missing.pop(line))
                here.add(line)
        if generator.random() < 0.05 and here:  # what the GPU no longer has
            line = generator.choice(sorted(here))
            s = real.set_of(line)
            way = list(real.s.llc.tag[0, s]).index(line)
            real.s.llc.tag[0, s, way], real.s.llc.stamp[0, s, way] = -1, 0  # and what comes next goes there
            here.remove(line)
    assert min(seen[name] for name in ("hit", "known", "full", "blocked", "hit held")) > 10, seen


def test_a_cache_that_cannot_be_is_refused_in_one_line():
    with pytest.raises(ValueError, match="llc: 16384 bytes in 3 ways of 128 bytes make 42 sets"):
        cache.make_llc(1, 16384, 128, 3, 8, "lru", cache.make_slices(1, 0, 1, 1, 0.0))
