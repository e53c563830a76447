"""The parts of `make mutate` on small blocks: mutants that must be caught, and one that is the same machine."""

import json
from dataclasses import replace

import pytest
from amaranth.hdl import Fragment

from t3sim.cosim.cocotb_run import CocotbFailure
from t3sim.rtl.blocks import BLOCKS
from t3sim.testbenches.geometries import GEOMETRIES
from t3sim.testbenches.mutation import campaign, equivalence, guarded, mutate
from t3sim.testbenches.mutation.campaign import Fate, Harmless, share
from t3sim.testbenches.mutation.equivalence import PORT, compare
from t3sim.testbenches.mutation.model import blocks_inside, make_model
from t3sim.testbenches.mutation.proofs import prove
from t3sim.testbenches.mutation.simulate import simulate

pytestmark = [pytest.mark.builds_rtl, pytest.mark.slow]

SMALL = GEOMETRIES["small"]


@pytest.fixture(scope="module")
def arbiter():
    return make_model("arbiter", SMALL, 30, seed=1)


def grant(model):
    """A mutant that inverts, or keeps at 1, a grant."""
    return next(mutant for mutant in model.mutants if mutant.signal.startswith("grant_") and mutant.mode != "const0")


def test_mutants_say_where_they_are(arbiter):
    assert len(arbiter.mutants) > 25
    assert [mutant.number for mutant in arbiter.mutants] == list(range(1, len(arbiter.mutants) + 1))
    named = [mutant for mutant in arbiter.mutants if mutant.file]
    assert len(named) > 15 and all(mutant.text for mutant in named)
    assert all(mutant.file.startswith("rtl/") for mutant in named)


def test_blocks_in_a_block_are_left_out():
    fragment = Fragment.get(BLOCKS["memory_channel"](SMALL), None)
    assert set(blocks_inside(fragment, ("top",))) == {"top.arbiter", "top.guard", "top.coalescer"}


def test_only_ports_and_what_blocks_inside_are_given_is_compared():
    model = make_model("memory_channel", SMALL, 1, seed=1)
    netlist = (model.folder / "original.il").read_text()
    compared = {name for _, direction, name in PORT.findall(netlist) if direction == "output"}
    own = {port.verilog for port in model.ports.outputs.values()}
    assert own < compared
    assert {name.split(".")[0] for name in compared - own} == {"arbiter", "guard", "coalescer"}


def test_what_flips_the_bits_of_a_protected_tracker_is_not_mutated():
    model = make_model("tracker", GEOMETRIES["protected"], 400, seed=1)
    assert len(model.mutants) > 300 and {"flip_mask", "flip_row"} <= model.ports.inputs.keys()
    assert "flip" not in (model.folder / "mutants.ys").read_text()


def test_the_testbench_catches_a_wrong_grant(arbiter, tmp_path):
    wrong = grant(arbiter)
    told = simulate(arbiter, SMALL, [wrong.number], [1], 1, tmp_path)[wrong.number]
    assert told["test"] == "random_traffic" and told["how"].startswith("AssertionError")
    (tmp_path / f"{wrong.number}.json").write_text('{"test": "kept"}')
    assert simulate(arbiter, SMALL, [wrong.number], [1], 1, tmp_path)[wrong.number]["test"] == "kept"


def test_a_testbench_that_fails_without_a_mutant_says_nothing(arbiter, tmp_path):
    """Another geometry than the netlist's."""
    with pytest.raises(CocotbFailure):
        simulate(arbiter, GEOMETRIES["wide"], [1], [1], 1, tmp_path)


def test_a_mutant_is_told_from_the_block(arbiter):
    assert compare(arbiter, replace(arbiter.mutants[0], number=0), 20).verdict == "equal"
    assert compare(arbiter, grant(arbiter), 20).verdict == "differs"


def test_a_search_that_ends_by_time_answers_nothing(arbiter, monkeypatch):
    for module in (equivalence, guarded):
        monkeypatch.setattr(module, "MERGE_S", 0.01)
    assert compare(arbiter, grant(arbiter), 0).verdict == "unknown"


def test_a_proof_catches_a_wrong_grant(arbiter, tmp_path):
    assert "grant" in prove(arbiter, SMALL, grant(arbiter), tmp_path, 60)


def fate(what, mutant=None, by=""):
    return Fate("arbiter", mutant, what, by, "")


def test_equivalent_mutants_do_not_count():
    assert share([fate("test"), fate("proof"), fate("equivalent"), fate("survivor")]) == 2 / 3
    assert share([fate("equivalent")]) == 1


def test_what_is_ended_by_time_is_not_caught(arbiter, monkeypatch, capsys, tmp_path):
    assert share([fate("test"), fate("time"), fate("equivalent")]) == 1 / 2
    told = [fate("test", arbiter.mutants[0]), fate("time", arbiter.mutants[1], "tb_arbiter")]
    monkeypatch.setattr(mutate, "fates", lambda *_: told)
    assert mutate.main(["arbiter", "--json", str(tmp_path / "report.json")]) == 0
    out = capsys.readouterr().out
    assert "50.0%" in out and f"ended by time: arbiter {arbiter.mutants[1].place}" in out and "tb_arbiter" in out
    assert json.loads((tmp_path / "report.json").read_text())["blocks"]["arbiter"]["time"] == 1


