"""Beyond the papers: how far sums of 2 to 64 GPUs' parts are from float64, by what arrives and what adds it up.

Numbers are drawn, and added in numpy as the hardware would: in the order of a ring, or as they come. What it costs to
keep sums elsewhere than in the format of what arrives, the RTL in lockstep says.
"""

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from functools import reduce

import numpy as np

from t3sim.base import plots
from t3sim.machine.formats import BF16, E4M3, E5M2, FP32, Format, lfsr, scaled, unscaled
from t3sim.mechanisms.track_trigger import FusedGemm
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table
from t3sim.rtl.formats import FIXED_PART_BITS
from t3sim.runs.exchange import Exchange
from t3sim.runs.kernels import CollectiveAlone
from t3sim.runs.sums import Sums
from t3sim.study.tasks.task import KernelTask
from t3sim.workload.workloads import gemm_workload

GPUS = (2, 4, 8, 16, 32, 64)
_ROWS, _COLUMNS = 64, 256

#: Each gives float64 [GPU, row, column].
_Draw = Callable[[np.random.Generator, int], np.ndarray]


def gradients(random: np.random.Generator, gpus: int) -> np.ndarray:
    """Draw gradients: what all GPUs' samples have in common, and four times as much that each has of its own.

    Both normal; columns' sizes are log-normal about 1e-4 (of the logarithm: 2).
    """
    columns = 1e-4 * np.exp(2 * random.standard_normal(_COLUMNS))
    shared = random.standard_normal((_ROWS, _COLUMNS))
    return (shared + 4 * random.standard_normal((gpus, _ROWS, _COLUMNS))) * columns


def activations(random: np.random.Generator, gpus: int) -> np.ndarray:
    """Draw parts of activations: a GPU's share of K gives a normal number; every 128th column is 30 times as large."""
    columns = np.where(np.arange(_COLUMNS) % 128 == 5, 30.0, 1.0)
    return random.standard_normal((gpus, _ROWS, _COLUMNS)) / np.sqrt(gpus) * columns


_DISTRIBUTIONS: dict[str, _Draw] = {"gradients": gradients, "activations": activations}


@dataclass(frozen=True)
class Way:
    """A way to add up: `total` of parts in their order, float64 [GPU, row, column], as the owner has it in the end."""

    title: str
    total: Callable[[np.ndarray], np.ndarray]
    by_arrival: bool = False  #: parts are added as they come, not in an order that is fixed


def _bf16(values: np.ndarray) -> np.ndarray:
    return BF16.value(BF16.cut(values)).astype(np.float64)


def _in_bf16(parts: np.ndarray) -> np.ndarray:
    """Round after each addition."""
    return reduce(lambda total, part: _bf16(total + part), map(_bf16, parts))


def _in_bf16_by_chance(parts: np.ndarray) -> np.ndarray:
    """Round stochastically: each element has a register of its own, which steps before each addition."""
    state = np.arange(1, parts[0].size + 1).reshape(parts[0].shape) % 65535 + 1
    total = _bf16(parts[0])
    for part in parts[1:]:
        for _ in range(16):  # as many steps as it has bits: the next number has none of this one's
            state = lfsr(state)
        total = BF16.value(BF16.cut(total + _bf16(part), state)).astype(np.float64)
    return total


def _in_fp32(parts: np.ndarray) -> np.ndarray:
    """Round to fp32 after each addition."""
    return reduce(np.add, parts.astype(np.float32)).astype(np.float64)


def in_fixed_point(parts: np.ndarray) -> np.ndarray:
    """Round each part to a unit, a power of two, of which the largest one has as many as memory's fixed point takes."""
    _, power = np.frexp(np.abs(parts).max())
    unit = 2.0 ** (power - FIXED_PART_BITS)
    return np.rint(parts / unit).sum(axis=0) * unit


