"""AMPeD's case studies: its equations as printed, on its machines, beside every number that its text states."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from sim_models.end_to_end.amped import (
    A100,
    GLAM,
    H100,
    MEGATRON_145B,
    Assumptions,
    Batch,
    Degrees,
    batch_time,
    training_days,
)
from sim_models.reproduce import plots
from sim_models.reproduce.figure import Figure, Findings, Results, Setup, Table
from sim_models.reproduce.paper import Target

_TOLERANCE = 0.12  #: of each stated number


@dataclass(frozen=True)
class Stated:
    """A number of the paper's text, and ours."""

    key: str
    title: str
    unit: str
    paper: float
    where: str
    ours: float


def _findings(text: str, section: str, stated: list[Stated], claims: list[tuple[str, bool]], **more) -> Findings:
    """Numbers within 12 %, conclusions as they hold or not."""
    kept = sum(holds for _, holds in claims)
    ours = {one.key: one.ours for one in stated} | {"conclusions_that_hold": float(kept)}
    targets = {one.key: Target(one.title, one.unit, one.paper, one.where, round(_TOLERANCE * one.paper, 2))
               for one in stated}
    targets["conclusions_that_hold"] = Target(f"conclusions that hold, of {len(claims)}", "", float(len(claims)),
                                              section, at_least=len(claims))
    more.setdefault("tables", []).append(
        Table("Conclusions", ("the paper's conclusion", "here"), [(text, "holds" if holds else "does not hold")
                                                                for text, holds in claims]))
    return Findings(text=text, ours=ours, targets=targets, **more)


def _days(at: Degrees, batch: int = 16384) -> float:
    return training_days(A100, MEGATRON_145B, at, batch)


def evaluate_case1(setup: Setup, results: Results) -> Findings:
    mappings = {
        "TP 8 | DP 128": Degrees(tp_intra=8, dp_inter=128), "TP 8 | PP 128": Degrees(tp_intra=8, pp_inter=128),
        "TP 8 | PP 64, TP 2": Degrees(tp_intra=8, pp_inter=64, tp_inter=2),
        "PP 8 | TP 128": Degrees(pp_intra=8, tp_inter=128), "PP 8 | DP 128": Degrees(pp_intra=8, dp_inter=128),
        "PP 8 | PP 128": Degrees(pp_intra=8, pp_inter=128), "DP 8 | PP 128": Degrees(dp_intra=8, pp_inter=128),
        "DP 8 | DP 128": Degrees(dp_intra=8, dp_inter=128)}
    days = {name: _days(at) for name, at in mappings.items()}
    large = {name: batch_time(A100, MEGATRON_145B, at, 16384) for name, at in mappings.items()}
    stated = [
        Stated("tp_dp_days", "case I: TP within, DP between nodes", "days", 18, "VI-C", days["TP 8 | DP 128"]),
        Stated("tp_pp_days", "case I: TP within, PP between nodes", "days", 21, "VI-C", days["TP 8 | PP 128"]),
        Stated("tp_tp_days", "case I: TP within, TP and PP between nodes", "days", 57, "VI-C",
               days["TP 8 | PP 64, TP 2"]),
        Stated("pp_dp_days", "case I: PP within, DP between nodes", "days", 45, "VI-B", days["PP 8 | DP 128"]),
        Stated("pp_tp_days", "case I: PP within, TP between nodes", "days", 90, "VI-B", days["PP 8 | TP 128"]),
        Stated("dp_pp_days", "case I: DP within, PP between nodes", "days", 36, "VI-D", days["DP 8 | PP 128"]),
        Stated("dp_dp_days", "case I: DP within, DP between nodes", "days", 38, "VI-D", days["DP 8 | DP 128"])]
    gradients, bubble = large["TP 8 | DP 128"].gradients, large["TP 8 | PP 128"].bubble
    claims = [
        ("large batches are needed where nodes are joined by DP or PP",
         all(_days(mappings[name], 4096) > 1.3 * days[name] for name in ("TP 8 | DP 128", "TP 8 | PP 128"))),
        ("tensor parallelism between nodes is slowest", days["TP 8 | PP 64, TP 2"] > 2 * days["TP 8 | PP 128"]),
        ("DP or PP between nodes is at least twice as fast as TP", days["PP 8 | TP 128"] > 2 * days["PP 8 | DP 128"]),
        ("DP's all-reduce costs at most half of PP's bubbles", 2 * gradients < bubble),
        ("TP within a node is twice as fast as PP or DP",
         min(days["PP 8 | DP 128"], days["DP 8 | DP 128"]) > 1.9 * days["TP 8 | DP 128"])]

    def draw():
        drawn, axes = plots.figure(3.2)
        parts = (("compute", plots.BLUE), ("nonlinear", plots.SKY), ("tensor", plots.ORANGE),
                 ("pipeline", plots.YELLOW), ("gradients", plots.GREEN), ("bubble", plots.LIGHT))
        below = [0.0] * len(large)
        scale = {name: days[name] / large[name].total for name in large}
        for part, colour in parts:
            heights = [getattr(one, part) * scale[name] for name, one in large.items()]
            axes.bar(range(len(large)), heights, 0.7, bottom=below, color=colour, label=part)
            below = [a + b for a, b in zip(below, heights)]
        axes.set_ylim(0, 80)
        for place, total in enumerate(below):
            if total > 80:
                axes.annotate(f"{total:.0f}", (place, 78), ha="center", va="top", color="white")
        axes.set_xticks(range(len(large)), [name.replace(" | ", "\n") for name in large])
        axes.set_ylabel("days")
        axes.legend(loc="upper right", ncols=3)
        return drawn

    return _findings(
        f"Megatron 145B on 1,024 A100, 300 billion tokens, batch 16,384: {days['TP 8 | DP 128']:.1f} days with tensor "
        f"parallelism within the nodes and replicas between them. By equation 6, tensor parallelism over 128 nodes "
        f"would take {days['PP 8 | TP 128']:.0f} days: the paper's 90 need a fraction of the "
        "bytes that the equation has, although two-way tensor parallelism between nodes (57 days) fits.",
        "VI-E", stated, claims, plots={"case1": draw}, tables=[Table("Days by cause, batch 16,384", (
            "within | between nodes", "compute", "nonlinear", "TP", "PP", "gradients", "bubbles", "all"), [
                (name, *(f"{part / one.total * days[name]:.1f}" for part in (
                    one.compute, one.nonlinear, one.tensor, one.pipeline, one.gradients, one.bubble)),
                 f"{days[name]:.1f}") for name, one in large.items()])])


