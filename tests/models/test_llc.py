"""The cache against a plain LRU model on random streams."""

import random
from collections import Counter

import pytest

from t3sim.agents import compute_units
from t3sim.compiled.by_reference import by_reference
from t3sim.compiled.jit import compiled
from t3sim.fabric import bits, queues
from t3sim.fabric import llc as cache
from t3sim.fabric.memory_map import channel_of
from t3sim.machine import load_machine
from t3sim.runs import build
from t3sim.workloads import gemm_workload
from tests.models.variants import variant

LINE, WAYS, SETS, UNITS = 128, 4, 16, 70
STREAM = 0  #: a GEMM's


@compiled
def _load(sim, unit, address):
    sim = by_reference(sim)
    return compute_units.read_line(sim.kernel, sim, 0, unit, address)


class Cache:
    """The compiled cache with its miss path, of a machine with a small one; all knowledge of its insides is here."""

    def __init__(self) -> None:
        machine = variant(load_machine(), llc={"size_bytes": LINE * WAYS * SETS, "ways": WAYS, "line_bytes": LINE},
                          gpu={"compute_units": UNITS})
        workload = gemm_workload("512x512x64", 2)
        self.s = build.make_sim(machine, workload)

    def set_of(self, line: int) -> int:
        return int(cache.find(self.s.llc, 0, line)[0])

    def load(self, unit: int, line: int) -> int:
        return _load(self.s, unit, line * LINE)

    def store(self, line: int) -> bool:
        return cache.store(self.s, 0, line, STREAM)

    def data_back(self, tag: int, now: int) -> None:
        compute_units.fill(self.s.kernel, self.s, 0, tag, now)

    def flush(self, cursor: int) -> int:
        return cache.flush(self.s, 0, cursor, STREAM)

    def waiting(self, unit: int) -> int:
        return int(self.s.kernel.state.outstanding[0, unit])

    def requests(self) -> tuple[Counter, list[int]]:
        """Takes what was sent to memory: (line, op) of each whole line, and a tag per read."""
        q, b, halves, tags = self.s.compute, self.s.b, Counter(), []
        for row in range(self.s.m.channels):
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

    def make_room(self, ways) -> bool:
        if len(ways) < WAYS:
            return True
        victim = next((entry for entry in ways if entry[2] is None), None)
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
            ways.append(entry)
            self.sent[line, bits.READ] += 1
        ways.append(ways.pop(ways.index(entry)))
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
            ways.append(entry)
        ways.append(ways.pop(ways.index(entry)))
        entry[1] = True
        return True

    def complete(self, line) -> None:
        entry = self.find(line)[1]
        self.units.subtract(entry[2])
        entry[2] = None


@pytest.mark.parametrize("loads, speed", [(0.8, 0.6), (0.5, 0.45), (0.9, 0.45), (1.0, 0.55)])
def test_random_streams(loads, speed, seed):
    """`speed`: of the memory; when it is slow there are sets without a line that may be evicted."""
    generator = random.Random(f"{seed} {speed}")
    real = Cache()
    model = LruModel(real.set_of)
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
    candidates = (line for line in range(1 << 16) if channel_of(line * LINE, real.s.m) == 3)
    for line in candidates:
        sets[real.set_of(line)] += 1
        if sets[real.set_of(line)] <= WAYS:  # else the set is what lacks room
            if real.load(0, line) == cache.BLOCKED:
                break
            lines.append(line)
    assert real.load(0, line) == cache.BLOCKED
    assert real.waiting(0) == len(lines) == queues.DEPTH // 2
    sent, tags = real.requests()
    assert sent == Counter({(line, bits.READ): 1 for line in lines}) and len(set(tags)) == len(lines)
    assert real.load(0, line) == cache.WAITING
    assert real.requests()[0] == Counter({(line, bits.READ): 1})


def test_a_cache_that_cannot_be_is_refused_in_one_line():
    with pytest.raises(ValueError, match="llc: 16384 bytes in 3 ways of 128 bytes make 42 sets"):
        cache.make_llc(1, 16384, 128, 3, 8)
