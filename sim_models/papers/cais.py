"""CAIS's nine comparisons (HPCA 2026, arXiv 2605.05628), ours beside theirs, and what tells the two apart."""

from collections.abc import Callable
from math import ceil

from t3sim.analytic.libraries.collectives import BLOCKS, in_switch_ns, transfer_ns
from t3sim.analytic.libraries.contention import TimedJob, attention_job, beside, collective_job, gemm_job, stream_job
from t3sim.analytic.libraries.mechanisms import OverlapPlan, fused, play
from t3sim.analytic.rings import pair_gb_per_s
from t3sim.base import plots
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table
from t3sim.papers.paper import geomean

#: Geometric means of CAIS's speedup over each of its baselines (HPCA 2026, arXiv 2605.05628, section V-A): prompts,
#: training, and the four sub-layers.
CAIS = {"FuseLib-NVLS": (1.21, 1.20, 1.20), "CoCoNet-NVLS": (1.25, 1.23, 1.24), "TP-NVLS": (1.38, 1.37, 1.39),
        "T3-NVLS": (1.45, 1.45, 1.47), "T3": (1.61, 1.60, 1.64), "SP-NVLS": (1.89, 1.89, 1.91),
        "FuseLib": (1.90, 1.89, 1.91), "CoCoNet": (1.98, 1.96, 1.99), "LADM": (7.60, 7.59, 7.90)}
#: Tokens, hidden size and FFN's of its models (Table I, which has halves of sizes, for half of the units).
CAIS_MODELS = {"Mega-GPT-4B": (16 * 1024, 2048, 8192), "Mega-GPT-8B": (12 * 1024, 3072, 12288),
               "LLaMA-7B": (3 * 3072, 4096, 11264)}
#: Communication in times of computation of LLaMA-7B on eight of its GPUs (section II-B).
_CAIS_RATIO = 1.6
_CAIS_HEADS, _CAIS_SEQUENCE = 32, 3072  #: of LLaMA-7B
_GPUS = 8


def exposed_ns(plan: OverlapPlan) -> float:
    """Return the part of a GEMM that nothing hides: its first round of tiles, or one GPU's rows that come first."""
    rounds = max(1, ceil(plan.kernel().tiles / plan.machine.gpu.compute_units))
    return plan.gemm_ns / (plan.gpus if plan.before else rounds)


def beside_transfer_ns(machine: Machine, gemms: float, transfer: float, alone_ns: float) -> float:
    """Return the time of GEMMs beside a transfer, which takes power from them, and begins or ends without them."""
    power_share = machine.sharing.power_share
    return max(min(gemms / (1 - power_share), gemms + transfer * power_share), transfer + alone_ns)


def track_trigger_ns(plan: OverlapPlan) -> float:
    """Return the time of a GEMM whose tiles go to, or come from, a switch as Track & Trigger has it."""
    machine = plan.machine
    transfer = transfer_ns(machine, plan.kind, plan.gpus, plan.size) + machine.wires.latency_ns
    return beside_transfer_ns(machine, plan.gemm_ns, transfer, exposed_ns(plan))


def as_sums_arrive_ns(first: OverlapPlan, second: OverlapPlan) -> float:
    """Return the time of two GEMMs of which the second takes each of the first's sums as it comes, as CAIS has it.

    What goes up to the switch and what comes down are on the links at the same time.
    """
    machine = first.machine
    transfer = transfer_ns(machine, "all_reduce", first.gpus, first.size) + 2 * machine.wires.latency_ns
    return beside_transfer_ns(machine, first.gemm_ns + second.gemm_ns, transfer, exposed_ns(first) + exposed_ns(second))


def in_pieces_ns(plan: OverlapPlan, collective: Callable[[float], TimedJob]) -> float:
    """Return the time of a GEMM in the best number of pieces, the collective of each beside the next one's GEMM."""
    machine, (m, n, k), times = plan.machine, plan.shape, []
    for pieces in (1, 2, 4, 8):
        piece, piece_collective = (ceil(m / pieces), n, k), collective(plan.size / pieces)
        overlapped_ns = beside(machine, piece, plan.width, piece_collective).ns
        times.append(gemm_job(machine, *piece).ns + (pieces - 1) * overlapped_ns + piece_collective.ns)
    return min(times)


