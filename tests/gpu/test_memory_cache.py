"""The memory-side cache against a plain model of its slice, cycle by cycle, before the same DRAM."""

import random
from collections import Counter, deque

import pytest
from numba import typeof

from t3sim.base.compiled.by_reference import by_reference
from t3sim.base.compiled.jit import compiled
from t3sim.gpu.fabric import bits, memory, memory_cache, queues
from t3sim.gpu.fabric.bits import channel_of, local_line
from t3sim.gpu.hbm import READ, STORE, UPDATE, hbm_enqueue, hbm_step, make_hbm
from t3sim.machine import load_machine
from t3sim.runs import build
from t3sim.runs.plan import Plan
from t3sim.workload.workloads import gemm_workload

pytestmark = pytest.mark.builds_loops

HIT_NS, FILL_NS, LINE = 40.0, 20.0, 64
_ACCEPT, _ROOM, _CYCLE = range(3)
_BUCKET = 5


@compiled
def _call(machine, what, row, now, lo, hi, tag):
    """One function for all, of one channel of the only GPU; the machine is given as the loop gives it."""
    sim = by_reference(machine)
    if what == _ACCEPT:
        memory.dram_accept(sim.mem, row, now, lo, hi, tag, _BUCKET)
        return 0
    return memory.has_room(sim.mem, row, now) if what == _ROOM else (
        memory.dram_cycle(sim.mem, sim.network, row, row, now))


class Slice:
    """A slice as lists: of each set the lines, the least recently used first; [line, dirty, who waits for it or None].

    Requests are numbers; what is known of each is in `what`.
    """

    def __init__(self, dram, sets, ways, requests, line_cycles):
        self.sets, self.ways, self.requests, self.line_cycles = [[] for _ in range(sets)], ways, requests, line_cycles
        self.hbm, self.free = make_hbm(dram, 1), 0.0
        self.queue, self.back, self.what, self.inside = deque(), deque(), [], 0
        self.written_back = []

    def accept(self, line, op, whole):
        self.queue.append(len(self.what))
        self.what.append((line, op, whole))
        self.inside += 1

    def place(self, line):
        ways = self.sets[(line ^ line >> 11 ^ line >> 22) & (len(self.sets) - 1)]
        return ways, next((entry for entry in ways if entry[0] == line), None)

    def cycle(self, now):
        """Return (request performed, whether DRAM was not needed), or None."""
        fetched = hbm_step(self.hbm, 0, now)
        performed = None
        if 0 <= fetched < len(self.what):
            _, entry = self.place(self.what[fetched][0])
            self.back += entry[2]
            entry[1:] = [self.what[fetched][1] != READ, None]
            performed = fetched, False
        if self.free <= now and (self.back or self.queue):
            done = self.look_up(now, performed is None)
            if done is not None:
                self.free = max(self.free, now - 1.0) + self.line_cycles
                if done >= 0:
                    performed = done, True
        self.inside -= performed is not None
        return performed

    def look_up(self, now, may_perform):
        """Return the request that was performed, -1 if it only went on, None if nothing could be done."""
        waiting = self.back or self.queue
        number = waiting[0]
        line, op, whole = self.what[number]
        ways, entry = self.place(line)
        if entry and entry[2] is not None:
            entry[2].append(number)
            waiting.popleft()
            return -1
        fetches = not entry and not (op == STORE and whole)
        if not fetches and not may_perform:
            return None
        if not entry:
            victim = None
            if len(ways) == self.ways:
                victim = next((one for one in ways if one[2] is None), None)
                if victim is None or self.hbm.occupancy[0] + victim[1] + fetches > self.hbm.queue_entries:
                    return None
                if victim[1]:
                    hbm_enqueue(self.hbm, 0, now, victim[0], STORE, 1 << 30)
                    self.written_back.append(victim[0])
                ways.remove(victim)
            elif self.hbm.occupancy[0] + fetches > self.hbm.queue_entries:
                return None
            entry = [line, False, [] if fetches else None]
        else:
            ways.remove(entry)
        ways.append(entry)
        waiting.popleft()
        if fetches:
            hbm_enqueue(self.hbm, 0, now, line, READ, number)
            return -1
        entry[1] = entry[1] or op != READ
        return number


