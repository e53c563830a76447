"""A finished run without any simulation, to look at what the command line makes of it."""

from t3sim.mechanisms.result import TechniqueResult
from t3sim.runs.phases import Moved
from t3sim.study.results import RunResult

VERSIONS = {"python": "3.11.2", "t3sim": "0.1.0"}

_CHUNK = 8_716_288


def _technique(name: str, total_us: float, gemm_us: float, rs_us: float, chunks: tuple[int, ...], gemm_read: int,
               cycles: int, seconds: float, loss: dict[str, float]) -> TechniqueResult:
    gemm_write, rs_read, rs_write = (count * _CHUNK for count in chunks)
    return TechniqueResult(
        name, total_us * 1e3, {"gemm": gemm_us * 1e3, "reduce-scatter": rs_us * 1e3, "all-gather": 817_000.0},
        {"gemm": Moved(gemm_read, gemm_write), "rs": Moved(rs_read, rs_write), "ag": Moved(7 * _CHUNK, 7 * _CHUNK)},
        cycles, name.startswith("t3"), seconds, {cause: us * 1e3 for cause, us in loss.items()})


def fake_result(workload, machine, techniques=("sequential", "t3", "t3-mca", "t3-mca+", "ideal-overlap",
                                               "ideal-rs-nmc"), seed=0) -> RunResult:
    everything = {one.name: one for one in (
        _technique("sequential", 3265.4, 1631.2, 817.2, (8, 15, 8), 984_300_000, 3_265_400, 12.3,
                   {"reduce_scatter": 817.2, "all_gather": 817.0}),
        _technique("t3", 2602.1, 1778.0, 1770.5, (7, 6, 7), 652_100_000, 2_602_100, 21.9,
                   {"pipeline_fill": 3.4, "link_bound_tail": 4.0, "gemm_stalled_on_dram_reads_by_communication": 146.8,
                    "all_gather": 817.0}),
        _technique("t3-mca", 2492.0, 1667.0, 1660.1, (7, 6, 7), 652_100_000, 2_492_000, 20.8,
                   {"pipeline_fill": 3.4, "link_bound_tail": 4.0, "gemm_stalled_on_dram_reads_by_communication": 35.8,
                    "tracker_or_dma_back_pressure": 0.4, "all_gather": 817.0}),
        _technique("t3-mca+", 2462.0, 1645.0, 1638.0, (8, 7, 7), 652_100_000, 2_462_000, 20.6,
                   {"pipeline_fill": 3.4, "link_bound_tail": 4.0, "all_gather": 817.0}),
        _technique("ideal-overlap", 2448.2, 1631.2, 817.2, (8, 15, 8), 984_300_000, 0, 0.0, {"all_gather": 817.0}),
        _technique("ideal-rs-nmc", 2448.2, 1631.2, 760.0, (8, 13, 8), 984_300_000, 0, 0.0, {"all_gather": 817.0}),
    )}
    return RunResult(workload, machine, seed, VERSIONS, {name: everything[name] for name in techniques})
