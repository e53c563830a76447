"""The switch: sums and copies, order, life cycle, registers, errors and counters; what GPUs do that they should not.

The list of attacks: reset in the middle, two things in one cycle, what comes late or unasked, kernel numbers that wrap,
a peer that repeats, lies or is silent, and the corners of widths.
"""

import random
from pathlib import Path

import pytest

from t3sim.cosim.driver.register_map import rows_of
from t3sim.rtl.geometry import ChannelGeometry, Geometry, SwitchGeometry
from t3sim.rtl.registers import SWITCH_COUNTERS, SWITCH_ERRORS, SWITCH_IDENTITY, VERSION, switch_registers
from t3sim.rtl.switch.packets import SwitchError
from t3sim.rtl.switch.switch import Switch
from t3sim.testbenches.reference.switch import SwitchModel
from tests.support.stream_bench import StreamBench, as_dict, once
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl

SMALL = Geometry(switch=SwitchGeometry(ports=3, packet_bytes=4, merge_sets=8, merge_ways=2, part_bits=3,
                                       buffer_packets=6))
COUNTED = Geometry(channel=ChannelGeometry(more_bits=1), switch=SMALL.switch)
UPDATE, STORE = 2, 1
ONES = 0x3C003C00  # two elements of fp16
COUNTERS = [name for name, _ in SWITCH_COUNTERS]


def half(value):
    """Two elements of fp16 that are powers of two."""
    return (15 + value.bit_length() - 1 << 10) * 0x10001


def packet(line, op=UPDATE, to=1, column=ONES, epoch=1, region=2, parts=None, **request):
    request = {"address": line << SMALL.switch.packet_shift, "bytes": 4, "op": op, "source": 1, "region": region,
               "wf": 3, "wg": line & 0xFFFF} | request
    return {"packet": {"request": request, "epoch": epoch, "dtype": 0, "column": column,
                       "parts": int(op == UPDATE) if parts is None else parts}, "to": to}


def flag(line, to=1, **request):
    """A word of a command queue: what no Tracker counts."""
    return packet(line, STORE, to, region=0, **request)


class Gpus:
    """The GPUs of a switch: each sends what it has credits for, and gives those of what it gets back after a while."""

    def __init__(self, seed, whole=1, timeout=1000, epoch=1, holds_back=(), geometry=SMALL, lawful=True, plays=True):
        self.dut, self.geometry = once(Switch, geometry), geometry
        self.bench = StreamBench(self.dut, seed)
        self.registers = switch_registers(geometry)
        self.model = SwitchModel(geometry, whole) if lawful else None  #: of GPUs that do as they should
        self.settings = {"WHOLE": whole, "TIMEOUT": timeout, "EPOCH": epoch}
        self.got = [[] for _ in range(3)]
        self.when = [[] for _ in range(3)]
        self.waiting = [[] for _ in range(3)]
        self.credits, self.owed = [SMALL.switch.buffer_packets] * 3, [0] * 3
        self.holds_back, self.cycle = set(holds_back), 0
        self.sends = False  #: the switch is configured

        async def play(ctx):
            dut, rng = self.dut, random.Random(seed)
            while True:
                for port in range(3):
                    goes = self.sends and self.waiting[port] and self.credits[port] > 0 and rng.random() < 0.9
                    ctx.set(dut.arriving[port].valid, bool(goes))
                    if goes:
                        ctx.set(dut.arriving[port].payload, self.waiting[port][0])
                        if self.model:
                            self.model.arrive(port, self.waiting[port][0])
                        self.waiting[port].pop(0)
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
                        if self.model:
                            self.model.leave(port, leaving["payload"])
                        self.got[port].append(leaving["payload"])
                        self.when[port].append(self.cycle)
                        self.owed[port] += 1

        if plays:  # otherwise a test drives the links by itself
            self.bench.process(play)

    def run(self, until=None, cycles=4000, settle=20, drive=None):
        """Configure the switch, `drive` it, and run until all is quiet."""
        async def begin(ctx):
            await self.begin(ctx)
            if drive:
                await drive(ctx)

        self.bench.process(begin, background=False)
        self.bench.run(until=until or self.idle, cycles=cycles, settle=settle)

    async def begin(self, ctx):
        """Program the switch when it has cleared its tables."""
        while ctx.get(self.dut.busy):
            await ctx.tick()
        for name, value in self.settings.items():
            assert not await self.write(ctx, name, value)
        self.sends = True

    def idle(self):
        return (self.model is None or self.model.empty) and not any(self.waiting) and not any(self.owed)

    async def transfer(self, ctx, address, write=0, data=0):
        """Return what the bus says: (data, refused)."""
        apb = self.dut.apb
        for signal, value in ((apb.paddr, address), (apb.psel, 1), (apb.penable, 0), (apb.pwrite, write),
                              (apb.pwdata, data)):
            ctx.set(signal, value)
        await ctx.tick()
        ctx.set(apb.penable, 1)
        ready = False
        while not ready:
            _, _, ready, word, refused = await ctx.tick().sample(apb.pready, apb.prdata, apb.pslverr)
        ctx.set(apb.psel, 0)
        ctx.set(apb.penable, 0)
        return word, refused

    async def write(self, ctx, name, value):
        _, refused = await self.transfer(ctx, self.registers[name].offset, 1, value)
        return refused

    async def read(self, ctx, name):
        word, refused = await self.transfer(ctx, self.registers[name].offset)
        assert not refused
        return {field.name: field.decode(word) for field in self.registers[name].fields}

    async def error(self, ctx, clear=True):
        """Return the first error as (name, port, source, epoch, address), whether there was another, and clear it."""
        status, told = await self.read(ctx, "STATUS"), await self.read(ctx, "ERROR")
        low, high = await self.read(ctx, "ERROR_ADDRESS_LO"), await self.read(ctx, "ERROR_ADDRESS_HI")
        assert status["error"] == ctx.get(self.dut.error) == (told["error_code"] != 0)
        if clear:
            await self.write(ctx, "CONTROL", 1)
            await ctx.tick()
        name = next(name for name, code in SWITCH_ERRORS.items() if code == told["error_code"])
        address = high["error_address_hi"] << 32 | low["error_address_lo"]
        return (name, told["error_port"], told["error_source"], told["error_epoch"], address), status["error_overflow"]

    async def counted(self, ctx):
        return {name: (await self.read(ctx, f"COUNT_{name.upper()}"))[f"count_{name}"] for name in COUNTERS}

    def sums(self, port):
        """What a GPU got of sums: (line, parts, column)."""
        return [(one["request"]["address"] >> 2, one["parts"], one["column"]) for one in self.got[port]
                if one["request"]["op"] == UPDATE]


