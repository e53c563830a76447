"""AMPeD's case studies: its equations as printed, on its machines, beside every number that its text states."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from t3sim.analytic.end_to_end.uncertainty import SAMPLES, ranges
from t3sim.base import plots
from t3sim.papers.amped.equations import (
    A100,
    GLAM,
    H100,
    MEGATRON_145B,
    Assumptions,
    Batch,
    Degrees,
    Device,
    batch_time,
    training_days,
)
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table

_TOLERANCE = 0.12  #: of each stated number
_HALF_WIDTH = 0.1  #: of efficiencies and bandwidths, relative: no source gives them to better


def _sampled_ranges(device: Device, assumptions: Assumptions, seed: int,
                    quantities: Callable[[Device, Assumptions], dict]):
    """Return ranges of quantities over what the paper leaves open: efficiencies, bandwidths, the width of gradients."""
    random = np.random.default_rng(seed)

    def draw() -> dict[str, float]:
        half, floor, intra, inter = 1 + random.uniform(-_HALF_WIDTH, _HALF_WIDTH, 4)
        return quantities(
            replace(device, intra_bytes_per_s=device.intra_bytes_per_s * intra,
                    inter_bytes_per_s=device.inter_bytes_per_s * inter),
            replace(assumptions, efficiency_half=assumptions.efficiency_half * half, gradient_bits=int(random.choice(
                [assumptions.gradient_bits, 2 * assumptions.gradient_bits])),
                    efficiency_floor=assumptions.efficiency_floor * floor))

    return ranges(draw() for _ in range(SAMPLES))


def _add_stated(ours: Quantities, key: str, value: float, unit: str, title: str, paper: float, section: str) -> None:
    """Add a number that the paper's text states."""
    ours.add(key, value, unit, title, paper, section, round(_TOLERANCE * paper, 2))


def _conclusions(ours: Quantities, section: str, claims: list[tuple[str, bool]]) -> Table:
    """Add how many conclusions hold, and return a table of them."""
    ours.add("conclusions_that_hold", float(sum(holds for _, holds in claims)), "",
             f"conclusions that hold, of {len(claims)}", float(len(claims)), section, tolerance=0)
    return Table("Conclusions", ("the paper's conclusion", "ours"),
                 [(text, "holds" if holds else "does not hold") for text, holds in claims])


#: Case study I: within | between nodes.
_MAPPINGS = {
    "TP 8 | DP 128": Degrees(tp_intra=8, dp_inter=128), "TP 8 | PP 128": Degrees(tp_intra=8, pp_inter=128),
    "TP 8 | PP 64, TP 2": Degrees(tp_intra=8, pp_inter=64, tp_inter=2),
    "PP 8 | TP 128": Degrees(pp_intra=8, tp_inter=128), "PP 8 | DP 128": Degrees(pp_intra=8, dp_inter=128),
    "PP 8 | PP 128": Degrees(pp_intra=8, pp_inter=128), "DP 8 | PP 128": Degrees(dp_intra=8, pp_inter=128),
    "DP 8 | DP 128": Degrees(dp_intra=8, dp_inter=128)}

#: Key, title, stated days and section of those that have a number.
_CASE1 = {
    "TP 8 | DP 128": ("tp_dp_days", "case I: TP within, DP between nodes", 18, "VI-C"),
    "TP 8 | PP 128": ("tp_pp_days", "case I: TP within, PP between nodes", 21, "VI-C"),
    "TP 8 | PP 64, TP 2": ("tp_tp_days", "case I: TP within, TP and PP between nodes", 57, "VI-C"),
    "PP 8 | DP 128": ("pp_dp_days", "case I: PP within, DP between nodes", 45, "VI-B"),
    "PP 8 | TP 128": ("pp_tp_days", "case I: PP within, TP between nodes", 90, "VI-B"),
    "DP 8 | PP 128": ("dp_pp_days", "case I: DP within, PP between nodes", 36, "VI-D"),
    "DP 8 | DP 128": ("dp_dp_days", "case I: DP within, DP between nodes", 38, "VI-D")}


