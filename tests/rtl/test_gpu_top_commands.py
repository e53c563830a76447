"""Commands in memory on the wired GPU: what they copy, when they signal, what halts them."""

from collections import Counter, deque
from dataclasses import replace

import pytest

from t3sim.cosim.driver.driver import Destination
from t3sim.rtl.queue_commands import ADD, COPY, POLL, SIGNAL, TIMESTAMP, Command
from t3sim.rtl.registers import WATCHDOG_PERIOD
from tests.support.gpu import (
    _SMALL,
    BASE,
    COLUMNS,
    DMA,
    DMA_REGION,
    FLAG,
    GEOMETRY,
    LANES,
    LIMIT,
    OFFSET,
    PEER,
    PITCH,
    QUEUE_HANGS,
    READ,
    RING,
    SIGNALLED,
    STAMP,
    STORE,
    THERE,
    WG_OFFSET,
    Gpu,
    QueueGpu,
    a_commands_line_does_not_come,
    a_poll_does_not_come_true,
    complete,
    complete_both_ways,
    copy_of,
    lines,
    outline,
    waits_in_the_end,
)

pytestmark = pytest.mark.builds_rtl


def test_commands_in_memory_copy_what_their_regions_say(seed):
    """After a poll; the signal follows the last packet, and a timestamp lies in a ring place that is used again."""
    gpu = QueueGpu(seed=seed, idle=0.3)
    gpu.commands(Command(5, POLL, FLAG, 0, 0, 0), copy_of(0), copy_of(1), Command(77, SIGNAL, SIGNALLED, 0, 0, 0))
    gpu.run(300)
    assert gpu.looks and not gpu.dram and not gpu.writes and gpu.read("QUEUE_TAKEN") == 0
    gpu.words[FLAG] = 5
    gpu.run(900)
    sent = [line for wf in range(2) for line in lines(BASE + wf * COLUMNS * PITCH)]
    assert outline(gpu.packets, "address", "bytes", "device", "region", "wg") == Counter(
        (address + OFFSET, size, PEER, THERE, 3 + WG_OFFSET) for address, size in sent)
    assert [write[1:] for write in gpu.writes] == [(SIGNALLED, 77, len(sent))]
    assert gpu.read("QUEUE_TAKEN") == 4 and not gpu.busy() and gpu.error() is None
    gpu.commands(Command(0, TIMESTAMP, STAMP, 0, 0, 0))
    gpu.run(200)
    gpu.commands(Command(0, TIMESTAMP, STAMP, 0, 0, 0))
    gpu.run(200)
    (first, _, before, _), (second, _, after, _) = gpu.writes[1:]
    assert 0 < after - before and gpu.read("QUEUE_TAKEN") == 6
    counted = gpu.counters()
    assert counted["commands"] == 2 and counted["lines"] == len(sent)


class NarrowGpu(QueueGpu):
    """As few lines as possible may be under way: between two of a copy, none is for a cycle."""

    geometry = replace(_SMALL, channel=replace(_SMALL.channel, channels=1), tracker=replace(_SMALL.tracker, banks=1),
                       dma=replace(GEOMETRY.dma, egress_lanes=1, peers=1, outstanding_lines=2 * GEOMETRY.dma.engines,
                                   ready_commands=2))


@pytest.mark.slow
def test_a_tile_that_goes_both_ways_raises_one_event_however_long_it_waits_to_be_sent():
    """No read returns, so engines and command table are full."""
    gpu = NarrowGpu()
    gpu.blocked = {"packets"}
    tiles = complete_both_ways(gpu, 4, 8)
    assert len(gpu.events) < 32
    gpu.blocked = set()
    gpu.run(1500)
    assert outline(gpu.events, "wg", "wf") == tiles == outline(gpu.packets, "wg", "wf") and gpu.error() is None


@pytest.mark.slow
@pytest.mark.parametrize("engine", range(GEOMETRY.dma.engines))
def test_a_signal_waits_for_an_engine_that_asks_for_no_line_yet(engine):
    """Engines take turns; all others have ended before the last copy."""
    gpu = NarrowGpu()
    gpu.commands(*(copy_of(wf) for wf in range(engine)))
    gpu.run(2000)
    assert len(gpu.packets) == 12 * engine and not gpu.busy()
    gpu.commands(copy_of(engine), Command(1, SIGNAL, SIGNALLED, 0, 0, 0))
    gpu.run(1000)
    assert [write[1:] for write in gpu.writes] == [(SIGNALLED, 1, 12 * (engine + 1))]


