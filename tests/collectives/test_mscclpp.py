"""MSCCL++'s JSON: plans of other shapes do what they say and run, faults are named in one line."""

import json
import re
from collections import Counter
from pathlib import Path

import pytest

from t3sim.collectives import CollectiveError, Op
from t3sim.collectives.mscclpp import read_mscclpp

PLANS = Path(__file__).parents[2] / "docs" / "plans"
GATHER, SUM, PACKETS = "direct-all-gather-4", "read-reduce-send-all-reduce-4", "packet-all-reduce-4"


@pytest.mark.parametrize(("name", "kind", "added", "copied", "steps"), [
    (GATHER, "ag", 0, 12, 1), (SUM, "ar", 12, 12, 2), (PACKETS, "ar", 12, 12, 2)])
def test_plans_of_other_shapes(name, kind, added, copied, steps):
    found, program = read_mscclpp(PLANS / f"{name}.json")
    program.check()
    assert (found, program.ranks, max(program.levels) + 1) == (kind, 4, steps)
    assert Counter(one.op for one in program.transfers) == Counter({Op.ADD: added, Op.COPY: copied})


@pytest.mark.builds_loops
def test_sums_of_either_kind_take_as_long(json_of):
    """Reading what others have, or being sent it into scratch, is the same traffic."""
    times = []
    for name in (SUM, PACKETS, "all-pairs-all-reduce-4"):
        plan = PLANS / f"{name}.{'xml' if name.startswith('all-pairs') else 'json'}"
        times.append(json_of("collective", "--plan", str(plan), "--topology", "full:4", "--sizes",
                             "4M")["runs"][0]["collective_ns"])
    assert times[1:] == pytest.approx([times[0]] * 2)


@pytest.mark.builds_loops
@pytest.mark.parametrize(("name", "messages", "rounds"), [(GATHER, 12, 1), (SUM, 24, 2), (PACKETS, 24, 2)])
def test_every_shape_runs_end_to_end(name, messages, rounds, json_of):
    """Around links of 25 GB/s between all, each round takes what a part of the array takes, and a few latencies."""
    size, parts = 64 << 20, 4
    (run,) = json_of("collective", "--plan", str(PLANS / f"{name}.json"), "--topology", "full:4", "--sizes",
                     "64M")["runs"]
    assert (run["algorithm"], run["messages"], run["link_bytes"]) == (name, messages, messages * size / parts)
    bound_ns = rounds * size / parts / 25
    assert bound_ns < run["collective_ns"] < 1.02 * bound_ns


@pytest.mark.builds_loops
def test_the_direct_all_gather_takes_what_ours_takes(json_of):
    times = []
    for arguments in (["--plan", str(PLANS / f"{GATHER}.json")], ["--collective", "ag", "--algorithm", "direct"]):
        times.append(json_of("collective", *arguments, "--topology", "full:4", "--sizes",
                             "4M")["runs"][0]["collective_ns"])
    assert times[0] == pytest.approx(times[1])


def changed(name: str, change, tmp_path: Path) -> Path:
    plan = json.loads((PLANS / f"{name}.json").read_text())
    change(plan)
    path = tmp_path / "wrong.json"
    path.write_text(json.dumps(plan))
    return path


def operations(plan, gpu=0, block=0):
    return plan["gpus"][gpu]["threadblocks"][block]["ops"]


@pytest.mark.parametrize(("name", "change", "named"), [
    (GATHER, lambda plan: plan.pop("gpus"), "gpus: field required"),
    (GATHER, lambda plan: plan.update(collective="broadcast"), "broadcast"),
    (GATHER, lambda plan: plan["gpus"].reverse(), "0 to 3"),
    (GATHER, lambda plan: plan["gpus"][0].update(output_chunks=6), "6 chunks"),
    (GATHER, lambda plan: operations(plan)[2].update(name="putt"), "'putt'"),
    (GATHER, lambda plan: operations(plan)[2].update(name="gstore"), "switch channels"),
    (GATHER, lambda plan: operations(plan)[2].update(tbg_info={"tb_id": 0, "tbg_size": 2}), "groups of threadblocks"),
    (GATHER, lambda plan: operations(plan)[2]["src_buff"][0].update(index=1), "still empty"),
    (GATHER, lambda plan: operations(plan)[2]["src_buff"][0].update(index="x"), "src_buff.0.index"),
    (GATHER, lambda plan: operations(plan)[2]["dst_buff"][0].update(buffer_id=7), "remote buffer 7"),
    (GATHER, lambda plan: operations(plan)[2]["dst_buff"][0].update(size=2), "of one size"),
    (GATHER, lambda plan: operations(plan)[2]["src_buff"].append({"type": "o", "index": 0, "size": 1}), "2 sources"),
    (GATHER, lambda plan: operations(plan)[2]["src_buff"][0].update(type=None), "without type"),
    (GATHER, lambda plan: operations(plan)[1].update(channel_ids=[3]), "memory channel 3"),
    (GATHER, lambda plan: operations(plan).pop(0), "does not send"),
    (GATHER, lambda plan: operations(plan).pop(2), "chunk 0 at rank 1"),
    (GATHER, lambda plan: [operations(plan, gpu, block).insert(0, operations(plan, gpu, block).pop(1))
                           for gpu in range(4) for block in range(3)], "waits for itself"),
    (SUM, lambda plan: operations(plan)[2]["src_buff"].pop(), "chunk 0 at rank 0"),
    (SUM, lambda plan: operations(plan)[2]["src_buff"][0].update(index=1), "adds chunk"),
    (SUM, lambda plan: operations(plan).insert(0, {"name": "sem_acquire", "semaphore_ids": [0]}), "semaphore 0"),
    (SUM, lambda plan: operations(plan)[2]["src_buff"].append(operations(plan)[2]["src_buff"][1]), "twice"),
    (PACKETS, lambda plan: operations(plan)[0]["dst_buff"][0].update(index=1), "writes packets"),
    (PACKETS, lambda plan: operations(plan)[0]["src_buff"][0].update(index=2), "adds chunk")])