def evaluate_case2(setup: Setup, results: Results) -> Findings:
    device, cells, ratio, bubbles = replace(A100, inter_bytes_per_s=12.5e9), [], {}, {}
    for node in (1, 2, 4, 8):
        by_dp, by_pp = (Degrees(tp_intra=node, **{key: 1024 // node}) for key in ("dp_inter", "pp_inter"))
        row = [f"{node}"]
        for bits in (16, 32):
            assumed = Assumptions(gradient_bits=bits)
            days = [training_days(device, MEGATRON_145B, at, 8192, assumed=assumed) for at in (by_dp, by_pp)]
            ratio[node, bits] = days[0] / days[1]
            row += [f"{days[0]:.1f}", f"{days[1]:.1f}", f"{ratio[node, bits]:.2f}"]
        pipeline = batch_time(device, MEGATRON_145B, by_pp, 8192)
        bubbles[node] = 100 * pipeline.bubble / pipeline.total
        cells.append((*row, f"{bubbles[node]:.1f} %"))
    stated = [
        Stated("pp_over_dp_1", "case II: PP faster than DP, 1 GPU per node", "x", 1.80, "VII", ratio[1, 16]),
        Stated("pp_over_dp_2", "case II: PP faster than DP, 2 GPUs per node", "x", 1.17, "VII", ratio[2, 16]),
        Stated("pp_over_dp_4", "case II: PP against DP, 4 GPUs per node", "x", 0.96, "VII", ratio[4, 16]),
        Stated("bubbles_4_percent", "case II: bubbles of PP, 4 GPUs per node", "%", 11, "VII", bubbles[4])]
    claims = [("PP between nodes is best where a node has one or two GPUs", min(ratio[1, 16], ratio[2, 16]) > 1),
              ("its advantage shrinks as nodes grow", ratio[1, 16] > ratio[2, 16] > ratio[4, 16] > ratio[8, 16]),
              ("DP between nodes is best with eight GPUs per node", ratio[8, 16] < 1)]
    return _findings(
        f"The crossing from pipelines to replicas as nodes grow is there, one step later and flatter than stated: "
        f"{ratio[1, 16]:.2f}, {ratio[2, 16]:.2f}, {ratio[4, 16]:.2f}, {ratio[8, 16]:.2f}. Gradients of 32 bits steepen "
        f"it ({ratio[1, 32]:.2f} with one GPU per node) but move the crossing further away; the paper states neither "
        "their width nor the latencies.",
        "VII", stated, claims, tables=[Table("Days, 16-bit and 32-bit gradients", (
            "GPUs per node", "DP, 16", "PP, 16", "DP over PP", "DP, 32", "PP, 32", "DP over PP", "bubbles"), cells)])


def _glam(per_node: int, fibres: int | None, off_chip: float = 1.0) -> Batch:
    """One batch of GLaM on 3,072 H100; `fibres` of the accelerators' bandwidth leave a node, or network cards."""
    own = H100.intra_bytes_per_s * off_chip
    device = replace(H100, intra_bytes_per_s=own,
                     inter_bytes_per_s=H100.inter_bytes_per_s if fibres is None else own * fibres / per_node)
    return batch_time(device, GLAM, Degrees(tp_intra=per_node, dp_inter=3072 // per_node), 8192,
                      Assumptions(operand_bits=8, gradient_bits=8))


def evaluate_case3(setup: Setup, results: Results) -> Findings:
    bars: dict[str, Batch] = {
        "8 per node, network cards": _glam(8, None), "8, fibres": _glam(8, 8), "16, fibres": _glam(16, 12),
        "32, fibres": _glam(32, 20), "48, fibres": _glam(48, 24), "48, twice off chip": _glam(48, 24, 2),
        "48, four times": _glam(48, 24, 4)}
    reference, optical, large, twice, four = (bars[name] for name in (
        "8 per node, network cards", "8, fibres", "48, fibres", "48, twice off chip", "48, four times"))
    gain: Callable[[Batch, Batch], float] = lambda slow, fast: 100 * (slow.total / fast.total - 1)  # noqa: E731
    stated = [
        Stated("optical_percent", "case III: fibres between nodes", "%", 42, "VIII", gain(reference, optical)),
        Stated("experts_factor", "case III: experts' communication falls", "x", 6, "VIII",
               reference.experts / optical.experts),
        Stated("large_nodes_percent", "case III: 48 GPUs per node on top", "%", 29, "VIII", gain(optical, large)),
        Stated("twice_percent", "case III: twice the bandwidth off chip", "%", 54, "VIII", gain(large, twice)),
        Stated("four_percent", "case III: four times", "%", 110, "VIII", gain(large, four))]
    claims = [("more bandwidth between nodes helps most by the experts' communication",
               reference.experts - optical.experts > reference.gradients - optical.gradients),
              ("larger nodes compute more efficiently", large.compute < optical.compute),
              ("more bandwidth off chip helps further", four.total < twice.total < large.total),
              ("all three together approach four times", gain(reference, four) > 250)]
    return _findings(
        f"Fibres between nodes make GLaM {gain(reference, optical):.0f} % faster. Nodes of 48 do not pay here: by "
        "equation 6 the tensor-parallel traffic of an accelerator grows with its replica's batch, six times that of "
        "nodes of 8. The paper's own ratios imply communication that takes as long with 48 as with 8 per node.",
        "VIII", stated, claims, tables=[Table("Seconds per batch", (
            "GPUs per node", "compute", "TP", "experts", "gradients", "all"), [
                (name, *(f"{part:.2f}" for part in (one.compute + one.nonlinear, one.tensor, one.experts, one.gradients,
                                                   one.total))) for name, one in bars.items()])])


CASE_1 = Figure("case1", "Case study I: mappings of Megatron 145B on 1,024 A100", lambda setup: (), evaluate_case1,
                short="case I", paper="amped")
CASE_2 = Figure("case2", "Case study II: nodes of one to eight accelerators", lambda setup: (), evaluate_case2,
                short="case II", paper="amped")
CASE_3 = Figure("case3", "Case study III: optical substrates", lambda setup: (), evaluate_case3, short="case III",
                paper="amped")
