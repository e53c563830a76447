"""The page of every measured curve and ours: `t3 validate --out docs/results`."""

import csv
import html
import io
import re
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from t3sim.analytic.validation.calibration import RowErrors, calibrated
from t3sim.analytic.validation.comparison import Compared, ComparedRatio, Validation
from t3sim.analytic.validation.fit import sources_of_constants
from t3sim.analytic.validation.machines import constants
from t3sim.analytic.validation.plots import FLOP, draw_curves, draw_units
from t3sim.analytic.validation.requests import (
    Collective,
    Crowded,
    ExpertsExchange,
    GemmRequest,
    MemoryAccess,
    Norm,
    OverlapRequest,
    Prompt,
)
from t3sim.base import plots
from t3sim.base.output import write_whole


def _mean(most: float):
    return lambda one: (one["without_source"]["mean_abs_error"] or 0.0) <= most


def _signs(least: float):
    return lambda one: one["without_source"]["signs_right"] >= least * one["without_source"]["signs"]


#: What is asked of the models where a row's source gave no constant, by quantity: mean error, points, share of signs.
TARGETS = {
    "collective from 1 MB": ("mean 12 %", _mean(0.12)),
    "collective below 1 MB": ("mean 25 %", _mean(0.25)),
    "GEMM": ("mean 12 %", _mean(0.12)),
    "fused operator": ("mean 15 %, signs 85 %", lambda one: _mean(0.15)(one) and _signs(0.85)(one)),
    "dispatch and combine": ("mean 30 %", _mean(0.30)),
    "beside a collective": ("order right, signs 90 %", _signs(0.9)),
    **{f"beside {by}": ("within 10 points", lambda one: one["worst_points"] <= 10)
       for by in ("held units", "copying units", "copy engines")},
    "share of the all-reduce": ("within 3 points", lambda one: one["worst_points"] <= 3),
    "prompt": ("signs 90 %", _signs(0.9)),
}
#: Mean error on rows held out, of a machine that is calibrated to a source's other rows: half of the above.
_CALIBRATED_TARGETS = {"collective from 1 MB": 0.06, "collective below 1 MB": 0.125, "GEMM": 0.06,
                       "fused operator": 0.075, "dispatch and combine": 0.15}
_WORST_OF_A_CURVE = 0.25
_DRAWN = 3  #: rows of a curve that is drawn
_HELD = "beside held units"
_INTRODUCTION = """\
Written by `t3 validate --out docs/results`. Measured rows, with source and licence: `sim_models/analytic/measured`.
Each row is answered without its source: constants that came from rows of it (`[[measured.fitted]]` in a machine's file)
are fitted anew to rows of other sources, or have the value of a document or an older machine where these do not
determine them ([the constants](#constants-and-their-sources)). A source is a repository with all its threads. Rows
without which a constant would have no value are "kept": they count only under "all rows", where every constant is as
its file says. The first two tables are in `validation.csv`. Pictures show all rows, those that gave a constant as
filled circles.

Whole numbers of what held units cost are from the H100's rows; the H200's are predictions.

Two rows of `mi355x`, all-reduces of 768 KB and 1.5 MB, gave a constant after they had missed by 24 and 36 %.
"""

_CALIBRATED = """\
Mean error on each fifth of a source's rows, predicted by a machine that `t3 calibrate` fits to the other rows. The
sources are those with at least 9 rows of collectives, GEMMs, fused operators or experts on a machine.
"""

_CONSTANTS = """\
Each constant that rows gave, and its value without each of their sources: from other sources' rows, or else from a
document or the machine that the file extends. `validation-constants.csv` has how many rows gave it.
"""
_KEPT = """\
No row can be left out of these: the cost of units that others hold (`kernels.cluster`, `kernels.dealt_rounds` and the
first held units, from `beside_hopper.csv`). `mi300x`'s `kernels.launch_ns` was fitted to rows that its file does not
name.

These come from a single row, so only the rows that they predict can show them wrong:
"""