NO_ERROR = ("none", 0, 0, 0, 0)


def test_the_parts_of_an_all_reduce_become_a_sum_and_its_copies():
    """Three GPUs: the owner gets one packet per line, and its copy reaches all, bit for bit."""
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


@pytest.mark.parametrize("op", [STORE, UPDATE])
def test_a_copy_reaches_each_port_of_its_mask_and_no_other(op):
    """Every mask, stores and UPDATEs, while another GPU's packets are in the way."""
    gpus = Gpus(1, whole=1)
    gpus.waiting[0] = [packet(8 * line + mask, op, to=mask, column=half(1 << line % 4)) for line in range(8)
                       for mask in range(1, 8)]
    gpus.waiting[1] = [packet(100 + line, STORE, to=1 << line % 3) for line in range(60)]
    gpus.run()
    for port in range(3):
        mine = [one["request"]["address"] >> 2 for one in gpus.got[port] if one["request"]["address"] < 400]
        assert mine == [8 * line + mask for line in range(8) for mask in range(1, 8) if mask >> port & 1]


def test_a_port_without_credits_holds_up_only_what_is_for_it():
    """It goes on once its GPU returns credits; other ports never stop."""
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

    freed.run(lambda: len(freed.got[0]) == 30, drive=free_later)


@pytest.mark.parametrize("dead", range(3))
def test_a_gpu_that_gives_no_credits_back_is_named_and_a_flush_frees_the_others(dead):
    """Attack: a silent peer, each GPU in turn, while others send to all and so wait for its credits."""
    others = [port for port in range(3) if port != dead]
    gpus = Gpus(1, whole=2, timeout=20, holds_back={dead}, lawful=False)

    def send(epoch, targets):
        for port in others:
            gpus.waiting[port] += [packet(line, STORE, to=1 << targets[line % len(targets)], epoch=epoch)
                                   for line in range(60)]

    async def drive(ctx):
        starved = {"starved0": 1 << dead}
        send(1, range(3))
        await ctx.tick().repeat(30)
        assert await gpus.read(ctx, "STARVED0") == {"starved0": 0}
        await ctx.tick().repeat(600)
        assert await gpus.read(ctx, "STARVED0") == starved and (await gpus.read(ctx, "STATUS"))["starved"]
        got = [len(got) for got in gpus.got]
        await ctx.tick().repeat(600)
        assert got == [len(got) for got in gpus.got] and got[dead] == 6 and all(gpus.waiting[port] for port in others)
        for port in others:  # they are reset
            gpus.waiting[port].clear()
        assert not await gpus.write(ctx, "EPOCH", 2)
        send(2, others)
        await ctx.tick().repeat(400)
        assert await gpus.read(ctx, "STARVED0") == {"starved0": 0} and not any(gpus.waiting)
        assert [sum(one["epoch"] == 2 for one in got) for got in gpus.got] == [60 * (port != dead) for port in range(3)]
        send(2, [dead])
        await ctx.tick().repeat(600)
        assert await gpus.read(ctx, "STARVED0") == starved
        gpus.holds_back.clear()
        await ctx.tick().repeat(600)
        assert await gpus.read(ctx, "STARVED0") == {"starved0": 0} and not (await gpus.read(ctx, "STATUS"))["starved"]
        assert len(gpus.got[dead]) == 6 + 120

    gpus.run(drive=drive, cycles=20_000)


