"""DMA collectives: what is commanded is the paper's, times are what can be worked out by hand, bad input is refused."""

import json

import pytest

from t3sim.cli import main
from t3sim.flow.commands import POSSIBLE, Command, Queue, plan
from t3sim.flow.dma import PHASES, kernel_collective_ns, run_collective, run_queues
from t3sim.flow.node import load_node

NODE = load_node("mi300x")
LINK = NODE.link.bandwidth_gb_per_s * NODE.link.engine_efficiency


@pytest.mark.parametrize("collective, variant, commands, engines", [
    ("ag", "pcpy", 56, 56), ("ag", "bcst", 32, 32), ("a2a", "swap", 28, 28), ("ag", "b2b", 56, 8),
    ("a2a", "pcpy", 56, 56), ("a2a", "b2b", 56, 8)])
def test_counts_are_the_paper_s(collective, variant, commands, engines):
    run = run_collective(NODE, collective, variant, 1 << 20)
    assert (run.commands, run.engines, run.syncs) == (commands, engines, engines)


@pytest.mark.parametrize("gpus", [2, 3, 5, 8, 9])
@pytest.mark.parametrize("collective, variant", [(c, v) for c in POSSIBLE for v in POSSIBLE[c]])
def test_every_pair_exchanges_once(collective, variant, gpus):
    moved = []
    for queue in plan(collective, variant, gpus):
        for command in queue.commands:
            moved += [(command.source, to) for to in command.destinations]
            moved += [(to, command.source) for to in command.destinations if command.swap]
    assert sorted(moved) == [(a, b) for a in range(gpus) for b in range(gpus) if a != b]


def test_swaps_are_spread_evenly():
    issued = [queue.gpu for queue in plan("a2a", "swap", 8)]
    assert max(map(issued.count, range(8))) - min(map(issued.count, range(8))) <= 1


def test_a_broadcast_reads_its_source_once_for_two():
    plain, broadcast = (run_collective(NODE, "ag", variant, 1 << 20) for variant in ("pcpy", "bcst"))
    chunk = (1 << 20) / 8
    assert plain.read_bytes == 56 * chunk
    assert broadcast.read_bytes == 32 * chunk
    assert plain.link_bytes == broadcast.link_bytes == 56 * chunk


def test_one_copy_by_hand():
    engine, host, size = NODE.engine, NODE.host, 1 << 20
    run = run_queues(NODE, [Queue(0, (Command(0, (1,)),))], size)
    control = 2 * host.command_ns + host.doorbell_ns
    copy = engine.copy_ns + size / LINK
    assert run.phases_ns["control"] == pytest.approx(control)
    assert run.phases_ns["schedule"] == pytest.approx(engine.fetch_ns)
    assert run.phases_ns["copy"] == pytest.approx(copy)
    assert run.ns == pytest.approx(control + engine.fetch_ns + copy + engine.sync_ns + host.observe_ns)
    assert sum(run.phases_ns.values()) == pytest.approx(run.ns)
    assert tuple(run.phases_ns) == PHASES


def test_a_poll_hides_control_and_schedule():
    host, poll = (run_queues(NODE, [Queue(0, (Command(0, (1,)),))], 4096, initiator) for initiator in ("host", "poll"))
    saved = 2 * NODE.host.command_ns + NODE.host.doorbell_ns - NODE.host.trigger_ns + (
        NODE.engine.fetch_ns - NODE.engine.poll_ns)
    assert host.ns - poll.ns == pytest.approx(saved)


def test_copies_back_to_back_share_one_engine():
    size = 1 << 24
    run = run_queues(NODE, [Queue(0, tuple(Command(0, (to,)) for to in range(1, 8)))], size)
    assert run.phases_ns["copy"] == pytest.approx(7 * size / NODE.engine.bandwidth_gb_per_s, rel=0.01)


def test_large_collectives_fill_the_links():
    size = 1 << 32
    assert run_collective(NODE, "a2a", "pcpy", size).ns == pytest.approx(size / 8 / LINK, rel=0.01)
    kernels = kernel_collective_ns(NODE, size)
    assert kernels == pytest.approx(size / 8 / (NODE.link.bandwidth_gb_per_s * NODE.link.kernel_efficiency), rel=0.01)


def test_additions_take_memory_twice():
    """With memory as slow as a link, what arrives is added at half the rate of a copy."""
    slow = NODE.model_copy(update={"memory": NODE.memory.model_copy(update={"bandwidth_gb_per_s": LINK})})
    queue = [Queue(0, (Command(0, (1,)),))]
    copy, add = (run_queues(slow, queue, 1 << 24, adds=adds).phases_ns["copy"] - NODE.engine.copy_ns
                 for adds in (False, True))
    assert add == pytest.approx(2 * copy)


def run(capsys, *arguments):
    code = main(["dma", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_command(capsys):
    code, out, _ = run(capsys, "--collective", "a2a", "--sizes", "4K:64K")
    assert code == 0
    assert "prelaunch-" in out and "64 KB" in out and "swap" in out
    code, out, _ = run(capsys, "--sizes", "1M", "--variant", "bcst,prelaunch", "--json", "-")
    found = json.loads(out)
    assert set(found["variants"]) == {"bcst", "prelaunch-bcst"}
    one = found["variants"]["bcst"]["1048576"]
    assert one["ns"] == pytest.approx(sum(one["phases_ns"].values()))
    assert (one["commands"], one["engines"], one["syncs"]) == (32, 32, 32)


@pytest.mark.parametrize("arguments, named", [
    (["--collective", "all"], "all"), (["--sizes", "1"], "1"), (["--sizes", "1M:1K"], "1M:1K"), (["--sizes", ""], "''"),
    (["--sizes", "1K:2K:4K"], "1K:2K:4K"), (["--sizes", "1T"], "1T"), (["--variant", "swap"], "swap"),
    (["--variant", ""], "''"), (["--machine", "none"], "none"), (["--machine", ""], "--machine")])
def test_bad_input_gets_one_line(capsys, arguments, named):
    code, out, error = run(capsys, *arguments)
    assert code == 2
    assert not out
    assert error.startswith("t3: error: ") and error.count("\n") == 1 and named in error


def test_a_node_of_one_s_own(capsys, tmp_path):
    from importlib import resources

    text = resources.files("t3sim.flow").joinpath("nodes/mi300x.toml").read_text()
    mine = tmp_path / "mine.toml"
    mine.write_text(text.replace("gpus = 8 ", "gpus = 4 "))
    code, out, _ = run(capsys, "--machine", str(mine), "--sizes", "1M", "--json", "-")
    assert code == 0
    assert json.loads(out)["variants"]["pcpy"]["1048576"]["commands"] == 12
    for old, new, named in (("gpus = 8 ", "gpus = 1 ", "gpus"), ("copy_ns", "copi_ns", "copy_ns"),
                            ("[link]", "[", "TOML")):
        mine.write_text(text.replace(old, new))
        code, _, error = run(capsys, "--machine", str(mine))
        assert code == 2
        assert named in error and error.count("\n") == 1