def test_a_command_whose_turn_finds_its_engine_busy_goes_to_the_next():
    """One block of 896 lines, then short ones, so one engine's turn finds it full."""
    gpu, large = QueueGpu(memory_cycles=3), 6
    gpu.program(gpu.driver.dma_map(large, base=BASE, limit=LIMIT, to=[Destination(PEER, THERE)],
                                   row_bytes=4096, columns=14, pitch_bytes=4096, updates_per_element=1))
    short = 3 * GEOMETRY.dma.engines
    commands = [Command(0, COPY, BASE // 64 * 64, large, 0, 3), *(copy_of(number % 8) for number in range(short))]
    for first in range(0, len(commands), 4):
        gpu.commands(*commands[first:first + 4])
        gpu.run(80)
    assert gpu.read("QUEUE_TAKEN") == len(commands) % 8 and "engines_busy" in gpu.status()
    gpu.run(3000)
    assert len(gpu.packets) == 896 + 12 * short and not gpu.busy()


def test_triggers_and_commands_in_memory_share_the_engines(seed):
    """Tiles complete while a program of copies runs; the packets of both leave."""
    gpu = QueueGpu(seed=seed)
    gpu.commands(*(copy_of(wf) for wf in range(4, 7)), Command(1, SIGNAL, SIGNALLED, 0, 0, 0))
    complete(gpu, 4, DMA_REGION)
    gpu.run(900)
    reads = [command for command in gpu.dram if command["op"] == READ]
    assert outline(reads, "address", "bytes") == Counter(
        line for wf in range(7) for line in lines(BASE + wf * COLUMNS * PITCH))
    assert len(gpu.packets) == 7 * 12 and gpu.error() is None and gpu.writes[0][3] >= 3 * 12


@pytest.mark.parametrize("gpu", [QueueGpu, NarrowGpu])
def test_a_broadcast_is_read_once_and_a_signal_waits_for_its_last_packet(gpu, seed):
    """Also with as few lines under way as possible; repeated lines count again."""
    gpu, first, second, third = gpu(seed=seed), 4, 6, 7
    for region, devices in ((first, (1, 2, 3)), (second, (2, 3)), (third, (3,))):  # on the same routes
        gpu.program(gpu.driver.copy_map(region, base=BASE, limit=LIMIT, row_bytes=256, columns=4,
                                        to=[(device, device << 20) for device in devices]))
    source = BASE
    gpu.commands(*(Command(0, COPY, source + 1024 * number, first, 0, 0) for number in range(2)),
                 Command(5, ADD, SIGNALLED, 0, 0, 0))
    gpu.run(2000)
    assert outline(gpu.packets, "address", "bytes", "device") == Counter(
        (source + 64 * line + (device << 20), 64, device) for line in range(32) for device in (1, 2, 3))
    assert [write[1:] for write in gpu.writes] == [(SIGNALLED, 5, 96)] and not gpu.busy() and gpu.error() is None
    assert gpu.counters()["lines"] == 32 and gpu.counters()["commands"] == 2
    gpu.commands(*(Command(0, COPY, source, second, 0, 0) for _ in range(2)))
    gpu.run(1000)
    assert len(gpu.packets) == 96 + 2 * 16 * 2 and not gpu.busy()


def test_a_trigger_is_sooner_than_a_poll():
    """Cycles to the first line read, from the grant of a tile's last write and from the write that a poll waits for."""
    gpu = QueueGpu()
    gpu.commands(Command(5, POLL, FLAG, 0, 0, 0), copy_of(0))
    gpu.run(100)
    gpu.words[FLAG] = 5
    set_at = gpu.cycle
    gpu.run(300)
    polled = next(command["cycle"] for command in gpu.dram if command["op"] == READ) - set_at
    gpu = QueueGpu()
    complete(gpu, 1, DMA_REGION)
    gpu.run(300)
    reads = [command["cycle"] for command in gpu.dram if command["op"] == READ]
    triggered = reads[0] - max(command["cycle"] for command in gpu.dram if command["op"] != READ)
    assert triggered < 50 < polled < 200, (triggered, polled)


def test_a_soft_reset_empties_the_command_queue():
    """A reset while a poll reads leaves no read under way; the queue then works as new."""
    gpu = QueueGpu()
    gpu.commands(Command(5, POLL, FLAG, 0, 0, 0), copy_of(0))
    gpu.run(100)
    gpu.soft_reset()
    gpu.restart()
    gpu.words[FLAG] = 5
    gpu.run(300)
    assert not gpu.packets and not gpu.dram and gpu.read("QUEUE_TAKEN") == 0
    gpu.written = 0
    gpu.commands(copy_of(0))
    gpu.run(300)
    assert len(gpu.packets) == 12


@pytest.mark.parametrize("done", [*range(2 * GEOMETRY.dma.queue_commands), 9])
def test_a_soft_reset_does_no_command_again(done):
    """After 0 to 9 commands of an idle queue; the queue then counts from 0."""
    gpu = QueueGpu(memory_cycles=3)
    for number in range(done):
        gpu.commands(Command(100 + number, ADD, SIGNALLED, 0, 0, 0))
        gpu.run(40)
    assert len(gpu.writes) == done and not gpu.busy()
    gpu.soft_reset()
    assert gpu.read("DOORBELL") == gpu.read("QUEUE_TAKEN") == 0
    gpu.restart(1)
    gpu.run(300)
    assert len(gpu.writes) == done and gpu.error() is None
    gpu.written = 0
    gpu.commands(Command(1, SIGNAL, SIGNALLED, 0, 0, 0))
    gpu.run(100)
    assert [write[2] for write in gpu.writes[done:]] == [1] and gpu.read("QUEUE_TAKEN") == 1


@pytest.mark.parametrize("op", [SIGNAL, ADD])
@pytest.mark.parametrize("reads", [1, 6, 12])
def test_a_soft_reset_in_a_copy_sends_no_signal(op, reads):
    """No packet of the copy has left; its lines are half read, or all read."""
    gpu = QueueGpu(memory_cycles=200)
    gpu.commands(copy_of(0), Command(1, op, SIGNALLED, 0, 0, 0))
    while sum(command["op"] == READ for command in gpu.dram) < reads:
        gpu.run(1)
    gpu.run(100 if reads == 12 else 0)
    gpu.soft_reset()
    assert not gpu.packets and not gpu.writes and gpu.error() is None
    gpu.restart(1)
    gpu.run(500)
    assert not gpu.packets and not gpu.writes and not gpu.busy()


def test_a_soft_reset_waits_for_the_data_of_a_copy():
    """STATUS shows `resetting` while data of the copy are outstanding."""
    gpu = QueueGpu()
    gpu.returning = None
    gpu.commands(copy_of(0))
    gpu.run(200)
    gpu.program(gpu.driver.soft_reset(16))
    gpu.run(1000)
    assert gpu.busy() == {"resetting", "reads_outstanding"}


def test_a_soft_reset_takes_no_offered_signal_back():
    """A signal that memory has not taken stays valid until it is taken."""
    gpu = QueueGpu(memory_cycles=3)
    gpu.blocked = {"queue_writes"}
    gpu.commands(Command(7, SIGNAL, SIGNALLED, 0, 0, 0))
    gpu.run(60)
    gpu.program(gpu.driver.soft_reset(16))
    gpu.run(1000)
    assert gpu.get("queue_writes.valid") and "resetting" in gpu.status()
    gpu.blocked = set()
    gpu.run(200)
    assert [write[2] for write in gpu.writes] == [7] and gpu.busy() == {"reset_done"}


class PipelinedGpu(QueueGpu):
    """Memory takes reads while lines of older ones are still to come, and answers in order, when a test says so."""

    def __init__(self, **options) -> None:
        self.asked: deque = deque()  #: addresses, of lines that have not come
        self.answers = 1 << 30  #: lines that may come
        super().__init__(**options)

    def _step(self) -> None:
        due = bool(self.asked) and self.answers > 0
        self.put("queue_lines.valid", due)
        if due:
            self.put_fields("queue_lines.payload", self.ring[self.asked[0]])
        for name in ("queue_reads", "queue_writes"):
            self.put(f"{name}.ready", 1)
        came = due and self.get("queue_lines.ready")
        if self.get("queue_reads.valid"):
            self.asked.append(self.get("queue_reads.payload"))
        if came:
            self.asked.popleft()
            self.answers -= 1
        if self.get("queue_writes.valid"):
            write = self.fields("queue_writes.payload")
            self.writes.append((self.cycle, write["address"], write["value"], len(self.packets)))
        Gpu._step(self)

    def ring_anew(self, *values: int) -> None:
        """Force a soft reset, restart, and write a new ring of as many signals."""
        self.program(self.driver.clear_error() + self.driver.soft_reset(16, limit_cycles=WATCHDOG_PERIOD))
        self.run(600)
        assert self.error()["code"] == "reset_forced" and self.busy() == {"reset_done", "lines_owed"}
        self.program(self.driver.clear_error())
        self.restart(1)
        self.run(2 * GEOMETRY.tracker.window_slots)
        self.written = 0
        self.commands(*(Command(value, SIGNAL, SIGNALLED, 0, 0, 0) for value in values))


@pytest.mark.parametrize("resets", [1, 2, 3])
def test_lines_that_come_after_forced_resets_are_no_commands(resets):
    """Attack: reset in the middle, late response. One late line per forced reset; each is dropped and reported."""
    gpu = PipelinedGpu()
    gpu.answers = 0
    gpu.commands(Command(0xBAD, SIGNAL, SIGNALLED, 0, 0, 0))
    for number in range(resets):
        gpu.run(50)
        assert gpu.busy() == {"queue_busy", "lines_owed"} and len(gpu.asked) == number + 1
        gpu.ring_anew(1, 2, 3)
    before = gpu.counters()["errors"]
    for number in range(resets):
        gpu.answers = 1
        gpu.run(50)
        assert gpu.error()["code"] == "line_unexpected" and gpu.counters()["errors"] == before + number + 1
        assert not gpu.writes and gpu.busy() == {"queue_busy", "lines_owed"}
    gpu.program(gpu.driver.clear_error())
    gpu.answers = 1 << 30
    gpu.run(200)
    assert [write[2] for write in gpu.writes] == [1, 2, 3] and gpu.read("QUEUE_TAKEN") == 3
    assert gpu.error() is None and not gpu.busy() and not gpu.asked


def test_a_late_line_before_the_new_rings_doorbell_is_no_command():
    """Attack: reset in the middle, late response; memory takes no further read before it has answered."""
    gpu = QueueGpu()
    gpu.memory_cycles = 3000
    gpu.commands(Command(0xBAD, SIGNAL, SIGNALLED, 0, 0, 0))
    gpu.run(50)
    gpu.program(gpu.driver.soft_reset(16, limit_cycles=WATCHDOG_PERIOD))
    gpu.run(1000)
    assert gpu.error()["code"] == "reset_forced" and gpu.busy() == {"reset_done", "lines_owed"}
    gpu.program(gpu.driver.clear_error())
    gpu.restart(1)
    gpu.run(50)
    assert gpu.busy() == {"lines_owed"}
    gpu.memory_cycles, gpu.written = 20, 0
    gpu.commands(*(Command(value, SIGNAL, SIGNALLED, 0, 0, 0) for value in (1, 2)))
    gpu.run(3000)
    assert [write[2] for write in gpu.writes] == [1, 2] and gpu.error()["code"] == "line_unexpected"
    assert gpu.counters()["errors"] == 2 and not gpu.busy()


def test_a_line_that_nobody_asked_for_is_no_command():
    """Attack: unasked response, at the queue's port before the doorbell. It is dropped and reported."""
    gpu = QueueGpu(memory_cycles=3)
    gpu.answer = 0, Command(0xBAD, SIGNAL, SIGNALLED, 3, 2, 1)._asdict()
    gpu.run(50)
    assert gpu.error() == {"code": "line_unexpected", "address": SIGNALLED, "region": 3, "wf": 2, "wg": 1}
    assert gpu.answer is None and not gpu.busy()
    gpu.program(gpu.driver.clear_error())
    gpu.commands(Command(1, SIGNAL, SIGNALLED, 0, 0, 0))
    gpu.run(100)
    assert [write[2] for write in gpu.writes] == [1] and gpu.error() is None


def test_a_soft_reset_waits_for_a_line_that_an_earlier_one_did_not():
    """Attack: two resets, the second without a limit; the watchdog reports a silent memory."""
    gpu = PipelinedGpu()
    gpu.answers = 0
    gpu.commands(Command(0xBAD, SIGNAL, SIGNALLED, 0, 0, 0))
    gpu.run(50)
    gpu.ring_anew()
    assert waits_in_the_end(gpu) == {"fetch"}
    gpu.program(gpu.driver.clear_error() + gpu.driver.watchdog(None) + gpu.driver.soft_reset(16, limit_cycles=None))
    gpu.run(1000)
    assert gpu.busy() == {"resetting", "lines_owed"}
    gpu.answers = 1
    gpu.run(400)
    assert gpu.busy() == {"reset_done"} and gpu.error()["code"] == "line_unexpected"


SIGNALS = Command(7, SIGNAL, SIGNALLED, 0, 0, 0)
#: What a command is refused for, and the command; copies are refused by their engine, or in a lane.
BAD_COMMANDS = {
    "command_unknown": SIGNALS._replace(op=5),
    "word_misaligned": SIGNALS._replace(address=SIGNALLED + 2),
    "word_out_of_range": SIGNALS._replace(op=ADD, address=FLAG + 0x1000),
    "address_out_of_range": copy_of(0)._replace(address=LIMIT + 4096),
    "region_unconfigured": copy_of(0)._replace(region=4),
}


@pytest.mark.parametrize("error", BAD_COMMANDS)
def test_a_command_that_fails_halts_the_queue(error):
    """No signal follows. The driver repairs the command, or skips a copy, and the queue continues."""
    gpu, bad = QueueGpu(), BAD_COMMANDS[error]
    halted = {"queue_busy", "queue_halted"} | ({"copy_failed"} if bad.op == COPY else set())
    gpu.commands(bad, SIGNALS)
    gpu.run(1500)
    assert not gpu.writes and not gpu.packets and gpu.busy() == halted
    assert gpu.error()["code"] == error and gpu.read("QUEUE_TAKEN") == (bad.op == COPY)
    assert {name: gpu.error()[name] for name in ("region", "wg")} == {"region": bad.region, "wg": bad.wg}
    gpu.program(gpu.driver.clear_error())
    assert not gpu.run(300).writes and gpu.busy() == halted
    gpu.ring[RING] = SIGNALS._replace(value=3)._asdict()
    gpu.program(gpu.driver.resume_queue())
    gpu.run(300)
    if bad.op == COPY:
        assert not gpu.writes and gpu.busy() == halted and gpu.error() is None
        gpu.program(gpu.driver.skip_command())
        gpu.run(300)
    assert [write[2] for write in gpu.writes] == ([7] if bad.op == COPY else [3, 7])
    assert not gpu.busy() and gpu.error() is None


def test_a_copy_that_failed_is_done_again_before_its_signal():
    """Software rewrites copy and signal in the places that are not done, then skips the failed copy."""
    gpu = QueueGpu()
    gpu.commands(copy_of(0)._replace(address=LIMIT + 4096), SIGNALS)
    gpu.run(1500)
    assert gpu.read("QUEUE_TAKEN") == 1 and not {"engines_busy", "lines_owed"} & gpu.busy()
    gpu.written = 1
    gpu.commands(copy_of(0), SIGNALS)
    gpu.program(gpu.driver.clear_error() + gpu.driver.resume_queue())
    assert not gpu.run(300).writes and not gpu.packets
    gpu.program(gpu.driver.skip_command())
    gpu.run(600)
    assert [write[2:] for write in gpu.writes] == [(7, 12)] and gpu.read("QUEUE_TAKEN") == 3
    assert not gpu.busy() and gpu.error() is None


def test_a_command_that_is_refused_can_be_skipped():
    """The error names the command; after the skip the commands behind it run."""
    gpu = QueueGpu()
    gpu.commands(SIGNALS._replace(op=5), SIGNALS, SIGNALS._replace(op=6), SIGNALS._replace(value=8))
    for values in ([], [7], [7, 8]):
        gpu.run(300)
        assert [write[2] for write in gpu.writes] == values
        gpu.program(gpu.driver.skip_command())
    assert gpu.read("QUEUE_TAKEN") == 4 and not gpu.busy()


@pytest.mark.parametrize("lane", range(LANES))
def test_no_signal_follows_data_that_a_lane_refused(lane):
    """Lines of the copy refused in each lane: an error, and the queue halts."""
    gpu = QueueGpu(memory_cycles=200)
    gpu.commands(copy_of(0), SIGNALS)
    while len(gpu.returning) < 12:
        gpu.run(1)
    gpu.program(gpu.driver.unmap(DMA_REGION))
    while gpu.returning:  # all by this lane
        gpu.waiting[f"outbound[{lane}]"].append(gpu.returning.popleft()[1])
    gpu.run(1500)
    assert not gpu.writes and not gpu.packets and gpu.busy() == {"queue_busy", "queue_halted", "copy_failed"}
    assert gpu.error()["code"] == "region_unconfigured" and gpu.counters()["errors"] == 12
    gpu.soft_reset()
    gpu.restart(1)
    gpu.run(300)
    assert not gpu.writes and not gpu.busy()


@pytest.mark.parametrize("gpu", [QueueGpu, NarrowGpu])
def test_a_signal_waits_for_the_queues_own_copies_alone(gpu, seed):
    """Data of a trigger do not arrive until the end, and the signal does not wait for them."""
    gpu = gpu(seed=seed, memory_cycles=90)
    complete(gpu, 1, DMA_REGION)
    while not gpu.returning:
        gpu.run(1)
    gpu.run(60)
    held, gpu.returning = gpu.returning, deque()
    assert {line["source"] for _, line in held} == {DMA}
    narrow = len(held) < 12
    assert narrow == isinstance(gpu, NarrowGpu) == ("engines_busy" in gpu.busy())
    gpu.commands(*([] if narrow else [copy_of(6)]), SIGNALS, copy_of(7))
    gpu.run(1000)
    assert [write[2:] for write in gpu.writes] == [(7, 0 if narrow else 12)]
    assert len(gpu.packets) == (0 if narrow else 24)
    assert "reads_outstanding" in gpu.busy() and gpu.error() is None
    gpu.returning.extend(held)
    gpu.run(900)
    assert len(gpu.packets) == (24 if narrow else 36) and gpu.busy() == {"window_open"} and gpu.error() is None


def test_a_trigger_that_fails_holds_up_no_signal():
    """A trigger's data are refused next to a copy's, and one line more arrives than was requested."""
    gpu = QueueGpu(memory_cycles=200)
    complete(gpu, 1, DMA_REGION)
    gpu.commands(copy_of(6)._replace(region=6), SIGNALS)
    gpu.program(gpu.driver.copy_map(6, base=BASE, limit=LIMIT, row_bytes=256, columns=1, to=[(PEER, OFFSET)]))
    while len(gpu.returning) < 16:
        gpu.run(1)
    gpu.program(gpu.driver.unmap(DMA_REGION))
    gpu.waiting["outbound[0]"] += [{"op": READ, "bytes": 64, "address": BASE, "source": DMA, "region": 6, "wf": 0,
                                    "wg": 0}] * 13
    gpu.run(1500)
    assert [write[2] for write in gpu.writes] == [7] and "queue_halted" not in gpu.status()
    assert gpu.error()["code"] in ("region_unconfigured", "data_unexpected")


@pytest.mark.parametrize("lane", range(LANES))
def test_no_signal_follows_data_that_nobody_asked_for(lane):
    """Unrequested data may have arrived in place of the copy's data."""
    gpu = QueueGpu(memory_cycles=200)
    gpu.commands(copy_of(0), SIGNALS)
    while len(gpu.returning) < 12:
        gpu.run(1)
    gpu.waiting[f"outbound[{lane}]"] += [gpu.returning.popleft()[1] for _ in range(12)]
    gpu.waiting[f"outbound[{lane}]"].append(gpu.waiting[f"outbound[{lane}]"][0])
    gpu.run(1500)
    assert not gpu.writes and len(gpu.packets) == 12
    assert gpu.busy() == {"queue_busy", "queue_halted", "copy_failed"}
    assert gpu.error()["code"] == "data_unexpected"


@pytest.mark.parametrize(("done", "doorbell"), [(0, 5), (2, 7), (3, 2), (3, 0), (6, 11), (6, 5)])
def test_a_doorbell_beyond_the_ring_or_backwards_is_refused(done, doorbell):
    """It is reported, and no command runs."""
    gpu = QueueGpu(memory_cycles=3)
    for number in range(done):
        gpu.commands(SIGNALS._replace(value=number))
        gpu.run(40)
    gpu.program(gpu.driver.doorbell(doorbell))
    gpu.run(300)
    assert len(gpu.writes) == done and not gpu.busy() and gpu.error()["code"] == "doorbell_refused"
    gpu.program(gpu.driver.clear_error())
    gpu.commands(*(SIGNALS._replace(value=done + more) for more in range(4)))  # a full ring
    gpu.run(300)
    assert [write[2] for write in gpu.writes] == list(range(done + 4)) and gpu.error() is None


def test_a_doorbell_before_the_restart_is_refused():
    """A doorbell while the GPU is stopped is reported and not done."""
    gpu = QueueGpu()
    gpu.soft_reset()
    gpu.commands(SIGNALS)
    assert gpu.run(10).error()["code"] == "doorbell_refused"
    gpu.restart(1)
    assert not gpu.run(300).writes and not gpu.busy()


def test_a_doorbell_in_any_cycle_of_a_soft_reset_is_refused():
    """Attack: two things in one cycle. Also in the cycle in which everything is cleared, and around it."""
    gpu = QueueGpu(memory_cycles=3)
    for cycles in range(60):
        gpu.program(gpu.driver.soft_reset(16))
        gpu.backend.step(cycles)
        gpu.write_meanwhile("DOORBELL", 1)
        gpu.run(4)
        assert gpu.error()["code"] == "doorbell_refused", cycles
        gpu.program(gpu.driver.clear_error())
        gpu.run(60 + 2 * GEOMETRY.tracker.window_slots)
        assert gpu.busy() == {"reset_done"}
    gpu.restart()
    assert not gpu.run(300).writes and not gpu.busy()


@pytest.mark.parametrize("is_open", [False, True])
def test_a_signal_that_arrives_is_checked(is_open):
    """4 bytes of DMA under region 0 are checked like every arrival: written to open memory, refused elsewhere."""
    gpu = QueueGpu()
    gpu.program(gpu.driver.open_memory(1, base=FLAG, limit=FLAG + 64)
                + gpu.driver.plain_arrivals([1] if is_open else []))
    for address in (FLAG, FLAG + 64):
        gpu.access("inbound", address, 4, op=STORE, source=DMA)
    gpu.run(100)
    assert [write["address"] for write in gpu.dram] == ([FLAG] if is_open else [])
    assert gpu.error()["code"] == "arrival_refused" and gpu.counters()["arrivals_refused"] == 2 - is_open


@pytest.mark.parametrize("hang", QUEUE_HANGS, ids=lambda hang: hang.__name__)
def test_a_queue_that_hangs_is_told_with_what_waits(hang):
    """A poll that never succeeds, blocked reads or words, a line that never arrives: STATUS and watchdog."""
    gpu = QueueGpu(memory_cycles=3)
    hang(gpu)
    busy = {"queue_busy"}  # a poll's line is owed now and then
    assert gpu.run(100).busy() - {"lines_owed"} == busy and waits_in_the_end(gpu) == QUEUE_HANGS[hang]
    assert gpu.error()["code"] == "watchdog" and gpu.busy() - {"lines_owed"} == busy
    assert hang is a_poll_does_not_come_true or ("lines_owed" in gpu.busy()) == (hang is a_commands_line_does_not_come)


def test_commands_that_are_done_are_no_hang():
    """Only the queue moves: one poll succeeds in each watchdog period, and nothing it reads is tracked."""
    gpu = QueueGpu(memory_cycles=3)
    gpu.program(gpu.driver.watchdog(2 * WATCHDOG_PERIOD))
    for number in range(12):
        gpu.commands(Command(number, POLL, FLAG, 0, 0, 0))
        gpu.run(WATCHDOG_PERIOD)
        gpu.words[FLAG] = number
        gpu.run(60)
    assert gpu.error() is None and not gpu.busy()