@pytest.mark.parametrize("moment", range(0, 20, 3))
@pytest.mark.parametrize("wait, starved", [(12, 0), (44, 1)])
def test_a_port_starves_when_it_has_waited_for_the_timeout(wait, starved, moment):
    """Waits from less than the timeout to more than twice: looks are a timeout apart."""
    gpus = Gpus(1, whole=2, timeout=20, holds_back={0}, lawful=False)

    async def drive(ctx):
        gpus.waiting[1] = [packet(line, STORE) for line in range(6)]
        await ctx.tick().repeat(60 + moment)
        assert len(gpus.got[0]) == 6
        gpus.waiting[2] = [packet(7, STORE)]
        while gpus.waiting[2]:
            await ctx.tick()
        await ctx.tick().repeat(wait)
        assert await gpus.read(ctx, "STARVED0") == {"starved0": starved}
        gpus.holds_back.clear()

    gpus.run(drive=drive)


@pytest.mark.parametrize("reset", range(3))
def test_a_gpu_that_is_reset_alone_gets_its_port_back(reset):
    """Attack: reset in the middle. The GPU owes credits and has forgotten them."""
    sender = (reset + 1) % 3
    gpus = Gpus(1, whole=2, timeout=20, holds_back={0, 1, 2}, lawful=False)

    async def drive(ctx):
        for port in range(3):
            gpus.waiting[sender] += [packet(line, STORE, to=1 << port) for line in range(6)]
        await ctx.tick().repeat(100)
        assert [len(got) for got in gpus.got] == [6, 6, 6]
        gpus.owed[reset] = 0
        for port in range(3):
            gpus.waiting[port] += [packet(line, STORE, to=1 << port) for line in range(6)]
        await ctx.tick().repeat(100)
        assert await gpus.read(ctx, "STARVED0") == {"starved0": 7}
        assert not await gpus.write(ctx, "RESTORE0", 1 << reset)
        await ctx.tick().repeat(100)
        assert [len(got) for got in gpus.got] == [12 if port == reset else 6 for port in range(3)]
        assert await gpus.read(ctx, "STARVED0") == {"starved0": 7 & ~(1 << reset)}
        gpus.holds_back.clear()
        await ctx.tick().repeat(100)
        assert [len(got) for got in gpus.got] == [12, 12, 12] and not (await gpus.read(ctx, "STATUS"))["busy"]
        assert await gpus.error(ctx) == (NO_ERROR, 0)

    gpus.run(drive=drive)


def test_a_full_table_loses_nothing_and_that_is_no_error():
    """More lines than fit, each from two GPUs in opposite orders: many leave in parts, all arrive."""
    gpus = Gpus(3, whole=2, timeout=10)
    gpus.waiting[1] = [packet(line) for line in range(60)]
    gpus.waiting[2] = [packet(line) for line in reversed(range(60))]

    async def look(ctx):
        while not gpus.idle():
            await ctx.tick()
        assert await gpus.error(ctx) == (NO_ERROR, 0)
        counted = await gpus.counted(ctx)
        assert counted["evicted"] and counted["expired"] and not counted["refused"] and not counted["dropped"]

    gpus.run(cycles=8000, drive=look)
    gpus.model.check_sums()
    parts = [one["parts"] for one in gpus.got[0]]
    assert sum(parts) == 120 and 1 in parts and 2 in parts


@pytest.mark.parametrize("timeout", on_one([1, 2, 40]))
def test_what_is_left_of_an_evicted_sum_leaves_soon(timeout):
    """Three lines of a set of two ways, two GPUs in the same order."""
    gpus = Gpus(1, whole=2, timeout=timeout)
    gpus.waiting[1] = [packet(line) for line in (0, 8, 16)]

    async def second(ctx):
        await ctx.tick().repeat(40)
        gpus.waiting[2] = [packet(line) for line in (0, 8, 16)]
        await ctx.tick()
        await ctx.tick().repeat(20 + 2 * 8 * (timeout + 30))
        assert gpus.model.empty
        assert await gpus.error(ctx) == (NO_ERROR, 0)
        assert not ctx.get(gpus.dut.busy)

    gpus.run(drive=second)
    gpus.model.check_sums()


@pytest.mark.parametrize("op", [STORE, UPDATE])
def test_a_line_that_begins_in_its_middle_keeps_its_address(op):
    """Stores and UPDATEs of half a line keep address and length."""
    gpus = Gpus(1, whole=2)
    parts = [packet(5, op, address=0x16, bytes=2), packet(5, op, address=0x14, bytes=2), packet(6, op)]
    gpus.waiting[1], gpus.waiting[2] = parts, [*parts]
    gpus.run()
    assert sorted((one["request"]["address"], one["request"]["bytes"], one["parts"]) for one in gpus.got[0]) == sorted(
        [(0x14, 2, 2), (0x16, 2, 2), (0x18, 4, 2)] if op == UPDATE else [(0x14, 2, 0), (0x16, 2, 0), (0x18, 4, 0)] * 2)


def test_parts_of_unequal_length_reach_their_gpu_as_they_are():
    """They are not added."""
    gpus = Gpus(1, whole=2, timeout=5)
    sizes = [(4, 2), (2, 4), (1, 3)]
    for line, pair in enumerate(sizes):
        for port, size in zip((1, 2), pair):
            gpus.waiting[port].append(packet(line, bytes=size))
    gpus.run()
    assert sorted((one["request"]["address"] >> 2, one["request"]["bytes"], one["parts"], one["column"])
                  for one in gpus.got[0]) == sorted(
        (line, size, 1, ONES) for line, pair in enumerate(sizes) for size in pair)


