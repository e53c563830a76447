"""What is run, traced and explained: every collective over all links, and the table of it in the pages.

`python -m tests.support.exchanges` writes the table; `tests/trace/test_every_exchange.py` and
`test_collectives_alone.py` prove each of its cells.
"""

import csv
import io
from collections.abc import Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from t3sim.base.errors import BadInput
from t3sim.collectives.algorithms import COLLECTIVES, algorithms
from t3sim.machine import Machine, load_machine
from t3sim.mechanisms.table import check_split_k
from t3sim.runs.exchange import ALGORITHMS, FUSED_OPERATORS, IN_SWITCH, Exchange, fused_with
from t3sim.runs.plan import Plan
from t3sim.runs.signals import SIGNALS
from t3sim.runs.skew import Skew
from t3sim.runs.split_k import with_split_k
from t3sim.trace.setup import Setup
from t3sim.workload.workloads import Workload, embedding_workload, experts_workload, gemm_workload, gemv_workload

ROOT = Path(__file__).parents[2]
TABLE = ROOT / "docs" / "results" / "traced.csv"
MACHINE_FILE = str(ROOT / "tests" / "data" / "machines" / "trace_small.toml")
MACHINE = load_machine(MACHINE_FILE)
LINKS = {"ring": 4, "switch": 4, "full": 4, "torus:2x2": 4, "torus:2x4": 8, "nodes:2x2": 4}
KINDS = ("ring", "switch", "full", "torus", "nodes")  #: columns of the table


@dataclass(frozen=True)
class Row:
    """A run of the table."""

    exchange: Exchange
    gpus: int
    parts: int = 1
    skew: str = ""
    mirrored: bool = False

    @property
    def name(self) -> str:
        return "-".join(filter(None, [self.exchange.operator, self.exchange.topology, self.exchange.algorithm,
                                      self.exchange.signal, f"k{self.parts}" if self.parts > 1 else "", self.skew,
                                      "mirrored" if self.mirrored else ""]))

    @property
    def workload(self) -> Workload:
        if self.exchange.producer == "gemv":
            return gemv_workload("1024x1x256", self.gpus)
        if self.exchange.producer == "embedding":
            return embedding_workload("256x2", self.gpus, "uniform", 0)
        if self.exchange.producer == "moe":
            shape = "128x256x96" if self.exchange.before else "256x256x96"
            return experts_workload(shape, self.gpus, "8x3", 0.6, first=self.exchange.before)
        return gemm_workload("256x256x96", self.gpus)

    @property
    def machine(self) -> Machine:
        return self.exchange.hardware(with_split_k(MACHINE, self.parts), self.workload)

    def setup(self, machine: Machine | None = None) -> Setup:
        skew = None if self.mirrored else Skew.of(self.skew, self.gpus)
        return Setup(Plan(machine or self.machine, self.workload, exchange=self.exchange, skew=skew), "t3-mca")


def runs() -> list[Row]:
    """Every operator over all links, by every algorithm that goes with them; and what else tells runs apart."""
    found = []
    for operator in FUSED_OPERATORS:
        for topology, gpus in LINKS.items():
            for algorithm in ALGORITHMS:
                try:
                    exchange = fused_with(operator, topology, algorithm)
                    exchange.program(gpus)
                except BadInput:
                    continue
                if algorithm == "direct" and gpus > 4:  # other hardware: a window that knows more peers
                    continue
                found.append(Row(exchange, gpus))
    alike = [row for row in found if row.gpus == 4]
    ring = fused_with("gemm-rs")
    found += [Row(replace(ring, signal=signal), 4) for signal in SIGNALS]
    found += [Row(ring, 4, parts=3), *(replace(row, parts=2) for row in alike if _splits(row.exchange))]
    found += [Row(ring, 4, skew="late:3:2000,clock:1:0.8"), Row(ring, 4, skew="dead:2:2,link:1-0:10"),
              Row(fused_with("gemm-rs", "full"), 4, skew="late:3:2000,link:1-0:4")]
    found += [replace(row, skew="late:1:900") for row in alike if row.exchange.producer in ("gemm", "moe")]
    return found + [replace(row, mirrored=True) for row in found if not row.skew and row.parts != 2 and row.gpus == 4]


def _splits(exchange: Exchange) -> bool:
    """Say whether the GEMM's K may be in parts."""
    try:
        check_split_k(with_split_k(MACHINE, 2), exchange, ("t3-mca",))
    except BadInput:
        return False
    return True


def alone() -> list[tuple[str, str, str]]:
    """List the collectives alone: collective, links, algorithm."""
    return [(collective, topology, algorithm) for collective in COLLECTIVES for topology, gpus in LINKS.items()
            for algorithm in (*algorithms(collective, Exchange(topology=topology).links(gpus)),
                              *((IN_SWITCH,) if topology == "switch" and collective != "a2a" else ()))]


def table() -> str:
    """Write which algorithms each layer has over which links, and whether all of them also with --skew, as CSV."""
    alike: dict[str, dict[str, list[str]]] = {}
    unlike: dict[str, dict[str, list[str]]] = {}

    def put(cells: dict[str, dict[str, list[str]]], layer: str, topology: str, algorithm: str) -> None:
        cells.setdefault(layer, {}).setdefault(topology.partition(":")[0], []).append(algorithm)
    for row in runs():
        if row.exchange.signal is None and not row.mirrored:
            layer = row.exchange.operator + (", K in parts" if row.parts > 1 else "")
            put(unlike if row.skew else alike, layer, row.exchange.topology, row.exchange.algorithm)
    for collective, topology, algorithm in alone():
        for cells in (alike, unlike):
            put(cells, f"{COLLECTIVES[collective]} alone", topology, algorithm)
    written = io.StringIO()
    lines = csv.writer(written, lineterminator="\n")
    lines.writerow(("layer", *KINDS, "GPUs that differ"))
    for layer, found in alike.items():
        row_cells, skewed_cells = ([_cell(cells.get(kind, ())) for kind in KINDS]
                                   for cells in (found, unlike.get(layer, {})))
        assert layer not in unlike or skewed_cells == row_cells, "the table has one column for them"
        lines.writerow((layer, *row_cells, "yes" if layer in unlike else "–"))
    return written.getvalue()


def _cell(found: Iterable[str]) -> str:
    return ", ".join(dict.fromkeys(found)) or "–"


if __name__ == "__main__":
    TABLE.write_text(table())