#: Known reasons of misses, by what the scenario or the curve says.
REASONS = (
    (r"Vidur.*(KB|1 MB|2 MB)|a100.*Vidur", "the source's medians jump between 16 and 64 µs from size to size"),
    (r"NCCL, as printed", "this node is slower from 8 to 128 MB than NCCL's table and vTrain's four GPUs say"),
    (r"issues SDMA", "a kernel that writes the engines' commands and polls multiplies slower; no row says why"),
    (r"802816", "the library takes a tile that wastes a quarter of 192 columns; ours takes the fastest"),
    (r"^128 x 1024 x", "ours takes the fastest split of K; hipBLASLt's heuristic need not, and no row says which"),
    (r"poison flags.*1 MB", "flags in the data are read again until they come; waiting costs bandwidth"),
    (r"stores?, to all seven", "how long stores take to come into flow on seven links is not modelled"),
    (r"Ring, [2-5] GPUs per thread, 128 B", "the launch's 20 µs are from messages of 1 and 2 MB: small ones take less"),
    (r"Ring, [6-8] GPUs per thread, 128 B", "this host's calls take 4.2 µs for each GPU, those of Azure's 5.4"),
    (r"NCCL, NVLS, 8 GPUs per thread, [1-8] KB",
     "the thread's calls take 26 µs up to 8 KB and 42 from 64 KB on; ours take the same at every size"),
    (r"Triton GEMM that waits|ag\+gemm$",
     "the kernel takes about two tiles' time more than its rounds of 128 x 256; why is not known"),
    (r"(FBGEMM|torch symmetric memory).*4 KB",
     "these kernels take 9 to 18 µs; SGLang's, whose rows gave the constant, take 7"),
    (r"DeepEP intranode, 24", "24 units move all tokens; no other row says how fast one is"),
    (r"NCCL 2.30", "the library changes its kernel at 64 KB, ours at 512"),
    (r"Mixtral.*(1024|2048) tokens.*(tokenweave|TokenWeave)",
     "1,024 and 2,048 tokens take it the same 69 ms: the host's launches bound it, of which no row gives the time"),
    (r" 128 x 8192 .*simple fusion", "0.3 µs of 30 between the measured times; ours differ by a barrier less a launch"),
    (r"simple fusion", "measured, the norm in the kernel takes 11 to 26 % less than alone; ours as much, a barrier"),
)


def curve_of(one: Compared) -> tuple[str, str, float] | None:
    """Return the curve that a row belongs to, what lies along it, and its place; None of what is no curve."""
    ask, machine = one.row.ask, one.machine
    if isinstance(ask, Collective):
        nodes = f" of {ask.nodes} nodes" if ask.nodes > 1 else ""
        words = ", ".join(word for word in (ask.library, ask.algorithm) if word)
        source = re.split(r"[@ ]", one.row.source)[0]
        name = f"{machine}: {ask.kind.replace('_', '-')} on {ask.gpus} GPUs{nodes}, {words} ({source})"
        return name, "bytes", ask.size_bytes
    if isinstance(ask, GemmRequest):
        return f"{machine}: GEMM, {ask.dtype}", FLOP, 2.0 * ask.m * ask.n * ask.k
    if isinstance(ask, Norm):
        return f"{machine}: all-reduce and RMSNorm, {ask.part}", "tokens", ask.tokens
    if isinstance(ask, Prompt):
        return f"{machine}: prompt of {ask.model}, {ask.way}", "tokens", ask.tokens
    if isinstance(ask, MemoryAccess):
        where = re.sub(r", buffer.*| [0-9]+ KB", "", ask.where)
        return f"{machine}: {ask.operation}, {where}", "bytes", ask.size_bytes
    if isinstance(ask, ExpertsExchange):
        return f"{machine}: {ask.operation}, {ask.library}, {ask.dtype}", "GPUs", ask.gpus
    if isinstance(ask, OverlapRequest):
        return f"{machine}: {ask.operator}", FLOP, 2.0 * ask.gemm.m * ask.gemm.n * ask.gemm.k
    return None