def sub_layers(hidden: int, ffn: int) -> tuple[tuple[int, int], ...]:
    """Return CAIS's L1 to L4: the whole depth of the GEMM before the norm, and all columns of the one after it."""
    return (hidden, ffn), (ffn, 3 * hidden), (ffn, hidden), (3 * hidden, ffn)


def sub_layer(machine: Machine, tokens: int, hidden: int, depth: int, columns: int) -> dict[str, float]:
    """Time a GEMM, the sum of its outputs, a norm and the next GEMM, by each of CAIS's baselines.

    With all-reduces every GPU norms all tokens, otherwise its own.
    """
    first, second = (tokens, hidden, depth // _GPUS), (tokens, columns // _GPUS, hidden)
    gemms = [gemm_job(machine, *shape).ns for shape in (first, second)]
    rs, ag, ar = (OverlapPlan(machine, kind, _GPUS, shape) for kind, shape in (
        ("gemm+rs", first), ("ag+gemm", second), ("gemm+ar", first)))
    size, switch = rs.size, machine.in_switch

    def switch_ns(kind: str) -> float:
        return in_switch_ns(machine, kind, _GPUS, size)

    def norm_ns(rows: float) -> float:
        return stream_job(machine, 2 * 2.0 * rows * hidden).ns  # all read and written

    def switch_sum_job(part: float) -> TimedJob:
        return TimedJob(in_switch_ns(machine, "all_reduce", _GPUS, part, graph=True), 2 * part, part, BLOCKS)

    def stores_ns(phases: int) -> float:
        return phases * size / _GPUS / (pair_gb_per_s(machine, _GPUS) * machine.wires.all_efficiency)
    last_norm_and_gemm, own_norm = norm_ns(tokens) + gemms[1], norm_ns(tokens / _GPUS)
    return {
        "CAIS": as_sums_arrive_ns(rs, ag),
        "FuseLib-NVLS": last_norm_and_gemm + fused(ar, transfer_ns(machine, "all_reduce", _GPUS, size),
                                                   2 * switch.barrier_ns, 0)[0],
        "CoCoNet-NVLS": last_norm_and_gemm + in_pieces_ns(ar, switch_sum_job),
        "TP-NVLS": last_norm_and_gemm + gemms[0] + switch_ns("all_reduce"),
        "T3-NVLS": own_norm + track_trigger_ns(rs) + track_trigger_ns(ag),
        "T3": own_norm + play(rs, "t3").ns + play(ag, "t3").ns,
        "SP-NVLS": own_norm + sum(gemms) + switch_ns("reduce_scatter") + switch_ns("all_gather"),
        "FuseLib": last_norm_and_gemm + fused(ar, stores_ns(2), machine.direct.phase_ns, 0)[0],
        "CoCoNet": last_norm_and_gemm + in_pieces_ns(
            ar, lambda part: collective_job(machine, "all_reduce", _GPUS, part, library="NCCL ring")),
    }


def communication(machine: Machine) -> float:
    """Return the time of all-reduces of a layer of CAIS's LLaMA-7B, by rings, in times of what it computes."""
    tokens, hidden, ffn = CAIS_MODELS["LLaMA-7B"]
    shapes = ((3 * hidden // _GPUS, hidden), (hidden, hidden // _GPUS), (ffn // _GPUS, hidden), (hidden, ffn // _GPUS))
    compute_ns = sum(gemm_job(machine, tokens, *shape).ns for shape in shapes)
    compute_ns += attention_job(machine, tokens // _CAIS_SEQUENCE, _CAIS_HEADS // _GPUS, _CAIS_SEQUENCE,
                                hidden // _CAIS_HEADS).ns
    compute_ns += 2 * stream_job(machine, 2 * 2.0 * tokens * hidden).ns
    return 2 * collective_job(machine, "all_reduce", _GPUS, 2.0 * tokens * hidden, library="NCCL ring").ns / compute_ns


def with_slower_links(machine: Machine, share: float, *, all_links: bool) -> Machine:
    """Return a machine whose links have a share of their rate, or only for what the switch neither adds nor copies."""
    wires, rings = machine.wires, machine.rings
    if all_links:
        return machine.changed(wires=dict(gb_per_s=share * wires.gb_per_s))
    protocols = {name: protocol.model_copy(update={"efficiency": share * protocol.efficiency})
                 for name in ("ll", "ll128", "simple") for protocol in (getattr(rings, name),)}
    return machine.changed(wires=dict(all_efficiency=share * wires.all_efficiency), rings=protocols)


def compare_baselines(machine: Machine) -> dict:
    """Play CAIS's baselines, all sub-layers of its models, and put them in order."""
    layer_times = [sub_layer(machine, tokens, hidden, *shape) for tokens, hidden, ffn in CAIS_MODELS.values()
                   for shape in sub_layers(hidden, ffn)]
    ours = {name: geomean([times[name] / times["CAIS"] for times in layer_times]) for name in layer_times[0]}
    baselines = [name for name in CAIS if name in ours]
    pairs = [(a, b) for index, a in enumerate(baselines) for b in baselines[index + 1:]]
    return {"link_gb_per_s": machine.wires.gb_per_s, "communication": communication(machine), "over": ours,
            "pairs_in_order": sum(ours[a] <= ours[b] for a, b in pairs), "pairs": len(pairs),
            "out_of_order": [f"{a} slower than {b}" for a, b in pairs if ours[a] > ours[b]],
            "t3_over_sp": ours["SP-NVLS"] / ours["T3"], "t3_over_tp": ours["TP-NVLS"] / ours["T3"]}


def with_paper_ratio(machine: Machine) -> Machine:
    """Return a machine with links on which communication is as long as CAIS says that it is."""
    for _ in range(8):  # each comes closer, as fixed times are a small part
        machine = with_slower_links(machine, communication(machine) / _CAIS_RATIO, all_links=True)
    return machine


def cais() -> dict:
    """Play CAIS and its baselines on links of an H100, and on links of which the paper's own numbers speak."""
    machine, theirs = load_machine("cais-8x4", COMMERCIAL), {name: means[2] for name, means in CAIS.items()}
    least, most = 0.1, 1.0  # shares of the rate for what moves without the switch's help
    for _ in range(12):
        share = (least + most) / 2
        slower_links = compare_baselines(with_paper_ratio(with_slower_links(machine, share, all_links=False)))
        is_faster = slower_links["over"]["T3"] / slower_links["over"]["T3-NVLS"] < theirs["T3"] / theirs["T3-NVLS"]
        least, most = (least, share) if is_faster else (share, most)
    return {"machine": machine.name, "theirs": theirs, "communication": _CAIS_RATIO,
            "t3_over_sp": theirs["SP-NVLS"] / theirs["T3"], "t3_over_tp": theirs["TP-NVLS"] / theirs["T3"],
            "here": compare_baselines(machine),
            "at_ratio": compare_baselines(with_paper_ratio(machine)), "without_switch": {"share": share} | slower_links,
            "implied": implied_times(machine, theirs)}


def implied_times(machine: Machine, theirs: dict[str, float]) -> dict[str, float]:
    """Say what the paper's means of TP-NVLS and SP-NVLS alone imply, in times of CAIS.

    An all-reduce by the switch sends and gets the tensor and an eighth of it at once, a reduce-scatter and an
    all-gather each the whole in turn. So the difference between the two is 7/8 of the tensor's time on a link. The
    norms, of which TP-NVLS has more, would make that time longer and the GEMMs' shorter.
    """
    tensor = (theirs["SP-NVLS"] - theirs["TP-NVLS"]) / (2 - 9 / 8)
    gemms = theirs["SP-NVLS"] - 2 * tensor
    rates = []
    for tokens, hidden, ffn in CAIS_MODELS.values():
        ns = transfer_ns(machine, "reduce_scatter", _GPUS, 2.0 * tokens * hidden) * gemms / tensor
        rates += [2e-3 * tokens * hidden * (depth + columns) / _GPUS / ns for depth, columns in sub_layers(hidden, ffn)]
    return {"tensor": tensor, "gemms": gemms, "communication": 2 * tensor / gemms, "gemm_tflops": geomean(rates),
            "peak_tflops": machine.peak.bf16}


def _evaluate(setup: Scope, results: Results) -> Findings:
    comparison = cais()
    columns = {"here": "H100's links", "at_ratio": "links at the paper's ratio",
               "without_switch": "also slower without the switch"}
    theirs, here, share = comparison["theirs"], comparison["here"], comparison["without_switch"]["share"]
    ours = Quantities()
    for name, value in here["over"].items():
        if name != "CAIS":
            ours.add(f"over {name}", value, "x", f"CAIS over {name}, geomean", theirs[name], "V-A")
    for name, title in (("t3_over_sp", "T3 over SP-NVLS"), ("t3_over_tp", "T3 over TP-NVLS")):
        ours.add(name, here[name], "x", title, comparison[name], "V-A")

    def row(title: str, paper: str, form: str, *path: str) -> tuple[str, ...]:
        cells = []
        for name in columns:
            value = comparison[name]
            for key in path:
                value = value[key]
            cells.append(form.format(value))
        return title, paper, *cells
    paper_times = comparison["implied"]
    return Findings(
        text=f"On links of an H100, where communication takes {here['communication']:.1f} times as long as "
             f"computation, {here['pairs_in_order']} of {here['pairs']} pairs of baselines are in the paper's order. "
             f"At the paper's ratio of {_CAIS_RATIO} it is {comparison['at_ratio']['pairs_in_order']} pairs. If "
             f"transfers that the switch does not help also run at {share:.2f} of their rate, as the paper's T3 and "
             f"T3-NVLS imply, it is {comparison['without_switch']['pairs_in_order']}. The paper's TP-NVLS and SP-NVLS "
             f"imply GEMMs of {paper_times['gemm_tflops']:.0f} TFLOP/s on links of an H100; half of an H100 has a peak "
             f"of {paper_times['peak_tflops']:.0f}.",
        cases=[{"figure": "cais", **comparison}], ours=ours,
        tables=[Table("CAIS over its baselines, geometric means of four sub-layers of three models",
                      ("baseline", "paper", *columns.values()),
                      [row(name, f"{mean:.2f}", "{:.2f}", "over", name) if name in here["over"] else
                       (name, f"{mean:.2f}", *("–" for _ in columns)) for name, mean in theirs.items()]),
                Table("Differences", ("quantity", "paper", *columns.values()), [
                    row("pairs in the paper's order", f"{here['pairs']}", "{}", "pairs_in_order"),
                    row("T3 over SP-NVLS", f"{comparison['t3_over_sp']:.2f}", "{:.2f}", "t3_over_sp"),
                    row("T3 over TP-NVLS", f"{comparison['t3_over_tp']:.2f}", "{:.2f}", "t3_over_tp"),
                    row("a link, GB/s each way", "450", "{:.0f}", "link_gb_per_s"),
                    row("communication over computation, LLaMA-7B, rings", f"{_CAIS_RATIO}", "{:.1f}",
                        "communication")]),
                Table("Pairs out of order", ("links", "ours, unlike the paper"),
                      [(title, "; ".join(comparison[name]["out_of_order"])) for name, title in columns.items()])],
        plots={"cais": lambda: _draw(comparison)})


def _draw(comparison: dict):
    figure, axes = plots.figure(3.0)
    names = list(comparison["here"]["over"])[1:]
    for key, colour in (("theirs", plots.BLUE), ("here", plots.ORANGE), ("without_switch", plots.LIGHT)):
        means = comparison[key]["over"] if key != "theirs" else comparison[key]
        axes.plot(names, [means[name] for name in names], "o", color=colour, label={
            "theirs": "paper", "here": "ours, links of an H100",
            "without_switch": "ours, links slowed to the paper's ratios"}[key])
    axes.set_xlabel("baseline")
    axes.set_ylabel("speedup of CAIS, geomean")
    axes.legend()
    return figure


NINE = Figure("cais", "CAIS's nine comparisons of switches that add", lambda setup: [], _evaluate, short="CAIS",
              paper="beyond")