def _days(device: Device, assumptions: Assumptions, batch: int = 16384) -> dict[str, float]:
    return {name: training_days(device, MEGATRON_145B, degrees, batch, assumptions=assumptions)
            for name, degrees in _MAPPINGS.items()}


def evaluate_case1(setup: Scope, results: Results) -> Findings:
    assumptions = Assumptions()
    days, small_batch = (_days(A100, assumptions, batch) for batch in (16384, 4096))
    batches = {name: batch_time(A100, MEGATRON_145B, degrees, 16384) for name, degrees in _MAPPINGS.items()}
    ours = Quantities()
    for name, (key, title, paper, section) in _CASE1.items():
        _add_stated(ours, key, days[name], "days", title, paper, section)
    spread = _sampled_ranges(A100, assumptions, setup.seed, _days)
    gradients, bubble = batches["TP 8 | DP 128"].gradients, batches["TP 8 | PP 128"].bubble
    claims = [
        ("large batches are needed where nodes are joined by DP or PP",
         all(small_batch[name] > 1.3 * days[name] for name in ("TP 8 | DP 128", "TP 8 | PP 128"))),
        ("tensor parallelism between nodes is slowest", days["TP 8 | PP 64, TP 2"] > 2 * days["TP 8 | PP 128"]),
        ("DP or PP between nodes is at least twice as fast as TP", days["PP 8 | TP 128"] > 2 * days["PP 8 | DP 128"]),
        ("DP's all-reduce costs at most half of PP's bubbles", 2 * gradients < bubble),
        ("TP within a node is twice as fast as PP or DP",
         min(days["PP 8 | DP 128"], days["DP 8 | DP 128"]) > 1.9 * days["TP 8 | DP 128"])]

    def draw():
        figure, axes = plots.figure(3.2)
        parts = (("compute", "matrix products", plots.BLUE), ("nonlinear", "other computation", plots.SKY),
                 ("tensor", "tensor parallelism", plots.ORANGE), ("pipeline", "pipeline messages", plots.YELLOW),
                 ("gradients", "gradients", plots.GREEN), ("bubble", "pipeline bubbles", plots.LIGHT))
        tops = plots.stacked_bars(axes, [*range(len(batches))], (
            (title, colour, "", [getattr(batch, part) * (days[name] / batch.total) for name, batch in batches.items()])
            for part, title, colour in parts))
        axes.set_ylim(0, 80)
        for index, total in enumerate(tops):
            if total > 80:
                axes.annotate(f"{total:.0f}", (index, 78), ha="center", va="top", color="white")
        axes.set_xticks(range(len(batches)), [name.replace(" | ", "\n") for name in batches])
        axes.set_xlabel("parallelism within a node (above) and between nodes (below)")
        axes.set_ylabel("training time (days)")
        plots.legend_above(axes, len(parts))
        return figure

    return Findings(
        text=f"Megatron 145B on 1,024 A100, 300 billion tokens, batch 16,384: {days['TP 8 | DP 128']:.1f} days with "
             "tensor parallelism within the nodes and data parallelism between them. By the paper's equation 6, tensor "
             f"parallelism over 128 nodes would take {days['PP 8 | TP 128']:.0f} days. The paper's 90 days need only a "
             "fraction of the bytes in the equation, although its 57 days for two-way tensor parallelism between nodes "
             "fit.",
        ours=ours, plots={"case1": draw},
        ranges={_CASE1[name][0]: spread[name] for name in _CASE1},
        tables=[Table("Days by cause, batch 16,384", (
            "within | between nodes", "compute", "nonlinear", "TP", "PP", "gradients", "bubbles", "all"), [
                (name, *(f"{part / batch.total * days[name]:.1f}" for part in (
                    batch.compute, batch.nonlinear, batch.tensor, batch.pipeline, batch.gradients, batch.bubble)),
                 f"{days[name]:.1f}") for name, batch in batches.items()]), _conclusions(ours, "VI-E", claims)])