@dataclass(frozen=True)
class Curve:
    """Rows that differ in what lies along it alone; of GEMMs in their shapes."""

    along: str  #: what they differ in
    points: list[tuple[float, Compared]]  #: along it


def curves(rows: tuple[Compared, ...]) -> dict[str, Curve]:
    """Return the rows of every curve along it, by `machine: title`."""
    by_name: dict[str, Curve] = {}
    for row in rows:
        if (place := curve_of(row)) is not None:
            name, along, x = place
            by_name.setdefault(name, Curve(along, [])).points.append((x, row))
    return {name: Curve(curve.along, sorted(curve.points, key=lambda point: point[0]))
            for name, curve in sorted(by_name.items())}


def write_page(folder: Path, validation: Validation) -> None:
    """Write `validation.md`, tables of it as CSV files, and an SVG of each machine that has curves."""
    by_machine: dict[str, dict[str, Curve]] = defaultdict(dict)
    for name, curve in curves(validation.rows).items():
        machine, _, title = name.partition(": ")
        by_machine[machine][title] = curve
    folder.mkdir(parents=True, exist_ok=True)
    for stale in folder.glob("validation-*.svg"):
        stale.unlink()
    for machine, machine_curves in by_machine.items():
        if drawable := {title: (curve.along, curve.points) for title, curve in machine_curves.items()
                        if len(curve.points) >= _DRAWN}:
            svg, _ = plots.render(machine, lambda drawable=drawable: draw_curves(drawable))
            write_whole(folder / f"validation-{machine}.svg", svg)
    calibrations = calibrated((one.row, one.machine) for one in validation.rows)
    write_whole(folder / "validation.csv", _csv(validation, calibrations))
    if unit_ratios := [one for one in validation.ratios if isinstance(one.row.first, Crowded)]:
        write_whole(folder / "validation-units.csv", _units_csv(unit_ratios))
        if held_ratios := [one for one in unit_ratios if one.row.quantity == _HELD]:
            svg, _ = plots.render("units", lambda: draw_units(held_ratios))
            write_whole(folder / "validation-units.svg", svg)
    if constants := _constants(validation):
        write_whole(folder / "validation-constants.csv", "machines,constant,rows\n" + "".join(
            f'"{names}","{key}",{count}\n' for (names, key), count in constants.items()))
    write_whole(folder / "validation.md", _text(validation, by_machine, calibrations))


def _constants(validation: Validation) -> dict[tuple[str, str], int]:
    return constants((one.row, one.machine) for one in validation.rows)


