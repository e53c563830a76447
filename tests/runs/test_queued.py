"""Collectives by the command queue's RTL in every GPU: every bit, by whatever they are started."""

import json

import numpy as np
import pytest

from t3sim.cli import main
from t3sim.cosim.driver.driver import Driver
from t3sim.machine import load_machine
from t3sim.machine.levels import QUEUE
from t3sim.rtl.queue_commands import POLL
from t3sim.runs import queued
from t3sim.runs.failure import SimulationError
from t3sim.runs.queued import ProducerWaves, run_queued

pytestmark = [pytest.mark.builds_loops, pytest.mark.slow]

SMALL, GPUS, SIZE = "tests/data/machines/ring_small.toml", 4, 16 * 1024


def run(collective: str, initiator: str, seed: int = 0, size: int = SIZE, variant: str = "b2b"):
    return run_queued(load_machine(SMALL, QUEUE), collective, GPUS, size, initiator, seed, variant)


def test_all_to_all_by_whatever_it_is_started():
    """A host is slowest, the Tracker fastest: it needs neither a command's way through memory nor a flag's."""
    runs = [run("a2a", name) for name in ("host", "gpu", "poll", "tracker")]
    host, gpu, poll, tracker = (one.exchange_ns for one in runs)
    assert host > max(gpu, poll) and min(gpu, poll) > tracker, runs
    assert [one.copies for one in runs] == [GPUS * (GPUS - 1)] * 4
    assert [one.commands for one in runs] == [24, 24, 28, 12] and [one.polls for one in runs] == [0, 0, 4, 0]
    assert [one.signals for one in runs] == [12, 12, 12, 0]
    assert [one.lines for one in runs] == [12 * SIZE // GPUS // 64] * 4
    for one in runs[:3]:
        assert one.signalled_ns > one.exchange_ns / 2


@pytest.mark.parametrize("collective, polls, signals", [("ag", 0, 12), ("ag-ring", 8, 12)])
def test_all_gathers(collective, polls, signals):
    host, polled = run(collective, "host", seed=1), run(collective, "poll", seed=2)
    assert (host.polls, host.signals, host.copies) == (polls, signals, 12)
    assert polled.polls == polls + GPUS and polled.exchange_ns < host.exchange_ns


@pytest.mark.parametrize("collective, whole", [
    ("rs", lambda gpu: [gpu]), ("rs-ring", lambda gpu: [(gpu + 1) % GPUS]), ("ar", lambda gpu: range(GPUS)),
    ("ar-ring", lambda gpu: range(GPUS))])
def test_memory_adds(collective, whole):
    """Atomic additions: sums are checked bit for bit, in their order, and every chunk that should be whole is."""
    one = queued._Run(load_machine(SMALL, QUEUE), collective, GPUS, SIZE, "gpu", 3)
    try:
        one.run()
        done, data = one.result(), one.ledger.data
    finally:
        one.close()
    produced, memory = (array.view(np.float16).astype(float).reshape(GPUS, GPUS, -1)
                        for array in (data.produced, data.memory))
    for gpu in range(GPUS):
        for chunk in whole(gpu):
            assert np.abs(memory[gpu, chunk] - produced[:, chunk].sum(axis=0)).max() < 0.02
    gathers = 2 if collective.startswith("ar") else 1
    assert done.copies == gathers * GPUS * (GPUS - 1)
    # Around a ring a poll for each step; otherwise peers add to one flag.
    assert done.polls == {"rs": 0, "rs-ring": 8, "ar": 4, "ar-ring": 20}[collective]


@pytest.mark.parametrize("initiator", ["host", "gpu", "poll", "tracker"])
def test_a_broadcast_reads_its_source_once(initiator):
    """On four GPUs 1/3 of the reads behind the Tracker, which sends to all, and 2/3 by pairs of peers."""
    copied, once = run("ag", "poll", seed=6), run("ag", initiator, seed=7, variant="bcst")
    rows = 1 if initiator == "tracker" else 2
    assert (once.copies, once.lines) == (GPUS * rows, copied.lines * rows // (GPUS - 1))
    assert once.exchange_ns < 1.05 * copied.exchange_ns or initiator in ("host", "gpu")


def test_an_all_reduce_gathers_by_broadcast():
    copied, once = run("ar", "poll", seed=8), run("ar", "poll", seed=8, variant="bcst")
    assert (copied.copies, once.copies) == (24, 12 + 8) and once.lines == copied.lines * 20 // 24


@pytest.mark.parametrize("initiator", ["host", "gpu", "poll"])
@pytest.mark.parametrize("gpus", [2, 3, 4])
def test_a_swap_needs_no_second_buffer(gpus, initiator):
    """Chunk p of GPU g is chunk g of GPU p afterwards, in memory of the send buffer's size, after three copies.

    Who of a pair is first is shared out. Of four signals one says that the other's chunk is stored.
    """
    one = queued._Run(load_machine(SMALL, QUEUE), "a2a", gpus, 4096 * gpus, initiator, 9, "swap")
    try:
        one.run()
        done, data = one.result(), one.ledger.data
    finally:
        one.close()
    produced, memory = (array.reshape(gpus, gpus, -1) for array in (data.produced, data.memory))
    assert one._exchange.size_bytes == 4096 * gpus
    assert (memory == produced.swapaxes(0, 1)).all()
    pairs = gpus * (gpus - 1) // 2
    assert (done.copies, done.signals, done.lines) == (3 * pairs, 4 * pairs, 3 * pairs * 4096 // 64)
    firsts = [len(stages[1].copies) for stages in one._exchange.stages]
    assert max(firsts) - min(firsts) <= 1


def test_a_tracker_starts_a_reduce_scatter_soonest():
    polled, tracked = run("rs", "poll", seed=4), run("rs", "tracker", seed=5)
    assert tracked.exchange_ns < polled.exchange_ns and tracked.lines == polled.lines


def chained(initiator: str, wave: int = 1, reverse: bool = False, collective: str = "a2a"):
    """Run with 4 blocks of 32 KB for each of three peers, or that memory keeps."""
    machine = load_machine({"extends": SMALL, "link": {"bandwidth_gb_per_s": 200.0}}, QUEUE)
    return run_queued(machine, collective, GPUS, 512 * 1024, initiator, 7, waves=ProducerWaves(wave, reverse))


def test_a_chain_starts_with_its_first_wave_and_has_a_poll_for_each():
    """A Tracker needs no commands, a chain a poll for each wave; one of all blocks waits for the producer's end."""
    fine, coarse, tracker = chained("chain"), chained("chain", 12), chained("tracker")
    assert (fine.polls, coarse.polls, tracker.polls) == (GPUS * 12, GPUS, 0)
    assert (fine.commands, coarse.commands) == (GPUS * (12 + 12 + 3), GPUS * (1 + 12 + 3))
    assert fine.lines == coarse.lines == tracker.lines
    assert fine.exchange_ns < 0.95 * coarse.exchange_ns and tracker.whole_ns < min(fine.whole_ns, coarse.whole_ns)


def test_a_chain_waits_for_its_first_wave_if_another_is_stored_first():
    chains, trackers = ([chained(name, 4, reverse) for reverse in (False, True)] for name in ("chain", "tracker"))
    assert chains[1].exchange_ns > 1.01 * chains[0].exchange_ns
    assert trackers[1].whole_ns == pytest.approx(trackers[0].whole_ns, rel=0.05)


@pytest.mark.parametrize("collective", ["ag", "rs", "ar", "rs-ring"])
def test_every_collective_can_be_a_chain(collective):
    """Every bit is compared."""
    assert run(collective, "chain", seed=8).polls >= GPUS


@pytest.mark.parametrize("gpus, kb, wave, reverse", [(4, 256, 1, False), (4, 256, 4, True), (3, 192, 1, True)])
def test_a_chain_of_swaps_waits_for_what_its_peers_store(gpus, kb, wave, reverse):
    """Chunks of several blocks: a peer's first block came before the store of what it is to be kept with."""
    run_queued(load_machine(SMALL, QUEUE), "a2a", gpus, kb * 1024, "chain", 8, "swap", ProducerWaves(wave, reverse))


def test_a_flag_before_its_wave_is_stored_is_found(monkeypatch):
    """The numbers are compared: a chain without its polls copies what has not been stored."""
    whole = queued._Run._commands
    monkeypatch.setattr(queued._Run, "_commands", lambda self, gpu: [
        line for line in whole(self, gpu) if line.op != POLL])
    with pytest.raises(SimulationError, match=r"GPU \d: bytes from \d+ on are "):
        chained("chain")


def test_a_part_that_is_added_twice_is_found(monkeypatch):
    """As are those that are not added at all: the producer's second store of a line would change no copy's count."""
    whole = queued._Run._plan
    def twice(self, *given):
        plan = whole(self, *given)
        return plan._replace(blocks=np.concatenate([plan.blocks, plan.blocks[:, -1:]], axis=1),
                             regions=np.concatenate([plan.regions, plan.regions[:, -1:]], axis=1))
    monkeypatch.setattr(queued._Run, "_plan", twice)
    with pytest.raises(SimulationError, match=r"GPU \d: to bytes .* parts of GPUs 0, 1, 2, 3 was added once"):
        run("rs", "gpu")


def test_a_hop_that_does_not_wait_for_the_one_before_is_found(monkeypatch):
    """The numbers are compared: over slow links a ring without its polls sends on what has not come."""
    machine = load_machine(SMALL, QUEUE)
    slow = machine.model_copy(update={"link": machine.link.model_copy(update={"latency_ns": 2000.0})})
    run_queued(slow, "ag-ring", GPUS, SIZE, "gpu")
    whole = queued._Run._commands
    monkeypatch.setattr(queued._Run, "_commands", lambda self, gpu: [
        line for line in whole(self, gpu) if line.op != POLL])
    with pytest.raises(SimulationError, match=r"GPU \d: bytes from \d+ on are "):
        run_queued(slow, "ag-ring", GPUS, SIZE, "gpu")


@pytest.mark.parametrize("options, message", [
    (("--collective", "scatter"), "--collective 'scatter' is unknown on the cycle level"),
    (("--collective", "ar", "--initiator", "tracker"), "ar by b2b on the cycle level: what comes from peers"),
    (("--collective", "rs-ring", "--initiator", "tracker"), "whose rings and --operator gemm-ar a Tracker starts"),
    (("--collective", "a2a", "--variant", "swap", "--initiator", "tracker"), "each copy of a swap waits for the other"),
    (("--initiator", "hoist"), "--initiator 'hoist' is unknown on the cycle level"),
    (("--collective", "ag", "--variant", "b2b", "--initiator", "tracker"), "for ag by b2b on the cycle level: a tile"),
    (("--collective", "a2a", "--variant", "bcst"), "--variant 'bcst' is not possible for a2a"),
    (("--gpus", "1"), "--gpus 1 is not possible"),
    (("--variant", "pcpy"), "--variant 'pcpy' is not possible for ag on the cycle level: allowed are b2b, bcst"),
    (("--sizes", "1K", "--gpus", "3"), "--sizes: 1024 bytes on 3 GPUs"),
    (("--collective", "rs", "--initiator", "chain", "--wave", "3"), "--wave 3 is not possible: 1, 2, 4 of the 4"),
])
def test_what_is_asked_is_checked(options, message, error_of):
    assert message in error_of("dma", "--level", "cycle", "--sizes", "16K", "--machine", SMALL, *options)


def test_options_of_the_cycle_level_alone_are_refused(capsys):
    assert main(["dma", "--gpus", "4"]) == 2 and "--gpus is for the cycle level" in capsys.readouterr().err
    assert main(["dma", "--wave", "2"]) == 2 and "--wave is for the cycle level" in capsys.readouterr().err
    assert main(["dma", "--level", "gate"]) == 2 and "--level 'gate' is unknown" in capsys.readouterr().err


def test_the_command(tmp_path, capsys):
    target = tmp_path / "out.json"
    assert main(["dma", "--level", "cycle", "--machine", SMALL, "--collective", "a2a", "--sizes", "16K",
                 "--initiator", "poll,tracker", "--json", str(target)]) == 0
    runs = json.loads(target.read_text())["runs"][str(SIZE)]
    assert runs["poll"]["exchange_ns"] > runs["tracker"]["exchange_ns"] > 0
    assert "every bit checked" in " ".join(capsys.readouterr().out.split())


def test_signals_are_checked_where_they_arrive(monkeypatch):
    """Flags that are not open to peers are refused like any other arrival."""
    opens = Driver.open_memory
    monkeypatch.setattr(Driver, "open_memory", lambda self, number, *, base, limit: opens(
        self, number, base=base, limit=queued._FLAGS))
    with pytest.raises(SimulationError, match="arrival_refused"):
        run("a2a", "gpu")


def test_a_command_outside_the_words_ends_the_run(monkeypatch):
    sets = Driver.command_queue
    monkeypatch.setattr(Driver, "command_queue", lambda self, base, words: sets(self, base, (words[0] + 64, words[1])))
    with pytest.raises(SimulationError, match="reports word_out_of_range: .*address 0x400000000$"):
        run("a2a", "poll")