def test_a_table_keeps_the_rows_of_other_blocks(arbiter, monkeypatch, tmp_path):
    table = tmp_path / "results" / "mutation.csv"
    table.parent.mkdir()
    head = "block,tried,caught,time,equivalent,survive,share,s\n"
    table.write_text(f"{head}arbiter,,9,,9,9,9 %,9\ntracker,,53,,6,1,98.1 %,306\n")
    told = [fate("test", arbiter.mutants[0])] * 2 + [fate("proof", arbiter.mutants[0]), fate("equivalent"),
                                                     fate("time", arbiter.mutants[1], "tb_arbiter")]
    monkeypatch.setattr(mutate, "fates", lambda *_: told)
    assert mutate.main(["arbiter", "--json", str(tmp_path / "report.json"), "--table", str(table)]) == 0
    assert table.read_text() == f"{head}arbiter,5,3,1,1,0,75 %,0\ntracker,,53,,6,1,98.1 %,306\n"


def ended_by_time(monkeypatch, tmp_path, told):
    """The campaign of three mutants, of which the testbench catches the first and is ended by time on the second."""
    calls = []

    def testbench(model, geometry, numbers, *_):
        calls.append(list(numbers))
        passed = {"test": None, "how": ""}
        answers = {1: {"test": "random_traffic", "how": "AssertionError"}, 2: passed | {"ended": True}}
        return {number: answers.get(number, passed) for number in numbers}

    monkeypatch.setattr(campaign, "_FOLDER", tmp_path)
    monkeypatch.setattr(campaign, "simulate", testbench)
    monkeypatch.setattr(campaign, "compare", lambda _, mutant, __: pytest.fail("not the same") if mutant.number == 2
                        else type("Told", (), {"verdict": "unknown"}))
    monkeypatch.setattr(campaign, "prove", lambda _, __, mutant, *___: told.get(mutant.number))
    fates = campaign.fates("arbiter", 3, 1, lambda *_: None)
    assert calls == [[1, 2, 3], [3]]
    return [(fate.what, fate.by) for fate in fates]


def test_what_a_testbench_is_ended_on_may_be_noticed_by_something_else(monkeypatch, tmp_path):
    first = "test", "random_traffic"
    assert ended_by_time(monkeypatch, tmp_path / "a", {2: "grant"})[:2] == [first, ("proof", "grant")]
    assert ended_by_time(monkeypatch, tmp_path / "b", {})[:2] == [first, ("time", "tb_arbiter")]


def test_a_survivor_fails_the_run_until_it_is_explained(arbiter, monkeypatch, capsys, tmp_path):
    told = [fate("test", arbiter.mutants[0]), fate("survivor", arbiter.mutants[1])]
    monkeypatch.setattr(mutate, "fates", lambda *_: told)
    assert mutate.main(["arbiter", "--json", str(tmp_path / "report.json")]) == 1
    assert "1 survivors without a word" in capsys.readouterr().out
    told[-1] = fate("survivor", arbiter.mutants[1], "nobody can see it")
    assert mutate.main(["arbiter", "--json", str(tmp_path / "report.json")]) == 0
    assert "nobody can see it" in capsys.readouterr().out
    counts = json.loads((tmp_path / "report.json").read_text())["blocks"]["arbiter"]
    assert (counts["test"], counts["explained"], counts["unexplained"]) == (1, 1, 0) and counts["share"] == 0.5


def test_an_explanation_covers_what_it_names(arbiter):
    mutant = replace(arbiter.mutants[0], signal="held[3]", mode="inv", text="held = Signal()")
    assert Harmless("arbiter", "held = Signal()", "because").covers("arbiter", mutant)
    assert Harmless("arbiter", "held = Signal()", "because", "held", ("inv",)).covers("arbiter", mutant)
    assert not Harmless("arbiter", "held = Signal()", "because", "hel").covers("arbiter", mutant)
    assert not Harmless("arbiter", "held = Signal()", "because", "held", ("const0",)).covers("arbiter", mutant)
    assert not Harmless("arbiter", "held = Signal()", "because", port=mutant.port + "x").covers("arbiter", mutant)
    assert not Harmless("tracker", "held = Signal()", "because").covers("arbiter", mutant)


def test_explanations_name_lines_that_exist():
    lines = {line.strip() for path in (campaign.ROOT / "rtl").rglob("*.py") for line in path.read_text().splitlines()}
    assert not [entry for entry in campaign.harmless() if entry.block not in campaign.ROWS or entry.text not in lines]
    assert all(entry.why for entry in campaign.harmless())


def test_an_unknown_block_is_refused(capsys):
    with pytest.raises(SystemExit):
        mutate.main(["trackr"])
    assert "there is no block 'trackr'" in capsys.readouterr().err
