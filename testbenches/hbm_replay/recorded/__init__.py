"""Results of two public cycle-level simulators on this project's own request traces.

DRAMsim3 (commit 29817593) and Ramulator 2.1 (commit c5b1c3a4), both under the MIT licence, of which nothing is here but
what they counted. `hbm2/` has the timings of the machine `hbm2-reference`, `hbm3/` those of `hbm3-reference`, recorded
by `scripts/record_hbm3`; variants are `configurations.RECORDED`. The traces come from `traces.py` (its own random
numbers, so the bytes never change).

| file | content |
|---|---|
| `workloads.json` | one line per trace: name, kind, parameters; those of hbm3 are held out, it has hbm2's as well |
| `results.json` | per workload and variant the counts of DRAMsim3 and of Ramulators; hbm2: SHA-256 of each trace |
| `micro.json` | request lists [R or W, bank group, bank, row, column, earliest cycle], the cycle of every command |

The Ramulators are two schedulers (FRFCFS, RowHit) and two depths of the queue (32, 128). DRAMsim3's run of hbm2's
`conflict_wr` was stopped 1000 cycles after its last request was accepted, with 20 writes not yet done.
"""

from __future__ import annotations

import hashlib
import json
from functools import cache
from pathlib import Path
from typing import Any

from t3sim.testbenches.hbm_replay.recorded import traces
from t3sim.testbenches.hbm_replay.trace import Trace

_FOLDER = Path(__file__).parent
MEMORIES = ("hbm2", "hbm3")


@cache
def _load(memory: str, name: str) -> Any:
    return json.loads((_FOLDER / memory / name).read_text(encoding="utf-8"))


@cache
def workloads(memory: str = "hbm2") -> dict[str, dict[str, Any]]:
    """Return the lines of workloads.json by their names; hbm3 has those of hbm2 and more."""
    names = {line["name"]: line for line in _load(memory, "workloads.json")}
    return names if memory == "hbm2" else {**workloads(), **names}


def results(memory: str = "hbm2") -> list[dict[str, Any]]:
    """Return the lines of results.json: workload, config, DRAMsim3 and Ramulator2 (three of it, by name)."""
    return _load(memory, "results.json")["results"]


def hashes() -> dict[str, str]:
    """Return the SHA-256 of each trace's file: by workload, or workload@map where the addresses depend on the map."""
    return _load("hbm2", "results.json")["trace_sha256"]


def micro_cases(memory: str = "hbm2") -> list[dict[str, Any]]:
    """Return the cases of micro.json. Ramulator's front end takes one cycle, DRAMsim3's two."""
    return _load(memory, "micro.json")


def map_of(config: str) -> str:
    """Return the address map of a configuration, as `traces` calls it."""
    return "ro_ba_co_bg" if config.endswith("bgil") else "ro_bg_ba_co"


@cache
def _trace(workload: str, address_map: str) -> Trace:
    return Trace.of(*traces.trace(workloads("hbm3")[workload], address_map))


def trace(workload: str, config: str = "base") -> Trace:
    """Return the trace of a workload, with the addresses of a configuration's map."""
    mapped = workloads("hbm3")[workload]["kind"] in traces.MAPPED
    return _trace(workload, map_of(config) if mapped else map_of("base"))


def sha256(workload: str, config: str = "base") -> str:
    """Return the SHA-256 of the trace's file."""
    text = traces.text(*traces.trace(workloads("hbm3")[workload], map_of(config)))
    return hashlib.sha256(text.encode()).hexdigest()
