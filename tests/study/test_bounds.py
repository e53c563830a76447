"""What a run says that bounds it."""

from dataclasses import replace

import numpy as np
import pytest

from t3sim.machine import load_machine
from t3sim.mechanisms import losses
from t3sim.mechanisms.result import TechniqueResult
from t3sim.runs.exchange import Exchange
from t3sim.runs.phases import Moved
from t3sim.study.bounds import _CAUSES
from t3sim.study.results import RunResult
from t3sim.workload.workloads import gemm_workload

WORKLOAD = gemm_workload("1000x750x512", 4)  # 1.5 MB: 1.125 MB over a link take 15 us
BASE = TechniqueResult("sequential", 60e3, {"gemm": 20e3, "reduce-scatter": 20e3, "all-gather": 20e3}, {}, 1, False,
                       1.0, {})


def words(total_us: float, loss: dict[str, float], collective: str = "rs", read: int = 0) -> str:
    gather, gathered = ({}, {}) if collective == "ar" else ({"all-gather": 20e3}, {"ag": Moved(10 ** 9)})
    fused = TechniqueResult("t3", total_us * 1e3 + sum(gather.values()), {"gemm": 20e3} | gather,
                            {"gemm": Moved(read)} | gathered, 1, True, 1.0, loss)
    result = RunResult(WORKLOAD, load_machine(), 0, {}, {"sequential": BASE, "t3": fused},
                       exchange=Exchange(collective))
    assert result.to_json()["bounds"].keys() == {"t3"}
    return result.bounds["t3"].words


@pytest.mark.parametrize(("total_us", "collective", "read", "loss", "expected"), [
    (21, "rs", 0, {"window_blocked": 9.0}, "the GEMM"),
    (32, "ar", 0, {"link_tail": 9.0}, "the link"),
    (40, "rs", 10**6 * 39, {"link_tail": 9.0}, "DRAM"),
    (40, "rs", 0, {"window_blocked": 9.0, "link_tail": 8.0}, "the dispatch window"),
    (40, "rs", 0, {"read_stall_by_rs_writes": 9.0, "all_gather": 20.0},
     "arbitration: loads that wait for arriving writes"),
    (40, "rs", 0, {"idle_units": -9.0}, "the GEMM"),
])
def test_the_fullest_resource_or_else_what_held_it_most(total_us, collective, read, loss, expected):
    """Hand-made times, bytes and losses: a run is bound by one of the two."""
    assert words(total_us, loss, collective, read) == expected


def test_every_cause_has_words():
    watched = losses.Watched(1.0, np.zeros(16), np.zeros(16))
    fused = losses.attribute(watched, watched, end=1, units=1)
    split = losses.attribute_split(watched, watched, watched, end=1, units=1, launches=0.0)
    storing = losses.attribute_storing(watched, watched, end=1, units=1, launches=0.0, reduction=0.0)
    gathered = losses.attribute_gathered(watched, watched, end=1, units=1)
    polling = watched._replace(units=np.ones(16))
    sending = losses.attribute_sending(watched, polling, end=1, units=1)
    assert losses.attribute_sending(watched, watched, end=1, units=1).keys() < sending.keys()
    assert fused.keys() | split.keys() | storing.keys() | gathered.keys() | sending.keys() == _CAUSES.keys()


def test_nothing_is_said_without_the_gemm_alone():
    result = RunResult(WORKLOAD, load_machine(), 0, {}, {"t3": replace(BASE, name="t3")})
    assert not result.bounds and result.to_json()["bounds"] == {}