# Order

@pytest.mark.parametrize("second", on_one([40, 200]))
def test_a_signal_does_not_go_before_the_updates_that_it_stands_for(second):
    """They wait for another GPU's part. Other GPUs' UPDATEs, and those that a Tracker counts, need not wait."""
    gpus = Gpus(1, whole=2)
    gpus.waiting[1] = [packet(5), packet(6), packet(7, to=0b010), packet(40, STORE), flag(41), packet(42, STORE)]
    gpus.waiting[0] = [flag(50, to=0b001)]

    async def late(ctx):
        await ctx.tick().repeat(second)
        gpus.waiting[2] = [packet(5), packet(6), packet(7, to=0b010)]

    gpus.run(drive=late, until=lambda: gpus.idle() and len(gpus.waiting[2]) == 0 and len(gpus.got[0]) == 6)
    order = [one["request"]["address"] >> 2 for one in gpus.got[0]]
    assert set(order[:2]) == {40, 50} and set(order[2:4]) == {5, 6} and order[4:] == [41, 42]


def test_a_signal_waits_for_no_longer_than_the_timeout():
    """For a part that never arrives; and two GPUs' signals that wait for each other's parts."""
    gpus = Gpus(1, whole=2, timeout=20)
    gpus.waiting[1] = [packet(5), flag(41), packet(6)]
    gpus.waiting[2] = [packet(6), flag(42), packet(5)]
    gpus.run(cycles=2000)
    order = [one["request"]["address"] >> 2 for one in gpus.got[0]]
    assert order.index(5) < order.index(41) and order.index(6) < order.index(42)
    gpus.model.check_sums()


def test_a_signal_for_several_waits_at_each_for_what_is_there():
    """One port's UPDATE waits for a part, so the signal waits there and leaves at the others at once."""
    gpus = Gpus(1, whole=2)
    gpus.waiting[1] = [packet(5, to=0b001), flag(41, to=0b111)]

    async def late(ctx):
        await ctx.tick().repeat(60)
        assert not gpus.got[0] and len(gpus.got[1]) == len(gpus.got[2]) == 1
        gpus.waiting[2] = [packet(5, to=0b001)]

    gpus.run(drive=late, until=lambda: gpus.idle() and len(gpus.got[0]) == 2)
    assert [one["request"]["address"] >> 2 for one in gpus.got[0]] == [5, 41]


@pytest.mark.parametrize("seed", on_one(range(6)))
def test_signals_among_random_packets_and_slow_gpus(seed):
    """The model rejects a packet that overtakes, and a part that is lost or counted twice."""
    rng = random.Random(seed)
    gpus = Gpus(seed, whole=rng.choice((2, 3)), timeout=rng.choice((1, 10, 60)))
    for port in range(3):
        lines = rng.sample(range(30), 30)
        gpus.waiting[port] = [rng.choice((packet, packet, packet, flag))(line, to=rng.randrange(1, 8)) if
                              rng.random() < 0.8 else packet(line, STORE, rng.randrange(1, 8)) for line in lines]
        for number, one in enumerate(gpus.waiting[port]):
            one["packet"]["request"]["wg"] = 100 * port + number
    gpus.run(cycles=20_000)
    gpus.model.check_sums()


# Life cycle

def test_a_part_of_a_kernel_that_was_aborted_is_in_no_sum_of_the_next():
    """Attack: reset in the middle. GPU 1's part waits for GPU 2's; both are reset, and kernel 2 runs."""
    gpus = Gpus(1, whole=2, lawful=False)
    gpus.waiting[1] = [packet(5, column=half(8)), packet(6, column=half(8)), packet(60, UPDATE, epoch=2)]

    async def drive(ctx):
        await ctx.tick().repeat(40)
        assert ctx.get(gpus.dut.holds[0]) == 3
        assert not await gpus.write(ctx, "EPOCH", 2)
        await ctx.tick().repeat(20 * 8 + 60)
        assert ctx.get(gpus.dut.holds[0]) == 1 and not gpus.got[0]
        gpus.waiting[1] = [packet(5, epoch=2), packet(7, STORE, epoch=1)]
        gpus.waiting[2] = [packet(5, epoch=2, column=half(2)), packet(6, epoch=1)]  # of the aborted kernel, late
        gpus.waiting[2] += [packet(60, epoch=2)]
        await ctx.tick().repeat(20 * 8 + 60)
        assert sorted(gpus.sums(0)) == [(5, 2, 0x42004200), (60, 2, 0x40004000)]
        assert len(gpus.got[0]) == 2, "nor a store of it"
        (name, port, _, epoch, _), more = await gpus.error(ctx)
        assert (name, port, epoch, more) == ("stale", 0, 1, 1)
        counted = await gpus.counted(ctx)
        assert counted["dropped"] == 3 and counted["left"] == 2  # the two sums, and the store
        assert ctx.get(gpus.dut.holds[0]) == 1 and ctx.get(gpus.dut.busy)  # of what came late
        assert not await gpus.write(ctx, "EPOCH", 2)  # the same: once more
        await ctx.tick().repeat(20 * 8 + 60)
        assert not ctx.get(gpus.dut.busy) and (await gpus.counted(ctx))["dropped"] == 4

    gpus.run(drive=drive)


