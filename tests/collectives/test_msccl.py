"""MSCCL's XML: what is written is read again, plans of other tools do what they say, faults are named in one line."""

import json
from collections import Counter
from pathlib import Path

import pytest

from t3sim.cli import main
from t3sim.collectives import CollectiveError, Op, Program
from t3sim.collectives.algorithms import COLLECTIVES, algorithms
from t3sim.collectives.msccl import msccl_text, read_msccl
from t3sim.topologies import named_topology

PLANS = Path(__file__).parents[2] / "docs" / "plans"


def moved(program: Program) -> Counter:
    """Chunks between each two ranks; their numbers may differ, for a file has those of a rank in a row."""
    return Counter((one.source, one.destination, one.op) for one in program.transfers)


@pytest.mark.parametrize("text", ["ring:2", "ring:5", "full:4", "torus:3x3", "torus:2x4", "nodes:2x3"])
@pytest.mark.parametrize("kind", COLLECTIVES)
def test_what_is_written_is_read_again(kind, text, tmp_path):
    for name, one in algorithms(kind, named_topology(text)).items():
        program, path = one.program(), tmp_path / "plan.xml"
        path.write_text(msccl_text(kind, program, name))
        again, read = read_msccl(path)
        assert again == kind and read.chunks == program.chunks
        assert moved(read) == moved(program)
        assert max(read.levels) == max(program.levels)


@pytest.mark.parametrize(("name", "kind", "transfers", "steps"), [
    ("ring-all-reduce-4", "ar", 24, 6), ("all-pairs-all-reduce-4", "ar", 24, 2),
    ("hierarchical-all-to-all-2x2", "a2a", 16, 3)])
def test_plans_of_other_shapes(name, kind, transfers, steps):
    """With fused steps, with parts that are added out of scratch, and with chunks that rest in scratch on their way."""
    found, program = read_msccl(PLANS / f"{name}.xml")
    program.check()
    assert (found, program.ranks, len(program.transfers), max(program.levels) + 1) == (kind, 4, transfers, steps)
    assert sum(one.op is Op.ADD for one in program.transfers) == (12 if kind == "ar" else 0)


@pytest.mark.builds_loops
@pytest.mark.parametrize(("name", "topology", "machine", "messages", "busiest", "gb_per_s"), [
    ("ring-all-reduce-4", "ring:4", "torus-128", 24, 6, 25),
    ("all-pairs-all-reduce-4", "full:4", "torus-128", 24, 2, 25),
    ("hierarchical-all-to-all-2x2", "nodes:2x2", "mi210-2x4", 16, 2, 20)])
def test_every_shape_runs_end_to_end(name, topology, machine, messages, busiest, gb_per_s, capsys):
    """On the network for which it is meant it takes what the parts on its busiest link take, and a few latencies.

    The exchange in two levels sends two parts through each card; what goes to another node takes two links, through a
    switch.
    """
    size, parts = 64 << 20, 4
    assert main(["collective", "--plan", str(PLANS / f"{name}.xml"), "--topology", topology, "--machine", machine,
                 "--sizes", "64M", "--json", "-"]) == 0
    (run,) = json.loads(capsys.readouterr().out)["runs"]
    assert (run["algorithm"], run["messages"], run["link_bytes"]) == (name, messages, 24 * size / parts)
    bound_ns = busiest * size / parts / gb_per_s
    assert bound_ns < run["collective_ns"] < 1.02 * bound_ns


@pytest.mark.builds_loops
def test_the_ring_plan_takes_what_our_ring_takes(capsys):
    times = []
    for arguments in (["--plan", str(PLANS / "ring-all-reduce-4.xml")], ["--algorithm", "ring"]):
        assert main(["collective", *arguments, "--topology", "ring:4", "--sizes", "4M", "--json", "-"]) == 0
        times.append(json.loads(capsys.readouterr().out)["runs"][0]["collective_ns"])
    assert times[0] == pytest.approx(times[1])


@pytest.mark.builds_loops
def test_the_command_writes_and_reads_plans(tmp_path, capsys):
    plan = tmp_path / "mine.xml"
    assert main(["collective", "--collective", "ag", "--topology", "torus:3x3", "--algorithm", "hierarchical",
                 "--sizes", "1M", "--write-plan", str(plan)]) == 0
    assert main(["collective", "--plan", str(plan), "--topology", "torus:3x3", "--sizes", "1M"]) == 0
    assert "mine" in capsys.readouterr().out
    for arguments, named in ((["--plan", str(plan), "--collective", "ag"], "neither a collective"),
                             (["--plan", str(plan), "--topology", "ring:4"], "9 GPUs"),
                             (["--plan", str(tmp_path)], "cannot be read"),
                             (["--topology", "torus:3x3", "--write-plan", str(plan)], "one of hierarchical"),
                             (["--algorithm", "hierarchical", "--write-plan", "/none/plan.xml"], "/none")):
        assert main(["collective", *arguments]) == 2
        error = capsys.readouterr().err
        assert named in error and error.count("\n") == 1


@pytest.mark.parametrize(("old", "new", "named"), [
    ("<algo", "<algorithm", "not XML"), ('coll="allreduce"', 'coll="broadcast"', "broadcast"),
    ('ngpus="4"', 'ngpus="four"', "ngpus='four'"), ('ngpus="4"', 'ngpus="1000"', "2 to 256"),
    ('type="rrs"', 'type="rrx"', "rrx"), ('recv="3"', 'recv="-1"', "without a peer"),
    ('type="rcs"', 'type="r"', "does not send"), ('srcbuf="i"', 'srcbuf="x"', "srcbuf='x'"),
    ('depid="-1" deps="-1"', 'depid="7" deps="0"', "which there is not"),
    ('type="s" srcbuf="i" srcoff="0"', 'type="s" srcbuf="s" srcoff="0"', "nothing is yet"),
    ('type="s" srcbuf="i" srcoff="0"', 'type="s" srcbuf="i" srcoff="1"', "chunk"),
    ('cnt="1"', 'cnt="0"', "cnt='0'")])
def test_what_is_wrong_is_named_in_one_line(old, new, named, tmp_path):
    text, plan = (PLANS / "ring-all-reduce-4.xml").read_text(), tmp_path / "wrong.xml"
    assert old in text
    plan.write_text(text.replace(old, new, 1))
    with pytest.raises(CollectiveError, match=named) as raised:
        read_msccl(plan)
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 200


def test_steps_that_wait_for_each_other_are_found(tmp_path):
    plan = tmp_path / "circle.xml"
    block = ('<tb id="0" send="{0}" recv="{0}" chan="0"><step type="r" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" '
             'cnt="1" depid="-1" deps="-1"/><step type="s" srcbuf="i" srcoff="0" dstbuf="i" dstoff="0" cnt="1" '
             'depid="-1" deps="-1"/></tb>')
    plan.write_text('<algo coll="allreduce" ngpus="2" nchunksperloop="1">' + "".join(
        f'<gpu id="{rank}">{block.format(1 - rank)}</gpu>' for rank in range(2)) + "</algo>")
    with pytest.raises(CollectiveError, match="waits for itself"):
        read_msccl(plan)
