"""The random campaign: what it draws, what it does about a failure and about Ctrl-C."""

import dataclasses
import json
import time

import pytest
import typer
from typer.testing import CliRunner

from t3sim.collectives.algorithms import COLLECTIVES, algorithms
from t3sim.cosim.driver.driver import Driver
from t3sim.machine.topologies import named_topology
from t3sim.rtl.registers import POLICIES
from t3sim.runs import data_mode
from t3sim.runs.failure import SimulationError
from t3sim.testbenches import soak
from t3sim.testbenches.exchanges import TOPOLOGIES, Exchange, exchanges

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]


def cases(*outcomes):
    """Cases that end like this instead of being run."""
    class Fake:
        seed, pool, repeat_command, drawn = 7, "ring_tiny", "make soak SEED=7 CASES=1", soak.draw(7)
        policy, plan, exchange = drawn.policy, drawn.plan, drawn.exchange

        def __init__(self, outcome):
            self.outcome = outcome

        def run(self):
            if isinstance(self.outcome, BaseException):
                raise self.outcome
            return self.outcome
    return map(Fake, outcomes)


DONE = data_mode.DataResult(2, 100, 1, 10, 1, 1, 1, 0, 0, None, 0.0)


@pytest.mark.slow
def test_a_seed_is_a_case_and_every_choice_is_drawn():
    """The same number gives the same case; every geometry, format, policy and option occurs."""
    drawn = [soak.draw(seed) for seed in range(200)]
    assert drawn[5] == soak.draw(5)
    assert " at 0x" not in str(drawn[5]), "what a case says is the same in every process"
    assert {case.policy.name for case in drawn} == set(POLICIES)
    assert {case.pool for case in drawn} == {*soak.POOL, *soak.PEERS, *soak.READY} and len(soak.POOL) > 2
    assert {case.plan.stage_first_chunk for case in drawn} == {False, True}
    assert {case.plan.workload.tp for case in drawn} == {2, 3, 4, 6, 8}
    assert {(case.exchange.collective, case.exchange.algorithm) for case in drawn} == {
        (one.collective, one.algorithm) for one in exchanges()}
    assert {case.plan.workload.dtype for case in drawn} == {"fp16", "bf16", "fp32"}
    # Few designs are compiled, whatever is drawn.
    assert len({case.plan.machine.geometry() for case in drawn}) == len(soak.POOL) + len(soak.PEERS) + len(soak.READY)


def test_every_collective_that_track_and_trigger_can_do_is_drawn():
    """All algorithms of `t3 collective`, but where links could wait in a circle."""
    kinds = {over.partition(":")[0] for over in TOPOLOGIES}
    assert kinds == {"ring", "full", "switch", "torus", "nodes"}
    every = {(collective, algorithm, over) for over in TOPOLOGIES for collective in COLLECTIVES
             for algorithm in algorithms(collective, named_topology(over))}
    left_out = every - {(one.collective, one.algorithm, one.over) for one in exchanges()}
    assert left_out == {("a2a", "direct", "ring:4"), ("a2a", "direct", "ring:8")}, "links that wait in a circle"
    assert all(soak.pools_of(one) for one in exchanges())
    for one in exchanges():
        assert soak.draw(3, one).exchange == one


def test_a_failure_is_told_with_its_command_and_does_not_end_it():
    told = []
    tally = soak.soak(cases(DONE, SimulationError("GPU 1: wrong"), ValueError("a fault"), DONE), told.append)
    assert (tally.cases, tally.elements, tally.cycles) == (4, 20, 200)
    assert [failure["seed"] for failure in tally.failures] == [7, 7]
    assert tally.failures[0]["error"] == "GPU 1: wrong" and "Traceback" in tally.failures[1]["error"]
    assert all("make soak SEED=7 CASES=1" in line for line in told) and len(told) == 2


def test_ctrl_c_and_time_end_it_with_the_count():
    tally = soak.soak(cases(DONE, KeyboardInterrupt(), DONE), lambda line: None)
    assert tally.interrupted and tally.cases == 1 and not tally.failures
    assert soak.soak(cases(DONE, DONE), lambda line: None, until=time.monotonic()).cases == 1


