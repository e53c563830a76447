"""MSCCL's XML: what is written is read again, plans of other tools do what they say, faults are named in one line."""

import re
from collections import Counter
from pathlib import Path

import pytest

from t3sim.cli import main
from t3sim.collectives import CollectiveError, Op, Program
from t3sim.collectives.algorithms import COLLECTIVES, algorithms
from t3sim.collectives.msccl import msccl_text, read_msccl
from t3sim.machine.topologies import named_topology
from tests.support.damage import replaced

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


def test_a_reduce_scatter_by_either_name(tmp_path):
    text = msccl_text("rs", algorithms("rs", named_topology("full:4"))["direct"].program(), "x")
    (tmp_path / "plan.xml").write_text(replaced(text, '"reduce_scatter"', '"reducescatter"'))
    assert read_msccl(tmp_path / "plan.xml")[0] == "rs"


@pytest.mark.builds_loops
@pytest.mark.parametrize(("name", "topology", "machine", "messages", "busiest", "gb_per_s"), [
    ("ring-all-reduce-4", "ring:4", "torus-128", 24, 6, 25),
    ("all-pairs-all-reduce-4", "full:4", "torus-128", 24, 2, 25),
    ("hierarchical-all-to-all-2x2", "nodes:2x2", "mi210-2x4", 16, 2, 20)])
def test_every_shape_runs_end_to_end(name, topology, machine, messages, busiest, gb_per_s, json_of):
    """On the network for which it is meant it takes what the parts on its busiest link take, and a few latencies.

    The exchange in two levels sends two parts through each card; what goes to another node takes two links, through a
    switch.
    """
    size, parts = 64 << 20, 4
    (run,) = json_of("collective", "--plan", str(PLANS / f"{name}.xml"), "--topology", topology, "--machine", machine,
                     "--sizes", "64M")["runs"]
    assert (run["algorithm"], run["messages"], run["link_bytes"]) == (name, messages, 24 * size / parts)
    bound_ns = busiest * size / parts / gb_per_s
    assert bound_ns < run["collective_ns"] < 1.02 * bound_ns


@pytest.mark.builds_loops
def test_the_ring_plan_takes_what_our_ring_takes(json_of):
    times = []
    for arguments in (["--plan", str(PLANS / "ring-all-reduce-4.xml")], ["--algorithm", "ring"]):
        times.append(json_of("collective", *arguments, "--topology", "ring:4", "--sizes",
                             "4M")["runs"][0]["collective_ns"])
    assert times[0] == pytest.approx(times[1])


@pytest.mark.builds_loops
def test_the_command_writes_and_reads_plans(tmp_path, capsys, error_of):
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
        assert named in error_of("collective", *arguments)