def _case2(device: Device, assumptions: Assumptions) -> dict[str, float]:
    """Compare, by GPUs per node, days with replicas and with pipelines between nodes; also the pipelines' bubbles."""
    figures = {}
    for node in (1, 2, 4, 8):
        by_dp, by_pp = (Degrees(tp_intra=node, **{key: 1024 // node}) for key in ("dp_inter", "pp_inter"))
        dp, pp = (training_days(device, MEGATRON_145B, degrees, 8192, assumptions=assumptions)
                  for degrees in (by_dp, by_pp))
        pipeline = batch_time(device, MEGATRON_145B, by_pp, 8192, assumptions)
        figures |= {f"dp_{node}": dp, f"pp_{node}": pp, f"pp_over_dp_{node}": dp / pp,
                    f"bubbles_{node}_percent": 100 * pipeline.bubble / pipeline.total}
    return figures


def evaluate_case2(setup: Scope, results: Results) -> Findings:
    device = replace(A100, inter_bytes_per_s=12.5e9)
    by_bits = {bits: _case2(device, Assumptions(gradient_bits=bits)) for bits in (16, 32)}
    ratio = {(node, bits): by_bits[bits][f"pp_over_dp_{node}"] for bits in by_bits for node in (1, 2, 4, 8)}
    bubbles = {node: by_bits[16][f"bubbles_{node}_percent"] for node in (1, 2, 4, 8)}
    cells = [(f"{node}", *(text for figures in by_bits.values() for text in (
        f"{figures[f'dp_{node}']:.1f}", f"{figures[f'pp_{node}']:.1f}", f"{figures[f'pp_over_dp_{node}']:.2f}")),
              f"{bubbles[node]:.1f} %") for node in (1, 2, 4, 8)]
    spread = _sampled_ranges(device, Assumptions(), setup.seed, _case2)
    ours = Quantities()
    _add_stated(ours, "pp_over_dp_1", ratio[1, 16], "x", "case II: PP faster than DP, 1 GPU per node", 1.80, "VII")
    _add_stated(ours, "pp_over_dp_2", ratio[2, 16], "x", "case II: PP faster than DP, 2 GPUs per node", 1.17, "VII")
    _add_stated(ours, "pp_over_dp_4", ratio[4, 16], "x", "case II: PP against DP, 4 GPUs per node", 0.96, "VII")
    _add_stated(ours, "bubbles_4_percent", bubbles[4], "%", "case II: bubbles of PP, 4 GPUs per node", 11, "VII")
    stated_ranges = {key: spread[key] for key in ours}
    claims = [("PP between nodes is best where a node has one or two GPUs", min(ratio[1, 16], ratio[2, 16]) > 1),
              ("its advantage shrinks as nodes grow", ratio[1, 16] > ratio[2, 16] > ratio[4, 16] > ratio[8, 16]),
              ("DP between nodes is best with eight GPUs per node", ratio[8, 16] < 1)]
    return Findings(
        text="As nodes grow, data parallelism overtakes pipelines, but one step later and less steeply than the paper "
             f"states (time of DP over PP: {ratio[1, 16]:.2f}, {ratio[2, 16]:.2f}, {ratio[4, 16]:.2f}, "
             f"{ratio[8, 16]:.2f}). With gradients of 32 bits the change is steeper ({ratio[1, 32]:.2f} with one GPU "
             "per node), but the crossover is even later. The paper gives neither the gradients' width nor latencies.",
        ours=ours, ranges=stated_ranges,
        tables=[Table("Days, 16-bit and 32-bit gradients", (
            "GPUs per node", "DP, 16", "PP, 16", "DP over PP", "DP, 32", "PP, 32", "DP over PP", "bubbles"), cells),
                _conclusions(ours, "VII", claims)])


def _glam(h100: Device, assumptions: Assumptions, per_node: int, fibres: int | None, off_chip: float = 1.0) -> Batch:
    """Run one batch of GLaM on 3,072 H100; `fibres` of the accelerators' bandwidth leave a node, or network cards."""
    intra = h100.intra_bytes_per_s * off_chip
    device = replace(h100, intra_bytes_per_s=intra,
                     inter_bytes_per_s=h100.inter_bytes_per_s if fibres is None else intra * fibres / per_node)
    return batch_time(device, GLAM, Degrees(tp_intra=per_node, dp_inter=3072 // per_node), 8192, assumptions)


def _bars(h100: Device, assumptions: Assumptions) -> dict[str, Batch]:
    nodes = {"8 per node, network cards": (8, None), "8, fibres": (8, 8), "16, fibres": (16, 12),
             "32, fibres": (32, 20), "48, fibres": (48, 24), "48, twice off chip": (48, 24, 2),
             "48, four times": (48, 24, 4)}
    return {name: _glam(h100, assumptions, *node) for name, node in nodes.items()}


def _gain(slow: Batch, fast: Batch) -> float:
    return 100 * (slow.total / fast.total - 1)


def _case3(h100: Device, assumptions: Assumptions) -> dict[str, float]:
    bars = _bars(h100, assumptions)
    reference, optical, large = (bars[name] for name in ("8 per node, network cards", "8, fibres", "48, fibres"))
    return {"optical_percent": _gain(reference, optical), "experts_factor": reference.experts / optical.experts,
            "large_nodes_percent": _gain(optical, large),
            "twice_percent": _gain(large, bars["48, twice off chip"]),
            "four_percent": _gain(large, bars["48, four times"])}


def evaluate_case3(setup: Scope, results: Results) -> Findings:
    assumptions = Assumptions(operand_bits=8, gradient_bits=8)
    bars, gains = _bars(H100, assumptions), _case3(H100, assumptions)
    reference, optical, large, twice, four = (bars[name] for name in (
        "8 per node, network cards", "8, fibres", "48, fibres", "48, twice off chip", "48, four times"))
    ours = Quantities()
    for key, unit, title, paper in (
            ("optical_percent", "%", "fibres between nodes", 42),
            ("experts_factor", "x", "reduction of the experts' communication", 6),
            ("large_nodes_percent", "%", "48 GPUs per node in addition", 29),
            ("twice_percent", "%", "twice the bandwidth off chip", 54),
            ("four_percent", "%", "four times the bandwidth off chip", 110)):
        _add_stated(ours, key, gains[key], unit, f"case III: {title}", paper, "VIII")
    claims = [("more bandwidth between nodes helps most by the experts' communication",
               reference.experts - optical.experts > reference.gradients - optical.gradients),
              ("larger nodes compute more efficiently", large.compute < optical.compute),
              ("more bandwidth off chip helps further", four.total < twice.total < large.total),
              ("all three together approach four times", _gain(reference, four) > 250)]
    return Findings(
        text=f"Fibres between nodes make GLaM {_gain(reference, optical):.0f} % faster. Nodes of 48 GPUs are slower "
             "here: by equation 6 an accelerator's tensor-parallel traffic grows with the batch of its replica, which "
             "is six times that of nodes of 8. The paper's own ratios imply that communication takes as long with 48 "
             "as with 8 GPUs per node.",
        ours=ours, ranges=_sampled_ranges(H100, assumptions, setup.seed, _case3),
        tables=[Table("Seconds per batch", ("GPUs per node", "compute", "TP", "experts", "gradients", "all"), [
                    (name, *(f"{part:.2f}" for part in (bar.compute + bar.nonlinear, bar.tensor, bar.experts,
                                                        bar.gradients, bar.total))) for name, bar in bars.items()]),
                _conclusions(ours, "VIII", claims)])


CASE_1 = Figure("case1", "Case study I: mappings of Megatron 145B on 1,024 A100", lambda setup: (), evaluate_case1,
                short="case I", paper="amped")
CASE_2 = Figure("case2", "Case study II: nodes of one to eight accelerators", lambda setup: (), evaluate_case2,
                short="case II", paper="amped")
CASE_3 = Figure("case3", "Case study III: optical substrates", lambda setup: (), evaluate_case3, short="case III",
                paper="amped")