def test_what_is_wrong_is_named_in_one_line(name, change, named, tmp_path, error_of):
    path = changed(name, change, tmp_path)
    assert named in error_of("collective", "--plan", str(path), "--topology", "full:4", "--sizes", "1M")


def apart(plan, keep=True, shift=0):
    """The direct all-gather from an input into an output, with or without a GPU's own chunk, to places shifted."""
    plan["inplace"] = False
    for gpu in plan["gpus"]:
        place = (gpu["id"] + shift) % 4
        for block in gpu["threadblocks"]:
            for one in block["ops"]:
                if one["name"] == "put":
                    one["src_buff"], one["dst_buff"][0]["index"] = [{"type": "i", "index": 0, "size": 1}], place
        if keep:
            gpu["threadblocks"].append({"id": 9, "ops": [{
                "name": "copy", "src_buff": [{"type": "i", "index": 0, "size": 1}],
                "dst_buff": [{"type": "o", "index": place, "size": 1}]}]})


def to_scratch(plan):
    """The sums of one all-reduce stay in scratch where they were added."""
    for gpu in plan["gpus"]:
        gpu["scratch_chunks"] = 4
        for one in gpu["threadblocks"][0]["ops"]:
            if one["name"] == "rres":
                one["dst_buff"][0]["type"] = "s"


@pytest.mark.parametrize(("name", "change", "words"), [
    (GATHER, apart, None), (GATHER, lambda plan: plan.pop("inplace"), None),
    (SUM, lambda plan: plan.pop("inplace"), None),
    (GATHER, lambda plan: (apart(plan), plan.pop("inplace")), None),
    (GATHER, lambda plan: plan.update(inplace=False), "GPU 0's o[0], which is still empty (output and input are two"),
    (GATHER, lambda plan: apart(plan, keep=False), "GPU 0's o[0] ends as empty, but the result there is chunk 0"),
    (GATHER, lambda plan: apart(plan, shift=1), "GPU 0's o[0] ends as chunk 3 of GPUs [3], but the result there is"),
    (SUM, to_scratch, "GPU 0's o[0] ends as chunk 0 of GPUs [0], but the result there is chunk 0 of GPUs [0, 1, 2, 3]"),
    (SUM, lambda plan: plan.update(inplace=False), "GPU 0's o[0] ends as empty"),
    (PACKETS, lambda plan: plan["gpus"][1].update(scratch_chunks=5), "writes GPU 1's s[5], but s has 5 chunks"),
    (SUM, lambda plan: (plan["gpus"][1].update(scratch_chunks=1), plan["gpus"][1]["threadblocks"].append({
        "id": 9, "ops": [{"name": "copy", "src_buff": [{"type": "i", "index": 1, "size": 1}],
                          "dst_buff": [{"type": "s", "index": 0, "size": 1}]}]})), "in no order")])
def test_results_lie_where_the_collective_has_them_whatever_happens_first(name, change, words, tmp_path):
    path = changed(name, change, tmp_path)
    if words is None:
        read_mscclpp(path)
        return
    with pytest.raises(CollectiveError, match=re.escape(words)):
        read_mscclpp(path)


def test_semaphores_and_barriers_order_threadblocks(tmp_path):
    """What one threadblock fetched another one sends on: refused without the semaphore or the barrier between them."""
    semaphore = [{"name": name, "semaphore_ids": [0]} for name in ("sem_release", "sem_acquire")]
    for first, second in (semaphore, [{"name": "barrier", "barrier_id": 1, "num_threadblocks": 2}] * 2):
        def change(plan, first=first, second=second):
            for gpu in plan["gpus"]:
                gpu["semaphores"] = [{"init_value": 0}]
                block = gpu["threadblocks"][0]
                before, after = block["ops"][:3], block["ops"][3:]
                refs = {"channels": block["channels"], "remote_buffer_refs": block["remote_buffer_refs"]}
                gpu["threadblocks"] = [{**refs, "id": 0, "ops": [*before, first]},
                                       {**refs, "id": 1, "ops": [second, *after]}]
        _, program = read_mscclpp(changed(SUM, change, tmp_path))
        assert max(program.levels) == 1
    lonely = changed(SUM, lambda plan: (plan["gpus"][0].update(semaphores=[{"init_value": 0}]), operations(plan).insert(
        0, {"name": "sem_acquire", "semaphore_ids": [0]})), tmp_path)
    with pytest.raises(CollectiveError, match="never released"):
        read_mscclpp(lonely)


def test_a_file_that_is_no_plan(tmp_path, error_of):
    for text in ("", "[]", "{", "null"):
        path = tmp_path / "plan.json"
        path.write_text(text)
        assert error_of("collective", "--plan", str(path)).startswith("t3: error: --plan plan.json: ")