@pytest.mark.parametrize("now", on_one([1, 2, 100, 128, 254, 255], 1, 254))
def test_kernel_numbers_are_a_circle_without_0(now):
    """Attack: numbers that wrap. The next 127 kernels are accepted; past ones and 0 are not."""
    gpus = Gpus(1, epoch=now, lawful=False)
    number = lambda far: (now - 1 + far) % 255 + 1  # noqa: E731
    later = [0, 1, 2, 60, 126, 127]
    earlier = [128, 129, 200, 253, 254]

    async def drive(ctx):
        for port, op in ((1, STORE), (2, UPDATE)):
            gpus.waiting[port] = [packet(far, op, epoch=number(far)) for far in later + earlier]
            gpus.waiting[port].append(packet(300, op, epoch=0))
        await ctx.tick().repeat(100)
        assert sorted(one["request"]["address"] >> 2 for one in gpus.got[0]) == sorted(later * 2)
        assert (await gpus.counted(ctx))["dropped"] == 2 * (len(earlier) + 1)
        for far in earlier:
            assert await gpus.write(ctx, "EPOCH", number(far))
        assert await gpus.write(ctx, "EPOCH", 0) and await gpus.write(ctx, "EPOCH", 256 + number(1))
        assert (await gpus.read(ctx, "EPOCH"))["epoch"] == now
        for value in (now, number(127)):
            assert not await gpus.write(ctx, "EPOCH", value)
            assert (await gpus.read(ctx, "EPOCH"))["epoch"] == value

    gpus.run(drive=drive)


def test_two_kernels_may_be_under_way_at_once():
    """One GPU is already in the next kernel: parts of the two are not added."""
    gpus = Gpus(1, whole=2)
    gpus.waiting[1] = [packet(5, epoch=1, column=half(1)), packet(5, epoch=2, column=half(4))]

    async def late(ctx):
        await ctx.tick().repeat(40)
        gpus.waiting[2] = [packet(5, epoch=2, column=half(4)), packet(5, epoch=1, column=half(1))]
        await ctx.tick()

    gpus.run(drive=late)
    assert gpus.sums(0) == [(5, 2, half(8)), (5, 2, half(2))]
    gpus.model.check_sums()


@pytest.mark.parametrize("moment", on_one([1, 9, 23, 60], 23))
def test_reset_in_flight(moment):
    """Attack: reset in the middle. Sums are forgotten, registers are reset, and all credits are back."""
    gpus = Gpus(moment, whole=2)
    rng = random.Random(moment)

    def fill():
        for port in range(3):
            gpus.waiting[port] = [packet(line, rng.choice((STORE, UPDATE)), rng.randrange(1, 8), wg=100 * port + number)
                                  for number, line in enumerate(rng.sample(range(40), 20))]

    async def reset(ctx):
        fill()
        await ctx.tick().repeat(moment)
        for port in range(3):
            gpus.waiting[port] = []
        gpus.holds_back = {0, 1, 2}
        await ctx.tick()
        await gpus.bench.pulse_reset(ctx)
        gpus.sends, gpus.holds_back = False, set()
        gpus.model = SwitchModel(SMALL, 2)
        gpus.credits, gpus.owed, gpus.got = [6] * 3, [0] * 3, [[] for _ in range(3)]
        assert not any(ctx.get(counter) for counter in gpus.dut.counters)
        assert not ctx.get(gpus.dut.error)
        for register in gpus.registers.fixed:  # but what lives
            if register.name != "STATUS":
                word, refused = await gpus.transfer(ctx, register.offset)
                assert (word, refused) == (register.reset, 0), register.name
        gpus.settings["TIMEOUT"] = 4
        fill()
        await gpus.begin(ctx)

    gpus.run(lambda: gpus.idle() and gpus.credits == [6] * 3, cycles=8000, drive=reset)
    gpus.model.check_sums()


# Registers

