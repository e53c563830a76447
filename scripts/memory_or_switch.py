"""Memory or switch for sums: `python scripts/memory_or_switch.py` writes docs/results/memory-or-switch.json.

What GPUs and switches do is the library level's (`t3sim.libraries`), but for full tables: those are runs with the RTL.
"""

import argparse
import json
from collections.abc import Callable, Iterable
from dataclasses import replace
from math import ceil
from pathlib import Path

from t3sim.libraries.contention import Job, attention_job, beside, collective_job, gemm_job, stream_job
from t3sim.libraries.direct import direct_ns
from t3sim.libraries.gemm import best
from t3sim.libraries.in_switch import BLOCKS, in_switch_ns, transfer_ns
from t3sim.libraries.links import pair_gb_per_s
from t3sim.libraries.mechanisms import GATES, Setting, fused, play
from t3sim.machine import Machine, load_machine
from t3sim.machine.levels import COMMERCIAL
from t3sim.reproduce.paper import geomean
from t3sim.scenario.collective import CollectiveAlone
from t3sim.scenario.files import scenario_of
from t3sim.study.results import CollectiveRun
from t3sim.workloads import MODELS

ROOT = Path(__file__).resolve().parents[1]
RESULT = ROOT / "docs" / "results" / "memory-or-switch.json"
_AREA = ROOT / "docs" / "results" / "area-merge-table.json"

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
_TOKENS, _GPUS = 4096, 8
_TABLES = ((1, 64, 16), (1, 64, 8), (1, 1, 1), (4, 64, 16))  #: switches, sets and ways


def of_rows(kind: str, shape: tuple[int, int, int], gpus: int = _GPUS) -> Setting:
    return Setting({"rs": "gemm+rs", "ag": "ag+gemm", "ar": "gemm+ar"}[kind], gpus, shape)


def exposed(machine: Machine, setting: Setting) -> float:
    """Return the part of a GEMM that nothing hides: its first round of tiles, or one GPU's rows that come first."""
    rounds = max(1, ceil(best(machine, *setting.shape).tiles / machine.gpu.compute_units))
    return gemm_job(machine, *setting.shape).ns / (setting.gpus if setting.before else rounds)


def beside_transfer(machine: Machine, gemms: float, transfer: float, alone: float) -> float:
    """Return the time of GEMMs beside a transfer, which takes power from them, and begins or ends without them."""
    power = machine.sharing.power_share
    return max(min(gemms / (1 - power), gemms + transfer * power), transfer + alone)


def triggered(machine: Machine, setting: Setting) -> float:
    """Return the time of a GEMM whose tiles go to, or come from, a switch as Track & Trigger has it."""
    transfer = transfer_ns(machine, setting.kind, setting.gpus, setting.size) + machine.wires.latency_ns
    return beside_transfer(machine, gemm_job(machine, *setting.shape).ns, transfer, exposed(machine, setting))


def at_once(machine: Machine, first: Setting, second: Setting) -> float:
    """Return the time of two GEMMs of which the second takes each of the first's sums as it comes, as CAIS has it.

    What goes up to the switch and what comes down are on the links at the same time.
    """
    transfer = transfer_ns(machine, "all_reduce", first.gpus, first.size) + 2 * machine.wires.latency_ns
    return beside_transfer(machine, sum(gemm_job(machine, *one.shape).ns for one in (first, second)), transfer,
                           exposed(machine, first) + exposed(machine, second))


def in_pieces(machine: Machine, setting: Setting, collective: Callable[[float], Job]) -> float:
    """Return the time of a GEMM in the best number of pieces, the collective of each beside the next one's GEMM."""
    (m, n, k), found = setting.shape, []
    for pieces in (1, 2, 4, 8):
        piece, moved = (ceil(m / pieces), n, k), collective(setting.size / pieces)
        both = beside(machine, piece, setting.width, moved).ns
        found.append(gemm_job(machine, *piece).ns + (pieces - 1) * both + moved.ns)
    return min(found)