@pytest.mark.parametrize(("old", "new", "named"), [
    ("<algo", "<algorithm", "not XML"), ('coll="allreduce"', 'coll="broadcast"', "broadcast"),
    ('ngpus="4"', 'ngpus="four"', "ngpus='four'"), ('ngpus="4"', 'ngpus="1000"', "2 to 256"),
    ('type="rrs"', 'type="rrx"', "rrx"), ('recv="3"', 'recv="-1"', "without a peer"),
    ('type="rcs"', 'type="r"', "does not send"), ('srcbuf="i"', 'srcbuf="x"', "srcbuf='x'"),
    ('depid="-1" deps="-1"', 'depid="7" deps="0"', "which does not exist"),
    ('type="s" srcbuf="i" srcoff="0"', 'type="s" srcbuf="s" srcoff="0"', "still empty"),
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


def plan_of_two(coll: str, chunks: int, blocks: str, way: str = 'inplace="0" outofplace="1"', scratch: int = 4) -> str:
    """A plan of two GPUs whose threadblocks are alike: `me` and `it` stand for a GPU and its peer.

    A step is `type source target`, such as `s i[it] o[0]`, with `@block.step` for what it waits for.
    """
    gpus = ""
    for me in (0, 1):
        lines = ""
        for number, block in enumerate(blocks.split("|")):
            lines += f'<tb id="{number}" send="{1 - me}" recv="{1 - me}" chan="0">'
            for place, step in enumerate(block.replace("me", str(me)).replace("it", str(1 - me)).split(",")):
                step, _, wait = step.strip().partition("@")
                kind, *ends = step.split()
                (source, at), (target, to) = ((end[0], end[2:-1]) for end in (ends * 2)[:2])
                block_of, step_of = (wait.split(".") if wait else ("-1", "-1"))
                lines += (f'<step s="{place}" type="{kind}" srcbuf="{source}" srcoff="{at}" dstbuf="{target}" '
                          f'dstoff="{to}" cnt="1" depid="{block_of}" deps="{step_of}" hasdep="0"/>')
            lines += "</tb>"
        gpus += f'<gpu id="{me}" i_chunks="{chunks}" o_chunks="{chunks}" s_chunks="{scratch}">{lines}</gpu>'
    return f'<algo name="x" ngpus="2" coll="{coll}" nchunksperloop="{chunks}" {way}>{gpus}</algo>'


IN_PLACE, BOTH = 'inplace="1" outofplace="0"', 'inplace="1" outofplace="1"'
GATHER = "s i[0], r o[it], cpy i[0] o[me]"
SWAP = "s i[it], r o[it], cpy i[me] o[me]"
SCATTER = "s i[it], r s[0], re i[me] s[0], cpy s[0] o[0]"
SUM = "s i[it], r s[0], cpy i[me] o[me], re s[0] o[me], s o[me], r o[it]"


@pytest.mark.parametrize("text", [
    plan_of_two("allgather", 2, GATHER), plan_of_two("alltoall", 2, SWAP), plan_of_two("reduce_scatter", 2, SCATTER),
    plan_of_two("allreduce", 2, SUM), plan_of_two("allreduce", 2, SUM, BOTH),
    plan_of_two("allreduce", 2, "s i[it], rrc i[me] o[me], s o[me], r o[it]"),
    plan_of_two("allgather", 2, "s o[me], r o[it]", IN_PLACE), plan_of_two("allgather", 2, "s i[0], r o[it]", IN_PLACE),
    plan_of_two("reduce_scatter", 2, "s i[it], rrc i[me]", IN_PLACE),
    plan_of_two("reduce_scatter", 2, "s i[it], rrc o[0]", IN_PLACE),
    plan_of_two("allreduce", 2, "s o[it], rrc o[me], s i[me], r i[it]", IN_PLACE),
    plan_of_two("allreduce", 2, "s i[it] | r s[0], re s[0] i[me] | s i[me] @1.1, r i[it] @0.0", IN_PLACE),
    plan_of_two("allgather", 2, GATHER, ""), plan_of_two("allgather", 2, "s o[me], r o[it]", ""),
    plan_of_two("allgather", 2, GATHER, 'inplace="0"')])
def test_results_that_lie_where_the_collective_has_them(text, tmp_path):
    (tmp_path / "plan.xml").write_text(text)
    read_msccl(tmp_path / "plan.xml")


@pytest.mark.parametrize(("text", "words"), [
    (plan_of_two("allgather", 2, "s i[0], r o[me], cpy i[0] o[it]"),
     r"GPU 0's o\[0\] ends as chunk 1 of GPUs \[1\], but the result there is chunk 0 of GPUs \[0\]"),
    (plan_of_two("alltoall", 2, "s i[it], r o[me], cpy i[me] o[it]"), r"o\[0\] ends as chunk 2"),
    (plan_of_two("alltoall", 2, "s i[it], r o[it]"), r"GPU 0's o\[0\] ends as empty"),
    (plan_of_two("allgather", 2, "s i[0], r o[it]"), r"GPU 0's o\[0\] ends as empty"),
    (plan_of_two("allgather", 2, "s i[0], r s[0], cpy i[0] o[me]"), "GPU 1's o.0. ends as empty"),
    (plan_of_two("reduce_scatter", 2, "s i[it], r s[0], re i[me] s[0]"), r"o\[0\] ends as empty"),
    (plan_of_two("reduce_scatter", 2, "s i[it], rrc i[me] i[me]"), r"o\[0\] ends as empty"),
    (plan_of_two("reduce_scatter", 2, "s i[it], rrc i[me] s[0]", IN_PLACE), r"i\[0\] ends as|o\[0\] ends as"),
    (plan_of_two("allreduce", 2, "s i[it], rrc i[me], s i[me], r i[it]"), r"o\[0\] ends as empty"),
    (plan_of_two("allreduce", 2, "s o[it], rrc o[me], s o[me], r o[it]"),
     r"takes GPU 0's o\[1\], which is still empty \(output and input are two arrays\)"),
    (plan_of_two("allreduce", 2, "s o[it], rrc o[me], s o[me], r o[it]", BOTH), "two arrays"),
    (plan_of_two("allreduce", 2, "s i[it], rrc i[me] o[me], cpy i[me] o[me], s o[me], r o[it]"), "ends as chunk 0"),
    (plan_of_two("allreduce", 2, SUM, scratch=0), r"writes GPU 0's s\[0\], but s has 0 chunks"),
    (plan_of_two("allreduce", 2, SUM.replace("cpy i[me] o[me]", "cpy i[me] o[2]")), r"o\[2\], but o has 2 chunks"),
    (plan_of_two("allreduce", 2, "s i[it] | r s[0] | re s[0] i[me], s i[me], r i[it]", IN_PLACE), "no order|empty"),
    (plan_of_two("allreduce", 2, "s i[it], rrc i[me] | s i[me], r i[it]", IN_PLACE), "in no order"),
    (plan_of_two("alltoall", 2, "s i[it], r s[0] | cpy s[0] o[it], cpy i[me] o[me]"), "in no order|empty"),
    (plan_of_two("alltoall", 2, "s i[it], r o[it] | cpy i[me] o[it] | cpy i[me] o[me]"), "in no order"),
    (plan_of_two("allgather", 2, GATHER, 'inplace="0" outofplace="0"'), "both 0"),
    (plan_of_two("allgather", 2, "s i[0], r o[me], cpy i[0] o[it]", ""), "ends as"),
    (plan_of_two("allgather", 2, GATHER).replace('s="1"', 's="0"', 1), "step 0 appears twice"),
    (plan_of_two("allgather", 2, GATHER).replace('s="1"', 's="7"', 1), "s='7'")])
def test_a_result_elsewhere_or_that_depends_on_luck_is_refused(text, words, tmp_path):
    (tmp_path / "plan.xml").write_text(text)
    with pytest.raises(CollectiveError, match=words) as raised:
        read_msccl(tmp_path / "plan.xml")
    assert "\n" not in str(raised.value) and len(str(raised.value)) < 200


def test_steps_run_in_the_order_of_their_numbers(tmp_path):
    plan = tmp_path / "plan.xml"
    text = plan_of_two("allreduce", 2, SUM)
    plan.write_text(text)
    ordered = read_msccl(plan)
    plan.write_text(re.sub(r"(<tb[^>]*>)(.*?)(</tb>)", lambda block: block[1] + "".join(
        reversed(re.findall(r"<step.*?/>", block[2]))) + block[3], text))
    assert plan.read_text() != text and read_msccl(plan) == ordered