def test_registers_read_back_and_refuse_what_cannot_be():
    """All addresses, values at and past each limit: refused writes are errors and change nothing."""
    gpus = Gpus(1, whole=3, timeout=7, epoch=9, geometry=COUNTED, lawful=False)
    gpus.settings["WHOLE"] = 2

    async def drive(ctx):
        assert (await gpus.read(ctx, "ID"))["id"] == SWITCH_IDENTITY
        assert (await gpus.read(ctx, "VERSION"))["version"] == VERSION
        assert await gpus.read(ctx, "GEOMETRY") == {"ports": 3, "set_bits": 3, "ways": 2, "most_parts": 2}
        for name, field, value, wrong in (("EPOCH", "epoch", 9, (0, 8, 256 + 10, 1 << 31)),
                                          ("WHOLE", "whole", 2, (0, 3, 1 << 3 | 1, 1 << 31)),
                                          ("TIMEOUT", "timeout", 7, (0, 1 << 16, 1 << 31))):
            for one in wrong:
                assert await gpus.write(ctx, name, one), (name, one)
                assert (await gpus.error(ctx))[0] == ("setting", 0, 0, 0, gpus.registers[name].offset)
            assert await gpus.read(ctx, name) == {field: value}
        mapped = {register.offset for register in gpus.registers.fixed}
        for address in range(0, 0xB0):
            for write in (0, 1):
                if address not in mapped:
                    assert (await gpus.transfer(ctx, address, write, 1))[1], hex(address)
        for register in gpus.registers.fixed:
            if register.access == "ro":
                before = await gpus.transfer(ctx, register.offset)
                assert (await gpus.transfer(ctx, register.offset, 1, 0xFFFFFFFF))[1]
                assert await gpus.transfer(ctx, register.offset) == before
        assert await gpus.error(ctx) == (NO_ERROR, 0)
        assert (await gpus.transfer(ctx, gpus.registers["CONTROL"].offset)) == (0, 0)

    gpus.run(drive=drive)


def test_parts_of_a_sum_change_only_while_the_switch_is_at_rest():
    """A change under way is refused and is an error."""
    gpus = Gpus(1, whole=2)
    gpus.waiting[1] = [packet(5)]

    async def drive(ctx):
        await ctx.tick().repeat(40)
        assert (await gpus.read(ctx, "STATUS"))["busy"] == 1
        assert await gpus.write(ctx, "WHOLE", 3)
        gpus.waiting[2] = [packet(5)]
        await ctx.tick().repeat(40)
        assert (await gpus.read(ctx, "STATUS"))["busy"] == 0
        assert not await gpus.write(ctx, "WHOLE", 3)

    gpus.run(drive=drive)
    assert gpus.sums(0) == [(5, 2, 0x40004000)]


@pytest.mark.parametrize("parts", on_one([1, 2, 3], 3))
def test_a_packet_says_as_many_parts_as_it_has(parts):
    """Every number of parts that a packet can carry; more is refused when it is set."""
    geometry = Geometry(channel=ChannelGeometry(more_bits=2), switch=SMALL.switch)
    gpus = Gpus(1, whole=parts, geometry=geometry)
    for port in range(parts):
        gpus.waiting[port] = [packet(line, more=0) for line in range(4)]
    gpus.run()
    assert [(one["parts"], one["request"]["more"]) for one in gpus.got[0]] == [(parts, parts - 1)] * 4


def test_busy_is_whatever_is_in_the_switch_or_owed_to_it():
    """Clearing, a packet at its port, a waiting part, a packet without credit, a missing credit: per cycle."""
    gpus = Gpus(1, whole=2, lawful=False)
    seen = []

    async def drive(ctx):
        async def busy_for(cycles):
            states = set()
            for _ in range(cycles):
                _, _, busy = await ctx.tick().sample(gpus.dut.busy)
                states.add(busy)
            return states

        await ctx.tick().repeat(60)  # it has flushed what there is of kernels before the first
        assert await busy_for(20) == {0}
        gpus.waiting[1] = [packet(5)]
        await ctx.tick().repeat(8)
        assert await busy_for(60) == {1}, "a sum is kept"
        gpus.waiting[2] = [packet(5)]
        await ctx.tick().repeat(40)
        assert await busy_for(20) == {0}
        gpus.holds_back = {0}
        gpus.waiting[1] = [packet(9, STORE)]
        await ctx.tick().repeat(20)
        assert len(gpus.got[0]) == 2 and await busy_for(60) == {1}, "a credit is missing"
        gpus.holds_back = set()
        await ctx.tick().repeat(4)
        assert await busy_for(20) == {0}
        gpus.holds_back = {0}
        gpus.waiting[1] = [packet(line, STORE) for line in range(20)]
        await ctx.tick().repeat(60)
        assert await busy_for(20) == {1}
        gpus.holds_back = set()
        await ctx.tick().repeat(100)
        assert await busy_for(20) == {0}
        # From the cycle in which a packet comes to that in which its credit is back it is busy without a pause.
        for op in (STORE, UPDATE):
            gpus.settings["WHOLE"] = 1
            assert not await gpus.write(ctx, "WHOLE", 1)
            await ctx.tick().repeat(5)
            before, gpus.waiting[1] = len(gpus.got[0]), [packet(30, op)]
            seen.clear()
            for _ in range(30):
                signals = (gpus.dut.busy, gpus.dut.arriving[1].valid, gpus.dut.taken[0])
                seen.append((await ctx.tick().sample(*signals))[2:])
            assert len(gpus.got[0]) == before + 1
            come, back = ([bool(one[which]) for one in seen].index(True) for which in (1, 2))
            assert [one[0] for one in seen] == [come < cycle <= back for cycle in range(len(seen))]

    gpus.run(drive=drive)


# Errors and counters

async def send(ctx, gpus, port, bound):
    """Send a packet in one cycle, whether there is a credit or not."""
    ctx.set(gpus.dut.arriving[port].payload, bound)
    ctx.set(gpus.dut.arriving[port].valid, 1)
    await ctx.tick()
    ctx.set(gpus.dut.arriving[port].valid, 0)


