"""The switch: an all-reduce's way through it, that nothing waits for another port, reset in flight."""

import random

import pytest

from t3sim.reference.switch import COUNTERS, ERRORS, SwitchModel
from t3sim.rtl.geometry import Geometry, SwitchGeometry
from t3sim.rtl.switch.packets import SwitchError
from t3sim.rtl.switch.switch import SWITCH_COUNTERS, Switch
from tests.support.stream_bench import StreamBench, as_dict
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

SMALL = Geometry(switch=SwitchGeometry(ports=3, packet_bytes=4, merge_sets=8, merge_ways=2, part_bits=3,
                                       buffer_packets=6))
UPDATE, STORE = 2, 1
ONES = 0x3C003C00  # two elements of fp16


def packet(line, op=UPDATE, to=1, column=ONES):
    request = {"address": line << SMALL.switch.packet_shift, "bytes": 4, "op": op, "source": 1, "region": 2, "wf": 3,
               "wg": line & 0xFFFF}
    return {"packet": {"request": request, "dtype": 0, "parts": int(op == UPDATE), "column": column}, "to": to}


class Gpus:
    """The GPUs of a switch: each sends what it has credits for, and gives those of what it gets back after a while."""

    def __init__(self, seed, whole, timeout=0, holds_back=()):
        self.dut = Switch(SMALL)
        self.bench = StreamBench(self.dut, seed)
        self.model = SwitchModel(SMALL, whole)
        self.got = [[] for _ in range(3)]
        self.waiting = [[] for _ in range(3)]
        self.credits, self.owed = [SMALL.switch.buffer_packets] * 3, [0] * 3
        self.holds_back, self.resets, self.cycle = set(holds_back), False, 0

        async def play(ctx):
            dut, rng = self.dut, random.Random(seed)
            ctx.set(dut.whole, whole)
            ctx.set(dut.timeout, timeout)
            while True:
                for port in range(3):
                    goes = self.waiting[port] and self.credits[port] > 0 and rng.random() < 0.9
                    ctx.set(dut.arriving[port].valid, bool(goes))
                    if goes:
                        ctx.set(dut.arriving[port].payload, self.waiting[port][0])
                        self.model.arrive(port, self.waiting[port].pop(0))
                        self.credits[port] -= 1
                    gives = self.owed[port] > 0 and port not in self.holds_back
                    ctx.set(dut.taken[port], gives)
                    self.owed[port] -= gives
                signals = [signal for port in range(3) for signal in (dut.returned[port], dut.leaving[port])]
                _, _, *told = await ctx.tick().sample(*signals)
                self.cycle += 1
                for port in range(3):
                    self.credits[port] += told[2 * port]
                    leaving = as_dict(told[2 * port + 1])
                    if leaving["valid"]:
                        self.model.leave(port, leaving["payload"])
                        self.got[port].append(leaving["payload"])
                        self.owed[port] += 1

        self.bench.process(play)

    def run(self, until, cycles=4000, settle=20):
        self.bench.run(until=until, cycles=cycles, settle=settle)

    def idle(self):
        return self.model.empty and not any(self.waiting) and not any(self.owed)


def test_the_parts_of_an_all_reduce_become_a_sum_and_its_copies():
    """Three GPUs' parts of lines that one of them owns reach it as one packet each; what it sends then reaches all."""
    gpus = Gpus(1, whole=3)
    for port in range(3):
        gpus.waiting[port] = [packet(line, to=1 << line % 3) for line in range(12)]
    gpus.run(lambda: gpus.idle() and sum(map(len, gpus.got)) == 12)
    gpus.model.check_sums()
    assert all(one["parts"] == 3 and one["column"] == 0x42004200 for got in gpus.got for one in got)

    copies = Gpus(2, whole=3)
    for port in range(3):
        copies.waiting[port] = [packet(3 * line + port, STORE, to=0b111, column=line) for line in range(4)]
    copies.run(lambda: copies.idle() and sum(map(len, copies.got)) == 36)
    assert all(sorted(one["column"] for one in got) == sorted([*range(4)] * 3) for got in copies.got)


def test_a_port_without_credits_holds_up_only_what_is_for_it():
    gpus = Gpus(1, whole=2, holds_back={0})
    gpus.waiting[1] = [packet(line, STORE, to=0b001) for line in range(30)]
    gpus.waiting[2] = [packet(line, STORE, to=0b010) for line in range(30)]
    gpus.run(lambda: len(gpus.got[1]) == 30)
    assert len(gpus.got[0]) == 6 and len(gpus.waiting[1]) > 0

    freed = Gpus(1, whole=2, holds_back={0})
    freed.waiting[1] = [packet(line, STORE, to=0b001) for line in range(30)]

    async def free_later(ctx):
        await ctx.tick().repeat(300)
        assert len(freed.got[0]) == 6
        freed.holds_back.clear()

    freed.bench.process(free_later, background=False)
    freed.run(lambda: len(freed.got[0]) == 30)


def test_a_full_table_loses_nothing():
    """More lines than a table holds, each from two GPUs in opposite orders: many leave in parts, all arrive."""
    gpus = Gpus(3, whole=2, timeout=10)
    gpus.waiting[1] = [packet(line) for line in range(60)]
    gpus.waiting[2] = [packet(line) for line in reversed(range(60))]
    gpus.run(gpus.idle, cycles=8000)
    gpus.model.check_sums()
    parts = [one["parts"] for one in gpus.got[0]]
    assert sum(parts) == 120 and 1 in parts and 2 in parts


@pytest.mark.parametrize("moment", on_one([1, 9, 23, 60], 23))
def test_reset_in_flight(moment):
    gpus = Gpus(moment, whole=2)
    rng = random.Random(moment)

    def fill():
        for port in range(3):
            gpus.waiting[port] = [packet(rng.randrange(40), rng.choice((STORE, UPDATE)), rng.randrange(1, 8))
                                  for _ in range(20)]

    async def reset(ctx):
        fill()
        await ctx.tick().repeat(moment)
        for port in range(3):
            gpus.waiting[port] = []
        await ctx.tick()
        await gpus.bench.pulse_reset(ctx)
        gpus.model = SwitchModel(SMALL, 2)
        gpus.credits, gpus.owed, gpus.got = [6] * 3, [0] * 3, [[] for _ in range(3)]
        assert not any(ctx.get(counter) for counter in gpus.dut.counters)
        assert ctx.get(gpus.dut.error.code) == SwitchError.NONE
        ctx.set(gpus.dut.timeout, 4)
        fill()

    gpus.bench.process(reset, background=False)
    gpus.run(lambda: gpus.idle() and gpus.credits == [6] * 3, cycles=8000)
    gpus.model.check_sums()


def test_latency():
    gpus = Gpus(1, whole=1)
    dut, came = gpus.dut, []

    async def watch(ctx):
        await ctx.tick().repeat(SMALL.switch.merge_sets + 2)
        gpus.waiting[2] = [packet(5, to=0b010)]
        sent = None
        while not came:
            _, _, arriving, leaving = await ctx.tick().sample(dut.arriving[2].valid, dut.leaving[1].valid)
            sent = gpus.cycle if arriving else sent
            if leaving:
                came.append(gpus.cycle - sent)

    gpus.bench.process(watch, background=False)
    gpus.run(gpus.idle)
    assert came == [SMALL.switch.latency_cycles]


def test_the_model_has_the_hardwares_names():
    assert COUNTERS == SWITCH_COUNTERS
    assert ERRORS == {error.name.lower(): error.value for error in SwitchError}