def _in_blocks(number: Format, block: int) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that makes of values what arrives of them in blocks with a scale."""
    return lambda values: unscaled(number, *scaled(number, values, block))


def _by_fp32(number: Format, block: int) -> Callable[[np.ndarray], np.ndarray]:
    """Do so with scales in fp32, which make a block's largest number the format's; a product is rounded to fp32."""
    largest = number.value(np.array([number.largest], number.bits))[0]

    def through_blocks(values: np.ndarray) -> np.ndarray:
        blocks = values.reshape(*values.shape[:-1], -1, block)
        top = np.abs(blocks).max(axis=-1, keepdims=True)
        scales = np.where(top > 0, top / largest, 1).astype(np.float32)
        bits = number.saturating().cut(blocks / scales)
        return (number.value(bits) * scales).astype(np.float64).reshape(values.shape)
    return through_blocks


def _direct(transfer: Callable[[np.ndarray], np.ndarray]) -> Callable[[np.ndarray], np.ndarray]:
    return lambda parts: _in_fp32(np.array([*map(transfer, parts)]))


def _ring_of_blocks(parts: np.ndarray) -> np.ndarray:
    through_blocks = _in_blocks(E4M3, 32)
    return reduce(lambda total, part: FP32.value(FP32.cut(through_blocks(total) + part)).astype(np.float64), parts)


WAYS = {
    "ring-bf16": Way("ring, bf16", _in_bf16),
    "direct-bf16": Way("direct, bf16", _in_bf16, by_arrival=True),
    "stochastic-bf16": Way("ring, bf16, stochastic", _in_bf16_by_chance),
    "array-fp32": Way("direct, bf16 sent, fp32 array", _direct(_bf16), by_arrival=True),
    "fixed": Way("direct, bf16 sent, fixed point", lambda parts: in_fixed_point(_bf16(parts)), by_arrival=True),
    "wire-fp32": Way("ring, fp32 sent", _in_fp32),
    "mx-e4m3": Way("direct, e4m3 in blocks of 32, fp32 array", _direct(_in_blocks(E4M3, 32)), by_arrival=True),
    "mx-e5m2": Way("direct, e5m2 in blocks of 32, fp32 array", _direct(_in_blocks(E5M2, 32)), by_arrival=True),
    "e4m3-128": Way("direct, e4m3 in blocks of 128, fp32 array", _direct(_in_blocks(E4M3, 128)), by_arrival=True),
    "e4m3-fp32-128": Way("direct, e4m3 in 128 with a scale in fp32, fp32 array", _direct(_by_fp32(E4M3, 128)),
                         by_arrival=True),
    "ring-mx-e4m3": Way("ring, e4m3 in blocks of 32", _ring_of_blocks),
}
_COLOURS = {"ring-bf16": plots.BLACK, "stochastic-bf16": plots.GREY, "array-fp32": plots.BLUE,
            "wire-fp32": plots.GREEN, "mx-e4m3": plots.ORANGE, "mx-e5m2": plots.RED, "ring-mx-e4m3": plots.PURPLE}


def error(total: np.ndarray, parts: np.ndarray) -> float:
    """Return how far a sum is from that of `parts` in float64, in percent.

    A column's error is a root mean square over that of its sums; all columns' root mean square counts, so that small
    columns beside large ones do.
    """
    exact_sum = parts.sum(axis=0)
    columns = np.mean((total - exact_sum) ** 2, axis=0) / np.mean(exact_sum**2, axis=0)
    return float(100 * np.sqrt(columns.mean()))


@dataclass(frozen=True)
class _SumErrors:
    """Percent for each number of GPUs."""

    error: list[float]  #: of the sum, rounded to bf16
    moved: list[float]  #: elements of the sum that another order of arrival changes
    moved_rounded: list[float]  #: and still after it is rounded to bf16


def _sum_errors(draw: _Draw, seed: int) -> dict[str, _SumErrors]:
    errors = {name: _SumErrors([], [], []) for name in WAYS}
    random = np.random.default_rng(seed)
    all_parts = draw(random, GPUS[-1])
    for gpus in GPUS:
        parts, order = all_parts[:gpus], random.permutation(gpus)
        for name, way in WAYS.items():
            total = way.total(parts)
            other = way.total(parts[order]) if way.by_arrival else total
            errors[name].error.append(error(_bf16(total), parts))
            errors[name].moved.append(float(100 * np.mean(other != total)))
            errors[name].moved_rounded.append(float(100 * np.mean(_bf16(other) != _bf16(total))))
    return errors


def evaluate(setup: Scope, results: Results) -> Findings:
    errors = {name: _sum_errors(draw, setup.seed) for name, draw in _DISTRIBUTIONS.items()}

    ours = Quantities("beyond the paper")
    for name, ways in errors.items():
        for way, way_errors in ways.items():
            ours.add(f"{name}_{way.replace('-', '_')}_percent", way_errors.error[-1], "%",
                     f"{name}, {WAYS[way].title}, {GPUS[-1]} parts, error")
    ring_errors, array_errors, direct_errors = (
        errors["gradients"][name] for name in ("ring-bf16", "array-fp32", "direct-bf16"))
    head = ("parts", *map(str, GPUS))
    return Findings(
        text=f"The bf16 sum of the gradients of {GPUS[-1]} GPUs differs from float64 by {ring_errors.error[-1]:.2f} %, "
             f"of {GPUS[0]} GPUs by {ring_errors.error[0]:.2f} %: the error grows with the square root of the number "
             f"of GPUs. With sums in fp32 it is {array_errors.error[-1]:.2f} %, no more than for {GPUS[0]} GPUs. If "
             "parts are added in bf16 in the order in which they arrive, another order changes "
             f"{direct_errors.moved[-1]:.0f} % of the elements.",
        cases=[{"figure": "sums", "numbers": name, "gpus": list(GPUS), "way": way} | {
            f"{key}_percent": values for key, values in asdict(way_errors).items()}
            for name, ways in errors.items() for way, way_errors in ways.items()],
        ours=ours,
        tables=[*(Table(f"Error of sums of {name} (%)", head, [
                    (WAYS[way].title, *(f"{percent:.3f}" for percent in way_errors.error))
                    for way, way_errors in ways.items()])
                  for name, ways in errors.items()),
                Table("Elements of gradients that another order of arrival changes (%)", head, [
                    (f"{WAYS[way].title}{rounded}", *(f"{percent:.2f}" for percent in values))
                    for way, way_errors in errors["gradients"].items() if WAYS[way].by_arrival
                    for rounded, values in (("", way_errors.moved), (", rounded to bf16", way_errors.moved_rounded))
                    if not (rounded and way == "direct-bf16")])],
        plots={"sums": lambda: _draw({name: {way: way_errors.error for way, way_errors in ways.items()}
                                      for name, ways in errors.items()})})


def _draw(errors: dict[str, dict[str, list[float]]]):
    figure, panels = plots.figure(3.8, columns=len(errors), sharey=True)
    for axes, (name, way_errors) in zip(panels, errors.items()):
        for way, colour in _COLOURS.items():
            axes.plot(GPUS, way_errors[way], "o-", color=colour, markersize=3, linewidth=1.2, label=WAYS[way].title)
        plots.log_axis(axes, "x", GPUS)
        plots.log_axis(axes, "y")
        axes.set_xlabel("GPUs")
        axes.set_title(name)
    panels[0].set_ylabel("error (% of the sum)")
    figure.legend(*panels[0].get_legend_handles_labels(), loc="outside upper center", ncols=3)
    return figure


SUMS = Figure("sums", "Error of sums over 2 to 64 GPUs, by format and order", lambda setup: (), evaluate,
              paper="beyond")


_LAYER = gemm_workload("2048x4096x1024", 8, "bf16")
_EXCHANGES = {"ring": Exchange(), "direct": Exchange(algorithm="direct", topology="switch")}
_PLACES = {"bf16": Sums(), "fp32 array, bf16 sent": Sums("fp32"), "fp32 array, fp32 sent": Sums("fp32", "fp32"),
           "fixed point, bf16 sent": Sums("fixed"), "fp32 array, e4m3 in blocks sent": Sums("fp32", "e4m3")}


def _cases(setup: Scope) -> list[tuple[str, str, Exchange, KernelTask]]:
    cases = []
    for name, exchange in _EXCHANGES.items():
        for place, sums in _PLACES.items():
            if sums.wire == "e4m3" and name == "ring":  # made by compute units alone
                continue
            sums_exchange = replace(exchange, sums=sums)
            cases.append((name, place, sums_exchange, setup.task(FusedGemm("mca", exchange=sums_exchange), _LAYER,
                                                                 sums_exchange.hardware(setup.machine, _LAYER))))
    return cases


#: A direct exchange alone: parts are added as they come, in a fixed point; or lie each in a buffer until all are there,
#: and compute units add them in a fixed order.
_FIXED_ORDER = {"added on arrival, fixed point": ("reduce-scatter-nmc", Sums("fixed")),
                "a buffer for each source, bf16": ("reduce-scatter", Sums())}


def _fixed_order_tasks(setup: Scope) -> dict[str, tuple[KernelTask, int]]:
    """Return tasks of exchanges whose bits do not depend on who comes first, each with the bytes that it needs."""
    tasks = {}
    for name, (kind, sums) in _FIXED_ORDER.items():
        memory_layer = replace(_LAYER, dtype="fp32") if sums.accumulate else _LAYER  # as memory sees it
        kernel = CollectiveAlone(kind, exchange=_EXCHANGES["direct"])
        chunks = 1 if sums.accumulate else _LAYER.tp
        tasks[name] = (setup.task(kernel, memory_layer, sums.seen_from_memory(setup.machine, _LAYER)),
                       memory_layer.output_bytes // _LAYER.tp * chunks)
    return tasks


def evaluate_cost(setup: Scope, results: Results) -> Findings:
    rows, times = [], {}
    order_rows = []
    for name, (task, room) in _fixed_order_tasks(setup).items():
        result = results[task]
        columns = sum(map(sum, result.dram.values())) / setup.machine.dram.column_bytes
        order_rows.append((name, f"{result.ns / 1e3:,.1f}", f"{(result.ns - result.exchange_ns) / 1e3:,.1f}",
                           f"{columns / 1e6:.2f}", f"{room / 1e6:.1f}"))
    for name, place, exchange, task in _cases(setup):
        result = results[task]
        columns = sum(map(sum, result.dram.values())) / setup.machine.dram.column_bytes
        times[name, place] = result.cycles / setup.machine.memory_clock_ghz
        rows.append((f"{name}, {place}", f"{times[name, place] / 1e3:,.1f}", f"{columns / 1e6:.2f}",
                     f"{exchange.link_bytes(_LAYER) / 1e6:.1f}"))
    slower = {name: times[name, "fp32 array, bf16 sent"] / times[name, "bf16"] for name in _EXCHANGES}
    ours = Quantities("beyond the paper")
    for name, value in slower.items():
        ours.add(f"{name}_fp32_array_over_bf16", value, "x", f"fp32 array over bf16, {name}, time")
    return Findings(
        text="With fp32 sums in memory and bf16 on the links, a GEMM with its reduce-scatter takes "
             f"{slower['ring']:.2f} times as long as in bf16 alone around a ring, and {slower['direct']:.2f} times "
             "with direct transfers. DRAM moves twice as many bytes of the output, the links move the same.",
        cases=[{"figure": "sums-cost", "exchange": name, "sums": place, "ns": ns} for (name, place), ns
               in times.items()],
        ours=ours,
        tables=[Table("GEMM of 2048 x 4096 x 1024 with its reduce-scatter on 8 GPUs", (
            "exchange and sums", "fused (µs)", "DRAM columns (millions)", "sent by a GPU (MB)"), rows),
                Table("Fixed order of additions: direct reduce-scatter alone", (
                    "parts", "total (µs)", "after the last part (µs)", "DRAM columns (millions)",
                    "memory for sums (MB)"), order_rows)])


def _tasks(setup: Scope) -> list[KernelTask]:
    return [*(task for *_, task in _cases(setup)), *(task for task, _ in _fixed_order_tasks(setup).values())]


COST = Figure("sums-cost", "Cost of sums wider than their parts", _tasks, evaluate_cost, paper="beyond")