def run_both(seed, sets, ways, requests=16, bandwidth=64.0, writes=0.4, density=0.8, steps=2500, spread=3):
    """Random requests to a slice and its model; returns the simulation, the model, and what was performed when."""
    machine = load_machine({"extends": "t3-table1", "name": "cached", "memory_cache": {
        "size_bytes": 32 * sets * ways * LINE, "ways": ways, "replacement": "lru", "requests": requests,
        "hit_latency_ns": HIT_NS, "fill_latency_ns": FILL_NS, "bandwidth_bytes_per_ns": 32 * bandwidth}})
    sim = build.make_sim(Plan(machine, gemm_workload("512x512x64", 2)))
    apart = sim.apart()[0]
    model = Slice(machine.dram, sets, ways, requests, LINE / bandwidth)
    generator = random.Random(f"{seed} {sets} {ways} {requests}")
    addresses = [address for address in range(0, 1 << 24, LINE) if channel_of(address, sim.mem.m) == 0]
    pool = generator.sample(addresses, max(2, int(spread * sets * ways)))
    wanted, done = [], []  # (line, op); (request, cycle, without DRAM)
    fills, hits = 0, 0
    now = 0
    while now < steps or model.inside:
        bucket = _call(apart, _CYCLE, 0, now, 0, 0, 0)
        performed = model.cycle(now)
        assert bool(sim.mem.retired[0]) == (performed is not None), now
        if performed is not None:
            number, hit = performed
            assert queues.number_of(int(sim.mem.retired_tag[0])) == number, now
            op = model.what[number][1]
            assert bucket == (-1 if op == READ else _BUCKET)
            done.append((number, now, hit))
            if op == READ:
                came = sim.mem.hits if hit else sim.mem.fills
                at = int(came.count[0]) - 1
                later = HIT_NS if hit else FILL_NS + sim.mem.hbm.read_data_cycles
                assert came.time[0, at % came.time.shape[1]] == now + later + sim.mem.fill_cycles
                hits, fills = hits + hit, fills + (not hit)
            assert (int(sim.mem.hits.count[0]), int(sim.mem.fills.count[0])) == (hits, fills)
        assert bool(_call(apart, _ROOM, 0, now, 0, 0, 0)) == (model.inside < requests)
        if model.inside < requests and now < steps and generator.random() < density:
            address = generator.choice(pool[:4]) if generator.random() < 0.2 else generator.choice(pool)
            op = (UPDATE if generator.random() < 0.5 else STORE) if generator.random() < writes else READ
            size = LINE if op == READ or generator.random() < 0.9 else LINE // 2
            lo, hi = bits.pack(sim.b, address, size, op, bits.LOCAL, 0 if op == READ else 1, 0, 0)
            line = int(local_line(address, sim.mem.m))
            _call(apart, _ACCEPT, 0, now, lo, hi, queues.tag_of(memory.COMPUTE, len(wanted)))
            model.accept(line, op, size == LINE)
            wanted.append((line, op))
        now += 1
        assert now < steps + 50_000, "a request is never performed"
    return sim, model, wanted, done


SIZES = [(1, 1), (1, 4), (16, 1), (8, 4)]


@pytest.mark.parametrize(("sets", "ways"), SIZES)
@pytest.mark.parametrize(("bandwidth", "writes"), [(64.0, 0.4), (100.0, 0.0), (20.0, 0.8)])
def test_a_slice_does_what_its_model_does(sets, ways, bandwidth, writes, seed):
    sim, model, wanted, done = run_both(seed, sets, ways, bandwidth=bandwidth, writes=writes)
    cache = sim.mem.cache
    assert sorted(number for number, *_ in done) == list(range(len(wanted))), "each request once"
    assert (int(cache.hits[0]), int(cache.misses[0])) == (
        sum(hit for *_, hit in done), sum(not hit for *_, hit in done))
    newest = {}
    for place, (number, *_) in enumerate(done):
        line = wanted[number][0]
        assert number > newest.get(line, -1), (place, "requests for one line keep their order")
        newest[line] = number
    dirty = Counter(int(tag) for tag, is_dirty in zip(cache.tag[0].ravel(), cache.dirty[0].ravel()) if is_dirty)
    assert dirty == Counter(entry[0] for ways in model.sets for entry in ways if entry[1])
    assert int(cache.written_back[0]) == len(model.written_back)
    counts = Counter(op for _, op in wanted)
    assert counts[READ] > 30 and (not writes or min(counts[STORE], counts[UPDATE]) > 30)
    if sets * ways > 1:
        assert cache.hits[0] > 50 and cache.misses[0] > 50 and (not writes or cache.written_back[0] > 50)


@pytest.mark.parametrize(("sets", "ways"), SIZES)
def test_dram_only_reads_what_missed_and_writes_what_was_dirty(sets, ways, seed):
    """And its last column of a line is what was stored last, or the cache still has it."""
    sim, _, wanted, done = run_both(seed, sets, ways, writes=0.7)
    cache, channel = sim.mem.cache, sim.mem.hbm.channels[0]
    assert channel["columns_read"] == 2 * cache.misses[0]
    while sim.mem.hbm.occupancy[0]:  # what is being written back when the last request is performed
        cycle = int(sim.mem.hbm.next_cycle[0])
        assert _call(sim.apart()[0], _CYCLE, 0, cycle, 0, 0, 0) == -1
    assert channel["columns_written"] == 2 * cache.written_back[0]
    stored = {wanted[number][0] for number, *_ in done if wanted[number][1] != READ}
    here = {int(tag) for tag, dirty in zip(cache.tag[0].ravel(), cache.dirty[0].ravel()) if dirty}
    assert here <= stored and len(stored - here) <= cache.written_back[0]


def test_a_full_slice_takes_no_more(seed):
    sim, model, wanted, _ = run_both(seed, 4, 2, requests=3, density=1.0, steps=800)
    assert len(wanted) < 700 and model.inside == 0 and sim.mem.free_count[0] == 3


def test_lines_of_a_row_that_fit_are_read_once(seed):
    sim, _, wanted, _ = run_both(seed, 64, 16, writes=0.0, spread=0.2)
    assert sim.mem.cache.misses[0] == len({line for line, _ in wanted})


def test_slices_that_cannot_be_are_refused_in_one_line():
    with pytest.raises(ValueError, match="memory_cache: 12 sets in a slice: a power of two is needed"):
        memory_cache.make_memory_cache(1, 12, 4, 16, line_cycles=1.0, hit_cycles=1, fill_cycles=1)


def test_a_run_without_a_cache_has_the_same_compiled_loops():
    real = memory_cache.make_memory_cache(8, 4, 2, 3, line_cycles=1.0, hit_cycles=3, fill_cycles=2)
    assert typeof(real) == typeof(memory_cache.NO_MEMORY_CACHE)