@pytest.mark.parametrize("port", on_one(range(3), 2))
def test_each_error_by_itself_with_its_details(port):
    """The registers hold it until it is cleared."""
    gpus = Gpus(1, whole=2, lawful=False, plays=False)
    to = (port + 1) % 3
    odd = 0x8000_0000_1234 & ~3

    async def drive(ctx):
        async def told(name, at, source, epoch, address, wait=60):
            await ctx.tick().repeat(wait)
            assert await gpus.error(ctx, clear=False) == ((name, at, source, epoch, address), 0)
            assert await gpus.error(ctx) == ((name, at, source, epoch, address), 0)
            assert await gpus.error(ctx) == (NO_ERROR, 0)

        await told(*NO_ERROR)
        ctx.set(gpus.dut.taken[port], 1)
        await ctx.tick()
        ctx.set(gpus.dut.taken[port], 0)
        await told("excess", port, 0, 0, 0)
        await send(ctx, gpus, port, packet(0, address=odd, to=0, epoch=7))
        await told("nowhere", port, port, 7, odd)
        for wrong in ({"parts": 0}, {"parts": 2}, {"bytes": 0}, {"bytes": 5}, {"bytes": 127}):
            await send(ctx, gpus, port, packet(0, to=1 << to, epoch=3, **({"address": odd} | wrong)))
            await told("refused", to, port, 3, odd)
        await send(ctx, gpus, port, packet(0, address=odd, to=1 << to, epoch=3))
        await told(*NO_ERROR)
        await send(ctx, gpus, port, packet(0, address=odd, to=1 << to, epoch=3))
        await told("repeated", to, port, 3, odd)
        await send(ctx, gpus, to, packet(0, address=odd, to=1 << to, epoch=3))  # the sum becomes whole
        await told(*NO_ERROR)
        for epoch in (0, 200):
            await send(ctx, gpus, port, packet(0, STORE, address=odd, to=1 << to, epoch=epoch))
            await told("stale", to, 0, epoch, odd)
        for number in range(2 * 6 + 2 + 6):  # of which 12 have a place, two of them between the ends
            await send(ctx, gpus, port, packet(number, STORE, to=1 << to))
        await ctx.tick().repeat(30)
        name, overflow = await gpus.error(ctx, clear=False)
        assert name[:4] == ("overrun", port, port, 1) and overflow
        assert name[4] >> 2 == (await gpus.counted(ctx))["arrived"] - 1 - 5 - 2 - 1 - 2

    gpus.run(drive=drive, cycles=20_000)


def test_of_two_errors_at_once_the_first_is_kept_and_the_other_is_not_hidden():
    """Attack: two things in one cycle; also later, and in the clearing's cycle: STATUS shows overflow."""
    gpus = Gpus(1, whole=2, lawful=False, plays=False)

    async def drive(ctx):
        for one in gpus.dut.taken:
            ctx.set(one, 1)
        await ctx.tick()
        for one in gpus.dut.taken:
            ctx.set(one, 0)
        assert await gpus.error(ctx) == (("excess", 0, 0, 0, 0), 1), "in one cycle"
        ctx.set(gpus.dut.taken[2], 1)
        await ctx.tick()
        ctx.set(gpus.dut.taken[2], 0)
        assert await gpus.error(ctx, clear=False) == (("excess", 2, 0, 0, 0), 0)
        await send(ctx, gpus, 1, packet(5, to=0))
        await ctx.tick().repeat(5)
        assert await gpus.error(ctx) == (("excess", 2, 0, 0, 0), 1), "later"
        assert await gpus.error(ctx) == (NO_ERROR, 0)
        # An error in the cycle of the clearing is latched.
        for late in range(6):
            ctx.set(gpus.dut.taken[0], 1)
            await ctx.tick()
            ctx.set(gpus.dut.taken[0], 0)
            apb = gpus.dut.apb
            for signal, value in ((apb.paddr, 0x10), (apb.psel, 1), (apb.penable, 1), (apb.pwrite, 1), (apb.pwdata, 1)):
                ctx.set(signal, value)
            for cycle in range(8):
                ctx.set(gpus.dut.taken[1], cycle == late)
                _, _, ready = await ctx.tick().sample(apb.pready)
                if ready:
                    ctx.set(apb.psel, 0)
            ctx.set(gpus.dut.taken[1], 0)
            (name, port, *_), more = await gpus.error(ctx)
            assert (name, port, more) == (("excess", 1, 0) if late >= 1 else NO_ERROR[:2] + (0,)), late
        # A setting that is refused in the cycle of another error.
        for wait in range(4):
            ctx.set(gpus.dut.apb.paddr, gpus.registers["TIMEOUT"].offset)
            for signal, value in ((gpus.dut.apb.psel, 1), (gpus.dut.apb.pwrite, 1), (gpus.dut.apb.pwdata, 0),
                                  (gpus.dut.apb.penable, 0)):
                ctx.set(signal, value)
            for cycle in range(4):
                ctx.set(gpus.dut.taken[1], cycle == wait)
                ctx.set(gpus.dut.apb.penable, cycle >= 1)
                _, _, ready = await ctx.tick().sample(gpus.dut.apb.pready)
                if ready:
                    ctx.set(gpus.dut.apb.psel, 0)
            ctx.set(gpus.dut.taken[1], 0)
            (name, *_), more = await gpus.error(ctx)
            assert (name, more) == ("excess" if wait <= 1 else "setting", 1)

    gpus.run(drive=drive, cycles=20_000)