def sub_layers(hidden: int, ffn: int) -> tuple[tuple[int, int], ...]:
    """Return CAIS's L1 to L4: the whole depth of the GEMM before the norm, and all columns of the one after it."""
    return (hidden, ffn), (ffn, 3 * hidden), (ffn, hidden), (3 * hidden, ffn)


def sub_layer(machine: Machine, tokens: int, hidden: int, depth: int, columns: int) -> dict[str, float]:
    """Time a GEMM, the sum of its outputs, a norm and the next GEMM, by each of CAIS's baselines.

    With all-reduces every GPU norms all tokens, otherwise its own.
    """
    first, second = (tokens, hidden, depth // _GPUS), (tokens, columns // _GPUS, hidden)
    gemms = [gemm_job(machine, *shape).ns for shape in (first, second)]
    rs, ag, ar = of_rows("rs", first), of_rows("ag", second), of_rows("ar", first)
    size, switch = rs.size, machine.in_switch

    def switched(kind: str) -> float:
        return in_switch_ns(machine, kind, _GPUS, size)

    def norm(rows: float) -> float:
        return stream_job(machine, 2 * 2.0 * rows * hidden).ns  # all read and written

    def summed(part: float) -> Job:
        return Job(in_switch_ns(machine, "all_reduce", _GPUS, part, graph=True), 2 * part, part, BLOCKS)

    def stored(phases: int) -> float:
        return phases * size / _GPUS / (pair_gb_per_s(machine, _GPUS) * machine.wires.all_efficiency)
    last, own = norm(tokens) + gemms[1], norm(tokens / _GPUS)
    return {
        "CAIS": at_once(machine, rs, ag),
        "FuseLib-NVLS": last + fused(machine, ar, transfer_ns(machine, "all_reduce", _GPUS, size),
                                     2 * switch.barrier_ns, 0)[0],
        "CoCoNet-NVLS": last + in_pieces(machine, ar, summed),
        "TP-NVLS": last + gemms[0] + switched("all_reduce"),
        "T3-NVLS": own + triggered(machine, rs) + triggered(machine, ag),
        "T3": own + play(machine, rs, "t3").ns + play(machine, ag, "t3").ns,
        "SP-NVLS": own + sum(gemms) + switched("reduce_scatter") + switched("all_gather"),
        "FuseLib": last + fused(machine, ar, stored(2), machine.direct.phase_ns, 0)[0],
        "CoCoNet": last + in_pieces(machine, ar, lambda part: collective_job(machine, "all_reduce", _GPUS, part,
                                                                            library="ring")),
    }


def communication(machine: Machine) -> float:
    """Return the time of all-reduces of a layer of CAIS's LLaMA-7B, by rings, in times of what it computes."""
    tokens, hidden, ffn = CAIS_MODELS["LLaMA-7B"]
    shapes = ((3 * hidden // _GPUS, hidden), (hidden, hidden // _GPUS), (ffn // _GPUS, hidden), (hidden, ffn // _GPUS))
    computed = sum(gemm_job(machine, tokens, *shape).ns for shape in shapes)
    computed += attention_job(machine, tokens // _CAIS_SEQUENCE, _CAIS_HEADS // _GPUS, _CAIS_SEQUENCE,
                              hidden // _CAIS_HEADS).ns
    computed += 2 * stream_job(machine, 2 * 2.0 * tokens * hidden).ns
    return 2 * collective_job(machine, "all_reduce", _GPUS, 2.0 * tokens * hidden, library="ring").ns / computed


def slower(machine: Machine, share: float, *, all_links: bool) -> Machine:
    """Return a machine whose links have a share of their rate, or only for what the switch neither adds nor copies."""
    wires, rings = machine.wires, machine.rings
    if all_links:
        return machine.model_copy(update={"wires": wires.model_copy(update={"gb_per_s": share * wires.gb_per_s})})
    protocols = {name: one.model_copy(update={"efficiency": share * one.efficiency})
                 for name in ("ll", "ll128", "simple") for one in (getattr(rings, name),)}
    return machine.model_copy(update={
        "wires": wires.model_copy(update={"all_efficiency": share * wires.all_efficiency}),
        "rings": rings.model_copy(update=protocols)})


def compared(machine: Machine) -> dict:
    """Play CAIS's baselines, all sub-layers of its models, and put them in order."""
    found = [sub_layer(machine, tokens, hidden, *one) for tokens, hidden, ffn in CAIS_MODELS.values()
             for one in sub_layers(hidden, ffn)]
    ours = {name: geomean([one[name] / one["CAIS"] for one in found]) for name in found[0]}
    known = [name for name in CAIS if name in ours]
    pairs = [(a, b) for place, a in enumerate(known) for b in known[place + 1:]]
    return {"link_gb_per_s": machine.wires.gb_per_s, "communication": communication(machine), "over": ours,
            "pairs_in_order": sum(ours[a] <= ours[b] for a, b in pairs), "pairs": len(pairs),
            "out_of_order": [f"{a} over {b}" for a, b in pairs if ours[a] > ours[b]],
            "t3_over_sp": ours["SP-NVLS"] / ours["T3"], "t3_over_tp": ours["TP-NVLS"] / ours["T3"]}


def at_ratio(machine: Machine) -> Machine:
    """Return a machine with links on which communication is as long as CAIS says that it is."""
    for _ in range(8):  # each comes closer, as fixed times are a small part
        machine = slower(machine, communication(machine) / _CAIS_RATIO, all_links=True)
    return machine


def cais() -> dict:
    """Play CAIS and its baselines on links of an H100, and on links of which the paper's own numbers speak."""
    machine, theirs = load_machine("cais-8x4", COMMERCIAL), {name: means[2] for name, means in CAIS.items()}
    least, most = 0.1, 1.0  # shares of the rate for what moves without the switch's help
    for _ in range(12):
        share = (least + most) / 2
        without = compared(at_ratio(slower(machine, share, all_links=False)))
        faster = without["over"]["T3"] / without["over"]["T3-NVLS"] < theirs["T3"] / theirs["T3-NVLS"]
        least, most = (least, share) if faster else (share, most)
    return {"machine": machine.name, "theirs": theirs, "communication": _CAIS_RATIO,
            "t3_over_sp": theirs["SP-NVLS"] / theirs["T3"], "t3_over_tp": theirs["TP-NVLS"] / theirs["T3"],
            "here": compared(machine),
            "at_ratio": compared(at_ratio(machine)), "without_switch": {"share": share} | without,
            "implied": implied(machine, theirs)}


def implied(machine: Machine, theirs: dict[str, float]) -> dict[str, float]:
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


def layers(name: str, counts: Iterable[int]) -> list[dict]:
    """Time sub-layers whose sums all GPUs need: libraries in turn, memory (T3), the switch in one kernel, and both."""
    machine, rows = load_machine(name, COMMERCIAL), []
    for gpus in counts:
        for model in ("t-nlg", "gpt-3", "mt-nlg"):
            hidden = MODELS[model].hidden
            for layer, depth in (("op", hidden), ("fc2", 4 * hidden)):
                setting = Setting("gemm+ar", gpus, (_TOKENS, hidden, max(1, depth // gpus)))
                gemm, size = gemm_job(machine, *setting.shape).ns, setting.size
                rings = gemm + collective_job(machine, "all_reduce", gpus, size, "near-memory").ns
                times = {"gemm": gemm, "rings": rings, "memory": play(machine, setting, "t3").ns,
                         "switch": gemm + in_switch_ns(machine, "all_reduce", gpus, size),
                         "both": triggered(machine, setting)}
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


def by_rtl(collective: str, gpus: int, size: int, machine: dict) -> tuple[CollectiveAlone, CollectiveRun]:
    """Run a collective in the switch, every GPU's and the switch's RTL in the loop, and compare all of its numbers."""
    asked = CollectiveAlone(scenario_of({}, {
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