def run(arguments, monkeypatch, tmp_path):
    monkeypatch.setattr(soak, "ROOT", tmp_path)
    monkeypatch.setattr(soak, "REPORT", tmp_path / "reports" / "soak.json")
    app = typer.Typer()
    app.command()(soak.main)
    result = CliRunner().invoke(app, arguments)
    return result, json.loads((tmp_path / "reports" / "soak.json").read_text())


@pytest.mark.slow
def test_command_runs_rings_and_reports_them(monkeypatch, tmp_path, seed):
    """`make soak` prints each case with the command that repeats it."""
    result, report = run(["--cases", "2", "--seed", str(seed)], monkeypatch, tmp_path)
    assert result.exit_code == 0, result.output
    assert f"2 groups of GPUs run (seeds {seed} to {seed + 1}), 0 failed" in result.output
    assert report["cases"] == 2 and report["first_seed"] == seed and report["elements"] > 0
    assert sum(report["drawn"]["policy"].values()) == 2


@pytest.mark.parametrize(("outcome", "code", "words"), [
    (SimulationError("GPU 1: wrong"), 1, "1 failed"), (KeyboardInterrupt(), 130, "interrupted")])
def test_exit_codes(outcome, code, words, monkeypatch, tmp_path):
    monkeypatch.setattr(soak, "draws", lambda first: cases(DONE, outcome))
    result, report = run(["--seed", "7"], monkeypatch, tmp_path)
    assert result.exit_code == code and words in result.output
    assert report["interrupted"] == (code == 130)


@pytest.mark.slow
def test_a_wrong_bit_is_a_failure(monkeypatch):
    """The campaign sees what data mode sees."""
    case = soak.draw(11)
    products = data_mode.Products.of

    def another(*arguments):
        made = products(*arguments)
        made.memory[0, 0, 0] ^= 1
        return dataclasses.replace(made)
    monkeypatch.setattr(data_mode.Products, "of", another)
    tally = soak.soak([case], lambda line: None)
    assert len(tally.failures) == 1 and "numpy's reduction in the schedule's order gives" in tally.failures[0]["error"]


def _a_line_too_high(mapped: dict) -> dict:
    """Give every second destination, beginning with the first, an address a line too high."""
    return mapped | {"to": [to._replace(address_offset=to.address_offset + 64 * (number % 2 == 0))
                            for number, to in enumerate(mapped["to"])]}


@pytest.mark.slow
@pytest.mark.parametrize(("exchange", "broken"), [
    (Exchange("ag", "ring", "ring:3"), _a_line_too_high),
    (Exchange("rs", "direct", "full:3"), lambda mapped: mapped | {
        "updates_per_element": mapped["updates_per_element"] - 1}),
    (Exchange("a2a", "direct", "full:3"), _a_line_too_high),
    (Exchange("ar", "direct", "full:3"), _a_line_too_high),
    (Exchange("ar", "ring", "ring:3"), lambda mapped: mapped | {
        "to": [to._replace(operation="update") for to in mapped["to"]]}),
], ids=lambda value: str(value) if isinstance(value, Exchange) else "")
def test_a_broken_twin_of_other_collectives_is_caught(exchange, broken, monkeypatch):
    """A driver that maps one thing wrongly: a peer's address, how many parts a sum has, a copy that is added."""
    drawn = (soak.draw(seed, exchange) for seed in range(5, 50))  # one in which every GPU has something to send
    case = next(one for one in drawn if one.plan.workload.m * one.plan.workload.n > 60_000)
    assert not soak.soak([case], print).failures
    for name in ("event_map", "dma_map", "remote_map"):
        right = getattr(Driver, name)

        def wrong(driver, region, right=right, **mapped):
            return right(driver, region, **(broken(mapped) if key in mapped else mapped))
        monkeypatch.setattr(Driver, name, wrong)
    key = "updates_per_element" if exchange.collective == "rs" else "to"
    assert len(soak.soak([case], lambda line: None).failures) == 1