def test_every_counter_counts_each_event_once_and_is_cleared():
    """Each event by itself; all counters are compared after each."""
    gpus = Gpus(1, whole=2, timeout=1000, lawful=False)

    async def drive(ctx):
        expected = dict.fromkeys(COUNTERS, 0)

        async def after(packets, settle=60, **events):
            for port, items in packets.items():
                gpus.waiting[port] = list(items)
                await ctx.tick()
                while gpus.waiting[port]:
                    await ctx.tick()
                await ctx.tick().repeat(30)
            await ctx.tick().repeat(settle)
            for name, count in events.items():
                expected[name] += count
            assert await gpus.counted(ctx) == expected
            assert [ctx.get(counter) for counter in gpus.dut.counters] == list(expected.values())

        await after({})
        await after({1: [packet(5, STORE, to=0b111)]}, arrived=1, left=3)
        await after({1: [packet(5)]}, arrived=1, begun=1)
        await after({1: [packet(5)]}, arrived=1, refused=1)
        await after({2: [packet(5)]}, arrived=1, completed=1, left=1)
        await after({2: [packet(5, to=0)]}, arrived=1)
        await after({1: [packet(5, parts=0)]}, arrived=1, refused=1)
        await after({1: [packet(5, epoch=0)], 2: [packet(6, STORE, epoch=0)]}, arrived=2, begun=1, dropped=1)
        await after({1: [packet(line) for line in (0, 8, 16)]}, arrived=3, begun=3, evicted=1, left=1)
        await after({0: [packet(16)]}, arrived=1, completed=1, left=1)
        await gpus.write(ctx, "TIMEOUT", 3)
        await after({}, 400, expired=2, left=1, dropped=1)
        await after({1: [packet(5)]}, 400, arrived=1, begun=1, expired=1, left=1)
        await gpus.write(ctx, "CONTROL", 2)
        await ctx.tick().repeat(3)
        expected = dict.fromkeys(COUNTERS, 0)
        await after({})

    gpus.run(drive=drive)

    three = Gpus(1, whole=3, lawful=False)

    async def join(ctx):
        for port in range(3):
            three.waiting[port] = [packet(line) for line in range(5)]
        await ctx.tick().repeat(200)
        counted = await three.counted(ctx)
        assert counted == dict.fromkeys(COUNTERS, 0) | {"arrived": 15, "left": 5, "begun": 5, "joined": 5,
                                                        "completed": 5}
        assert await three.error(ctx) == (NO_ERROR, 0)

    three.run(drive=join)


def test_a_gpu_that_repeats_a_part_changes_no_sum():
    """Attack: a peer that repeats. Of two parts per sum, the first GPU's arrives twice; the error says so."""
    gpus = Gpus(1, whole=2, lawful=False)
    gpus.waiting[1] = [packet(5, column=half(1)), packet(5, column=half(1))]

    async def drive(ctx):
        await ctx.tick().repeat(60)
        gpus.waiting[2] = [packet(5, column=half(2))]
        await ctx.tick().repeat(60)
        assert gpus.sums(0) == [(5, 2, 0x42004200)]
        assert await gpus.error(ctx) == (("repeated", 0, 1, 1, 5 << 2), 0)

    gpus.run(drive=drive)


def test_a_silent_gpu_holds_up_nobody():
    """Attack: a silent peer. Two of three GPUs send and get everything."""
    gpus = Gpus(1, whole=3, timeout=5)
    gpus.waiting[1] = [packet(line) for line in range(20)]
    gpus.waiting[2] = [packet(line) for line in range(20)]
    gpus.run(cycles=8000)
    gpus.model.check_sums()
    assert sum(parts for _, parts, _ in gpus.sums(0)) == 40


def test_latency():
    """One part that is a whole sum leaves `latency_cycles` after its arrival."""
    gpus = Gpus(1, whole=1)
    dut, came = gpus.dut, []

    async def watch(ctx):
        gpus.waiting[2] = [packet(5, to=0b010)]
        sent = None
        while not came:
            _, _, arriving, leaving = await ctx.tick().sample(dut.arriving[2].valid, dut.leaving[1].valid)
            sent = gpus.cycle if arriving else sent
            if leaving:
                came.append(gpus.cycle - sent)

    gpus.run(drive=watch)
    assert came == [SMALL.switch.latency_cycles]


def test_the_registers_have_the_hardwares_names():
    """Error codes of the register map equal the RTL's."""
    assert SWITCH_ERRORS == {error.name.lower(): error.value for error in SwitchError}


def test_the_page_has_every_register():
    """docs/reference/switch.md has a row for each register."""
    page = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "switch.md").read_text(encoding="utf-8")
    for row in rows_of(switch_registers(Geometry()).fixed):
        assert f"| {' | '.join(row)} |" in page