def _csv(validation: Validation, calibrations: dict[str, RowErrors]) -> str:
    """Write the tables by quantity and by machine for other pages to take numbers from: errors in percent."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("of", "rows", "mean error", "worst", "kept rows", "all rows mean error", "signs right", "signs",
                     "mean points", "worst points", "within 10 points", "points", "calibrated rows",
                     "calibrated mean error"))
    overall = {"all": validation.summary(validation.rows, validation.ratios)}
    for name, summary in (overall | validation.grouped("quantity") | validation.grouped("machine")).items():
        unseen, own = summary["without_source"], calibrations.get(name)
        errors = [None if value is None else 100 * value for value in
                  (unseen["mean_abs_error"], unseen["worst"], summary["mean_abs_error"])]
        writer.writerow((name, unseen["rows"], *errors[:2], unseen["kept"], errors[2], unseen["signs_right"],
                         unseen["signs"], *(summary.get(key) for key in ("mean_abs_points", "worst_points",
                                                                         "within_10_points", "percentages")),
                         *((None, None) if own is None else (own.rows, 100 * (own.held_out or 0.0)))))
    return text.getvalue()


def _cell(text: str) -> str:
    """Return text of a row as a cell of Markdown, which shows it as it is."""
    return html.escape(text, quote=False).replace("|", "\\|")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _figures(name: str, summary: dict[str, Any]) -> str:
    unseen = summary["without_source"]
    signs = f"{unseen['signs_right']} of {unseen['signs']}" if unseen["signs"] else "–"
    points = (f"{summary['mean_abs_points']:.1f}, {summary['worst_points']:.1f}, "
              f"{summary['within_10_points']}/{summary['percentages']}") if "worst_points" in summary else "–"
    return (f"| {name} | {unseen['rows']} | {_percent(unseen['mean_abs_error'])} | {_percent(unseen['worst'])} | "
            f"{unseen['kept']} | {_percent(summary['mean_abs_error'])} | {signs} | {points} |")


def _summary(name: str, summary: dict[str, Any]) -> str:
    """Return the figures of a quantity, its target, and whether that is reached."""
    target, reached = TARGETS.get(name, ("", None))
    unseen = summary["without_source"]
    verdict = "" if reached is None or not (unseen["rows"] or summary.get("percentages")) else (
        "reached" if reached(summary) else "missed")
    return f"{_figures(name, summary)} {target} | {verdict} |"


def reason_of(one: Compared | ComparedRatio) -> str:
    """Return the known reason of a miss, or nothing."""
    text = f"{one.machine} {one.row.scenario}"
    return next((reason for words, reason in REASONS if re.search(words, one.row.scenario) or re.search(words, text)),
                "")


def _crowded(ratios: tuple[ComparedRatio, ...]) -> list[str]:
    """Return a table of what kernels lose in the mean while others hold units, or copy with them."""
    by_group: dict[tuple[str, str], dict[int, list[ComparedRatio]]] = defaultdict(lambda: defaultdict(list))
    for one in ratios:
        if isinstance(one.row.first, Crowded) and one.row.first.units:
            by_group[one.machine, one.row.quantity][one.row.first.units].append(one)
    if not by_group:
        return []
    picture = ["![what each kernel loses by units held](validation-units.svg)\n"] if any(
        quantity == _HELD for _, quantity in by_group) else []
    units = sorted({count for by_units in by_group.values() for count in by_units})
    return ["## What kernels lose beside units of others\n",
            "Percent of their time alone, measured / ours, in the mean over the kernels of `validation-units.csv`.\n",
            f"| machine | units | {' | '.join(map(str, units))} |\n|---|---|{'--:|' * len(units)}\n" + "\n".join(
                f"| {machine} | {quantity} | {' | '.join(_means(by_units.get(count, [])) for count in units)} |"
                for (machine, quantity), by_units in by_group.items()) + "\n", *picture]


def _means(ratios: list[ComparedRatio]) -> str:
    if not ratios:
        return ""
    return f"{fmean(one.row.measured for one in ratios):.0f} / {fmean(one.ours for one in ratios):.0f}"


def _units_csv(unit_ratios: list[ComparedRatio]) -> str:
    """Write what each kernel lost, and loses here, in percent of its time alone."""
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(("machine", "kernel", "beside", "units", "memory_gb_per_s", "measured_percent", "ours_percent"))
    for ratio in unit_ratios:
        ask = ratio.row.first
        writer.writerow((ratio.machine, ask.compute, ratio.row.quantity.removeprefix("beside "), ask.units,
                         f"{ask.gb_per_s:.0f}", f"{ratio.row.measured:.1f}", f"{ratio.ours:.1f}"))
    return text.getvalue()


def _calibrated(calibrations: dict[str, RowErrors]) -> list[str]:
    if not calibrations:
        return []
    lines = []
    for name, one in calibrations.items():
        most = _CALIBRATED_TARGETS.get(name)
        verdict = " | " if most is None else (
            f"mean {100 * most:.3g} % | {'reached' if (one.held_out or 0.0) <= most else 'missed'}")
        lines.append(f"| {name} | {one.rows} | {_percent(one.before)} | {_percent(one.held_out)} | "
                     f"{_percent(one.worst)} | {verdict} |")
    return ["## Machines calibrated to a source\n", _CALIBRATED,
            "| quantity | rows | the package's machine | calibrated | worst | target | |\n"
            "|---|--:|--:|--:|--:|---|---|\n" + "\n".join(lines) + "\n"]


def _text(validation: Validation, by_machine: dict[str, dict[str, Curve]], calibrations: dict[str, RowErrors]) -> str:
    head = ("| {} | rows | mean error | worst | kept | mean error, all rows | signs right "
            "| points: mean, worst, ≤10 |{}\n|---|--:|--:|--:|--:|--:|--:|--:|{}\n")
    lines = ["# Measurements and models\n",
             _INTRODUCTION,
             "## By quantity\n", head.format("quantity", " target | |", "---|---|") + "\n".join(
                 _summary(name, one) for name, one in validation.grouped("quantity").items()) + "\n",
             "## By machine\n", head.format("machine", "", "") + "\n".join(
                 _figures(name, one) for name, one in validation.grouped("machine").items()) + "\n"]
    lines += _calibrated(calibrations)
    misses = []
    for machine, machine_curves in by_machine.items():
        for title, curve in machine_curves.items():
            worst_row = max((row for _, row in curve.points), key=lambda row: abs(row.error))
            if abs(worst_row.error) > _WORST_OF_A_CURVE:
                scenario = worst_row.row.scenario
                position = scenario if isinstance(worst_row.row.ask, GemmRequest) else scenario.rpartition(", ")[2]
                misses.append(f"| {_cell(f'{machine}: {title}')} | {len(curve.points)} | {_cell(position)} | "
                              f"{worst_row.error:+.0%} | {reason_of(worst_row)} |")
    lines += ["## Curves with a row that misses by more than 25 %\n",
              "| curve | rows | worst at | error | reason |\n|---|--:|---|--:|---|\n" + "\n".join(misses) + "\n"]
    wrong_signs = [one for one in validation.ratios if one.right_without_source is False]
    if wrong_signs:
        lines += ["## Signs that are wrong\n",
                  "| row | measured ratio | ours | reason |\n|---|--:|--:|---|\n" + "\n".join(
            f"| {_cell(f'{one.machine}: {one.row.scenario}')} | {one.row.measured:.2f} | {one.without_source:.2f} | "
            f"{reason_of(one)} |"
            for one in wrong_signs) + "\n"]
    lines += _crowded(validation.ratios)
    if constants := _constants(validation):
        single = [f"- {names}: {key}" for (names, key), count in constants.items() if count == 1]
        lines += ["## Constants and their sources\n",
                  _CONSTANTS,
                  "| machine | constant | value | without | value then |\n|---|---|--:|---|--:|\n" + "\n".join(
                      f"| {machine} | {key} | {value:,.5g} | {source} | "
                      f"{'cannot be left out' if other is None else f'{other:,.5g}'} |"
                      for machine, key, value, source, other in sources_of_constants()) + "\n",
                  _KEPT,
                  "\n".join(single or ["None does."]) + "\n"]
    lines += ["## Rows that no model expresses\n", "| rows | reason |\n|--:|---|\n" + "\n".join(
        f"| {len(scenarios)} | {_cell(reason)} |"
        for reason, scenarios in sorted(validation.left_out.items())) + "\n"]
    for machine, machine_curves in by_machine.items():
        lines += [f"## {machine}\n"]
        if any(len(curve.points) >= _DRAWN for curve in machine_curves.values()):
            lines += [f"![measured and ours on {machine}](validation-{machine}.svg)\n"]
        if few := [row for curve in machine_curves.values() if len(curve.points) < _DRAWN for _, row in curve.points]:
            lines += ["| row of no curve | measured (µs) | ours | error | |\n|---|--:|--:|--:|---|\n" + "\n".join(
                f"| {_cell(one.row.quantity)}: {_cell(one.row.scenario)} | {one.row.ns / 1e3:,.1f} | "
                f"{one.ours_ns / 1e3:,.1f} | {one.error:+.1%} | {'fitted' if one.fitted else ''} |"
                for one in few) + "\n"]
    return "\n".join(lines)
