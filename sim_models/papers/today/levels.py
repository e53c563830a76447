"""Layers of today on every level of this tool: the same GEMM, all-reduce and overlap, and where levels differ, why."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations

from t3sim.analytic.end_to_end.layer import gemm_shapes
from t3sim.analytic.end_to_end.operations import all_reduce_ns, gemm_ns
from t3sim.analytic.gemm import Shape, best_tile_kernel
from t3sim.analytic.libraries.collectives import library_collective
from t3sim.analytic.libraries.mechanisms import OverlapPlan, play
from t3sim.analytic.rings import library_ring_ns
from t3sim.machine import load_machine
from t3sim.machine.levels import ITERATIONS, TILES
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table, layer_result, layer_tasks
from t3sim.runs.operators import with_its_kernel
from t3sim.study.results import RunResult
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.transformer import TODAY
from t3sim.workload.workloads import gemm_workload

CYCLE_MACHINE, _GPU, _TP = "h100-t3", "h100-sxm", 8
_MODELS, _SUBLAYERS, _TOKENS = ("llama-3.1-8b", "llama-3.3-70b", "llama-3.1-405b"), ("op", "fc2"), (512, 2048)
TECHNIQUES = ("sequential", "t3", "t3-mca+")
_NEAR = 0.10  #: levels agree within this

#: Why a level differs from others, by quantity. Of a pair, the first level here that has a reason has it.
_REASONS = {
    ("GEMM", "end to end"): "between other kernels, on a hot GPU, a GEMM runs at [sharing] steady_share of its rate",
    ("GEMM", "cycle"): "the cycle level has two kernels, 128 x 256 x 64 and one for few tokens; a library takes "
                       "smaller tiles, or parts of K, where few tiles would leave units idle",
    ("GEMM", "event"): "the event level's and the library's kernels have other costs beside their main loop",
    ("all-reduce", "cycle"): "the cycle level's links carry payload alone at 450 GB/s, and a step takes the link's "
                             "latency; NCCL's protocols reach 0.87 of that, and a step of theirs takes 3.4 µs",
    ("all-reduce", "event"): "the event level has NCCL's rings alone; the library sums in the switch, or takes a tree "
                             "for few bytes",
    ("T3", "cycle"): "the GEMMs differ; the library level's loses [sharing] power_share of its clock while links send, "
                     "and its rings reach 0.87 of 450 GB/s, where the cycle level has neither",
}


@dataclass(frozen=True)
class _LevelsCase:
    """A sub-layer whose output tensor parallelism reduces."""

    model: str
    sublayer: str
    tokens: int

    @property
    def shape(self) -> tuple[int, int, int]:
        return gemm_shapes(TODAY[self.model], self.tokens, _TP)[self.sublayer][:3]

    @property
    def size_bytes(self) -> float:
        return 2.0 * self.shape[0] * self.shape[1]

    @property
    def title(self) -> str:
        return f"{self.model} {self.sublayer}, {self.tokens:,} tokens"

    @property
    def workload(self):
        workload = gemm_workload("x".join(map(str, self.shape)), _TP)
        return with_its_kernel(load_machine(CYCLE_MACHINE), workload)  # as `t3 run` takes it


LAYERS = tuple(_LevelsCase(model, sublayer, tokens)
                for model in _MODELS for sublayer in _SUBLAYERS for tokens in _TOKENS)


def _tasks(setup: Scope) -> Iterator[KernelTask]:
    machine = load_machine(CYCLE_MACHINE)
    for layer in LAYERS:
        yield from layer_tasks(setup, layer.workload, TECHNIQUES, machine)


def times_ns(layer: _LevelsCase, run: RunResult) -> dict[str, dict[str, float]]:
    """Return the time of each quantity on each level that has it; `run`: on the cycle level."""
    base, size = run.baseline, layer.size_bytes
    tiles, libraries = load_machine(_GPU, TILES), load_machine(_GPU, ITERATIONS)
    plan = OverlapPlan(libraries, "gemm+ar", _TP, layer.shape, hardware=load_machine(CYCLE_MACHINE))
    event_gemm_ns = best_tile_kernel(tiles, Shape(*layer.shape)).ns + tiles.host.launch_ns
    event_all_reduce_ns = library_ring_ns(tiles, _TP, size, passes=2)
    library_all_reduce_ns = library_collective(libraries, "all_reduce", _TP, size, library="calls queued").ns
    whole_gemm_ns = float(gemm_ns(libraries, *layer.shape))
    whole_all_reduce_ns = float(all_reduce_ns(libraries, size, _TP))
    return {
        "GEMM": {"cycle": base.gemm_ns, "event": event_gemm_ns, "library": plan.gemm_ns, "end to end": whole_gemm_ns},
        "all-reduce": {"cycle": base.total_ns - base.gemm_ns, "event": event_all_reduce_ns,
                       "library": library_all_reduce_ns, "end to end": whole_all_reduce_ns},
        "in turn": {"cycle": base.total_ns, "event": event_gemm_ns + event_all_reduce_ns,
                    "library": plan.gemm_ns + library_all_reduce_ns, "end to end": whole_gemm_ns + whole_all_reduce_ns},
        "T3": {"cycle": run.techniques["t3"].total_ns, "library": play(plan, "t3").ns},
        "T3-MCA+": {"cycle": run.techniques["t3-mca+"].total_ns, "library": play(plan, "t3-mca+").ns}}


def _reasons(quantity: str, pairs: list[tuple[str, str]]) -> str:
    """Return why these pairs of levels differ; in turn: whatever its parts differ by."""
    parts = ("GEMM", "all-reduce") if quantity == "in turn" else ("T3",) if quantity == "T3-MCA+" else (quantity,)
    reasons = [next((reason for (name, level), reason in _REASONS.items() if name == part and level in pair), "")
               for part in parts for pair in pairs]
    return "; ".join(filter(None, dict.fromkeys(reasons)))


def _evaluate(setup: Scope, results: Results) -> Findings:
    rows, errors, on_rtl = [], {}, []
    for layer in LAYERS:
        run = layer_result(setup, results, layer.workload, TECHNIQUES, load_machine(CYCLE_MACHINE))
        on_rtl += [(CYCLE_MACHINE, str(_TP), *map(str, layer.shape), name, f"{technique.total_ns / 1e3:.1f}",
                    f"{technique.loss_ns['all_gather'] / 1e3:.1f}")
                   for name, technique in run.techniques.items() if name != "sequential"]
        for quantity, by_level in times_ns(layer, run).items():
            pairs_apart = []
            for one, other in combinations(by_level, 2):
                ratio = by_level[other] / by_level[one]
                errors.setdefault((quantity, one, other), []).append(max(ratio, 1 / ratio) - 1)
                if max(ratio, 1 / ratio) > 1 + _NEAR:
                    pairs_apart.append((one, other))
            rows.append((f"{layer.title}: {quantity}",
                         *(f"{by_level[level] / 1e3:,.1f}" if level in by_level else "–"
                           for level in ("cycle", "event", "library", "end to end")), _reasons(quantity, pairs_apart)))
    ours = Quantities("beyond the papers")
    near_pairs = {pair: sum(error <= _NEAR for error in pair_errors) for pair, pair_errors in errors.items()}
    ours.add("pairs_near", 100 * sum(near_pairs.values()) / sum(map(len, errors.values())), "%",
             f"pairs of levels within {100 * _NEAR:.0f} %")
    return Findings(
        text=f"{sum(near_pairs.values())} of {sum(map(len, errors.values()))} pairs of levels are within "
             f"{100 * _NEAR:.0f} % of each other on {len(LAYERS)} layers of today, on {_TP} GPUs of {_GPU} "
             f"({CYCLE_MACHINE} on the cycle level). The table of times gives the reason for each of the others.",
        ours=ours,
        tables=[Table("Pairs of levels", ("quantity, levels", "layers", f"within {100 * _NEAR:.0f} %",
                                          "largest difference"), [
            (f"{quantity}: {one} and {other}", str(len(pair_errors)), str(near_pairs[quantity, one, other]),
             f"{100 * max(pair_errors):.0f} %") for (quantity, one, other), pair_errors in errors.items()]),
            Table("Time (µs)", ("layer and quantity", "cycle", "event", "library", "end to end",
                                "reason for differences"), rows, folded=True),
            Table("Track & Trigger on the RTL (µs)", ("machine", "GPUs", "M", "N", "K", "technique", "total",
                                                      "of it all-gather"), on_rtl, folded=True)])


LEVELS = Figure("levels", "Layers of today on every level", _tasks, _evaluate, paper="today")
