"""Memory or switch for sums: `python scripts/memory_or_switch.py` writes docs/results/memory-or-switch.json.

What GPUs and switches do is the library level's (`t3sim.analytic.libraries`), but for full tables: those are runs with
the RTL.
"""

import argparse
import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from t3sim.analytic.libraries.collectives import direct_ns, in_switch_ns
from t3sim.analytic.libraries.contention import collective_job
from t3sim.analytic.libraries.mechanisms import GATES, OverlapPlan, play
from t3sim.machine import load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.papers.cais import cais, track_trigger_ns
from t3sim.papers.paper import geomean
from t3sim.study.results import CollectiveRun
from t3sim.study.scenario.collective import CollectiveRequest
from t3sim.study.scenario.files import scenario_of
from t3sim.workload.workloads import MODELS

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs" / "results" / "memory-or-switch.json"
_AREA = ROOT / "docs" / "results" / "area-12nm.json"

_TOKENS, _GPUS = 4096, 8
_TABLES = ((1, 64, 16), (1, 64, 8), (1, 1, 1), (4, 64, 16))  #: switches, sets and ways


def layers(name: str, counts: Iterable[int]) -> list[dict]:
    """Time sub-layers whose sums all GPUs need: libraries in turn, memory (T3), the switch in one kernel, and both."""
    machine, rows = load_machine(name, COMMERCIAL), []
    for gpus in counts:
        for model in ("t-nlg", "gpt-3", "mt-nlg"):
            hidden = MODELS[model].hidden
            for layer, depth in (("op", hidden), ("fc2", 4 * hidden)):
                plan = OverlapPlan(machine, "gemm+ar", gpus, (_TOKENS, hidden, max(1, depth // gpus)))
                gemm, size = plan.gemm_ns, plan.size
                rings = gemm + collective_job(machine, "all_reduce", gpus, size, "near-memory").ns
                times = {"gemm": gemm, "rings": rings, "memory": play(plan, "t3").ns,
                         "switch": gemm + in_switch_ns(machine, "all_reduce", gpus, size),
                         "both": track_trigger_ns(plan)}
                rows.append({"machine": name, "gpus": gpus, "model": model, "layer": layer, "ns": times} | {
                    "speedup": {way: rings / times[way] for way in ("memory", "switch", "both")}})
    return rows


def means(rows: list[dict]) -> dict[str, dict[str, float]]:
    """Return geometric means of speedups by number of GPUs."""
    return {f"{name}-{gpus}": {way: geomean([row["speedup"][way] for row in rows
                                             if (row["machine"], row["gpus"]) == (name, gpus)])
                               for way in ("memory", "switch", "both")}
            for name, gpus in dict.fromkeys((row["machine"], row["gpus"]) for row in rows)}


def moved(gpus: int) -> dict[str, dict[str, float]]:
    """Return what an all-reduce of one tensor after a GEMM moves at a GPU, in tensors.

    With memory: a ring's reduce-scatter, tracked, then its all-gather. With the switch: a kernel that sends each line
    once and gets each sum once. With both: GEMM's tiles go to the switch, sums to their owner's memory, and once from
    there to all others.
    """
    part = 1 / gpus
    return {
        "memory": {"sent": 2 * (1 - part), "got": 2 * (1 - part),
                   # own updates, arriving ones, reads of sums that go on; copies: read once at each GPU that sends
                   "dram": (1 - part) * 2 + (1 - 2 * part) + 2 * (1 - part)},
        "switch": {"sent": 1.0, "got": 1.0, "dram": 1.0 + 1.0 + 1.0},  # the GEMM's stores, reads, sums
        "both": {"sent": 1.0, "got": 1.0, "dram": part + part + part + (1 - part)}}


def small(name: str, gpus: int) -> dict[str, dict[str, float]]:
    """Time all-reduces of small tensors: over links and memory, and in the switch."""
    machine = load_machine(name, COMMERCIAL)
    return {str(size): {
        "memory_ns": direct_ns(machine, "all_reduce", gpus, size),
        "switch_ns": in_switch_ns(machine, "all_reduce", gpus, size, flags=True)} for size in (8192, 65536, 524288)}


def by_rtl(collective: str, gpus: int, size: int, machine: dict) -> tuple[CollectiveRequest, CollectiveRun]:
    """Run a collective in the switch, every GPU's and the switch's RTL in the loop, and compare all of its numbers."""
    asked = CollectiveRequest(scenario_of({}, {
        "layer.collective": collective, "layer.devices": gpus, "layer.bytes": size, "layer.values": True,
        "exchange.topology": "switch", "exchange.algorithm": "in-switch", "machine": {"name": "own"} | machine}))
    return asked, asked.run(lambda what, share: None)


def full_tables(sizes: Iterable[tuple[int, int, int]], gpus: int = 4, size: int = 200_000) -> list[dict]:
    """Run a reduce-scatter by one or more switches side by side whose tables have these sets and ways.

    Beside it by the model, which no table bounds, and with as many workgroups as the machine says.
    """
    rows, usual = [], load_machine().collective
    for planes, sets, ways in sizes:
        section = {"planes": planes, "merge_sets": sets, "merge_ways": ways, "timeout_ns": 2000.0, "rtl": True}
        asked, found = by_rtl("rs", gpus, size, {"extends": "t3-table1", "switch": section})
        _, model = by_rtl("rs", gpus, size, {"extends": "t3-table1", "switch": {"rtl": False}})
        apart = replace(asked.planned, machine=asked.machine.model_copy(update={"collective": usual})).simulate()
        rows.append({"switches": planes, "bytes": sets * ways * 64, "ns": found.collective_ns,
                     "event_ns": found.event_ns, "workgroups": asked.machine.collective.workgroups_per_cu,
                     "packets_per_sum": sum(gpu.written_bytes for gpu in found.gpus) / size,
                     "most_held": found.switch["most_held"], "evicted": found.switch["evicted"],
                     "model_ns": model.collective_ns, "apart": {
                         "ns": apart.ns, "workgroups": usual.workgroups_per_cu,
                         "packets_per_sum": sum(gpu.written_bytes for gpu in apart.gpus) / size}})
    return rows


def on_cais(size: int = 4 << 20) -> dict:
    """Run an all-reduce on CAIS's GPUs and switches, with the RTL of all of them, and compare all of its numbers."""
    _, found = by_rtl("ar", _GPUS, size, {"extends": "cais-8x4-t3", "switch": {"rtl": True}})
    return {"bytes": size, "ns": found.collective_ns, "event_ns": found.event_ns, "words": found.words_compared,
            **found.switch}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tables", action="store_true", help="run tables of the RTL anew, too (minutes)")
    kept = json.loads(RESULT.read_text()) if RESULT.exists() else {}
    anew = parser.parse_args().tables or not kept
    rows = [*layers("h100-sxm", (2, 4, 8)), *layers("gb200", (8, 16, 32, 72))]
    merge = json.loads(_AREA.read_text())["blocks"]["merge_table"]
    RESULT.write_text(json.dumps({
        "cais": cais(), "layers": rows, "means": means(rows), "moved": {str(n): moved(n) for n in (8, 72)},
        "gates": {"t3_per_gpu": GATES, "switch_per_port": merge["gate_equivalents"],
                  "switch_bits_per_port": merge["macro_bits"], "ports_of_gpu": 4},
        "small": {f"{name}-{n}": small(name, n) for name, n in (("h100-sxm", 8), ("gb200", 72))},
        "tables": full_tables(_TABLES) if anew else kept["tables"],
        "cais_all_reduce": on_cais() if anew else kept["cais_all_reduce"]}, indent=1) + "\n")


if __name__ == "__main__":
    main()
