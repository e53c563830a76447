"""The page of every measured curve and ours: `t3 validate --out docs/results`."""

import html
import re
from collections import defaultdict
from pathlib import Path
from textwrap import fill
from typing import Any

from matplotlib import rcParams

from ..study import plots
from ..support.output import write_whole
from .comparison import Compared, ComparedRatio, Validation
from .fitted import constants
from .requests import Access, Collective, Exchange, Gemm, Norm, Operator, Prompt

#: What the order asks of the models, by quantity: mean, worst, points, share of signs.
TARGETS = {
    "collective from 1 MB": ("mean 10 %", lambda one: one["mean_abs_error"] <= 0.10),
    "collective below 1 MB": ("mean 20 %", lambda one: one["mean_abs_error"] <= 0.20),
    "GEMM": ("mean 10 %, worst 30 %", lambda one: one["mean_abs_error"] <= 0.10 and one["worst"] <= 0.30),
    "fused operator": ("mean 20 %, signs 90 %", lambda one: one["mean_abs_error"] <= 0.20
                       and one["signs_right"] >= 0.9 * one["signs"]),
    "beside a collective": ("order right, signs 90 %", lambda one: one["signs_right"] >= 0.9 * one["signs"]),
    "share of the all-reduce": ("within 3 points", lambda one: one["worst_points"] <= 3),
    "prompt": ("signs 90 %", lambda one: one["signs_right"] >= 0.9 * one["signs"]),
}
_WORST_OF_A_CURVE = 0.25
_INTRODUCTION = """\
Written by `t3 validate --out docs/results`. What others measured is in `sim_models/measured`, with source and licence.
Rows from which a constant of a machine came (`[[measured.fitted]]` in its file) are counted apart: all others are
predictions.

Two rows of `mi355x`, all-reduces of 768 KB and 1.5 MB, gave a constant after they had missed by 24 and 36 %.
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
    (r"NCCL, NVLS, [1-8] KB", "this host's calls take 26 µs, those of Vidur's 38: one number stands for both"),
    (r"NCCL 2.30", "the library changes its kernel at 64 KB, ours at 512"),
    (r"Mixtral.*(1024|2048) tokens.*(tokenweave|TokenWeave)",
     "1,024 and 2,048 tokens take it the same 69 ms: the host's launches bound it, of which no row gives the time"),
    (r" 128 x 8192 .*simple fusion", "0.3 µs of 30 between the measured times; ours differ by a barrier less a launch"),
    (r"simple fusion", "measured, the norm in the kernel takes 11 to 26 % less than alone; ours as much, a barrier"),
)


def curve_of(one: Compared) -> tuple[str, float] | None:
    """Return the curve that a row belongs to, and its place along it; None of what is no curve."""
    ask, machine = one.row.ask, one.machine
    if isinstance(ask, Collective):
        nodes = f" of {ask.nodes} nodes" if ask.nodes > 1 else ""
        words = ", ".join(word for word in (ask.library, ask.algorithm) if word)
        source = re.split(r"[@ ]", one.row.source)[0]
        return f"{machine}: {ask.kind.replace('_', '-')} on {ask.gpus} GPUs{nodes}, {words} ({source})", ask.size_bytes
    if isinstance(ask, Gemm):
        return f"{machine}: GEMM, {ask.dtype}", 2.0 * ask.m * ask.n * ask.k
    if isinstance(ask, Norm):
        return f"{machine}: all-reduce and RMSNorm, {ask.part}", ask.tokens
    if isinstance(ask, Prompt):
        return f"{machine}: prompt of {ask.model}, {ask.way}", ask.tokens
    if isinstance(ask, Access):
        return f"{machine}: {ask.operation}, {re.sub(r', buffer.*| [0-9]+ KB', '', ask.where)}", ask.size_bytes
    if isinstance(ask, Exchange):
        return f"{machine}: {ask.operation}, {ask.library}, {ask.dtype}", ask.gpus
    if isinstance(ask, Operator):
        return f"{machine}: {ask.operator}", 2.0 * ask.gemm.m * ask.gemm.n * ask.gemm.k
    return None


def curves(rows: tuple[Compared, ...]) -> dict[str, list[tuple[float, Compared]]]:
    """Return the rows of every curve along it."""
    found: dict[str, list[tuple[float, Compared]]] = defaultdict(list)
    for one in rows:
        if (curve := curve_of(one)) is not None:
            found[curve[0]].append((curve[1], one))
    return {name: sorted(some, key=lambda point: point[0]) for name, some in sorted(found.items())}


def write_page(folder: Path, found: Validation) -> None:
    """Write `validation.md` and one SVG per machine, with a plot of each of its curves."""
    by_machine: dict[str, dict[str, list[tuple[float, Compared]]]] = defaultdict(dict)
    for name, points in curves(found.rows).items():
        machine, _, title = name.partition(": ")
        by_machine[machine][title] = points
    folder.mkdir(parents=True, exist_ok=True)
    for machine, some in by_machine.items():
        svg, _ = plots.render(f"validation-{machine}", lambda some=some: _draw(some))
        write_whole(folder / f"validation-{machine}.svg", svg)
    write_whole(folder / "validation.md", _text(found, by_machine))


def _draw(some: dict[str, list[tuple[float, Compared]]]):
    rcParams["svg.fonttype"] = "none"  # of this drawing alone: `render` restores it
    columns = min(3, len(some))
    rows = -(-len(some) // columns)
    drawn, axes = plots.figure(2.3 * rows, rows, columns, squeeze=False)
    for place, (title, points) in enumerate(some.items()):
        one = axes[place // columns][place % columns]
        at = [x for x, _ in points]
        one.plot(at, [row.row.ns / 1e3 for _, row in points], "o", color=plots.BLACK, markersize=3, label="measured")
        one.plot(at, [row.ours_ns / 1e3 for _, row in points], "-" if len(set(at)) > 2 else "x", color=plots.BLUE,
                 linewidth=1.2, label="ours")
        one.set_xscale("log")
        one.set_yscale("log")
        one.set_title(plots.plain(fill(title, 52)), fontsize=6.5)
        one.tick_params(which="both", labelsize=6)
        if place == 0:
            one.legend(fontsize=6)
            one.set_ylabel("µs", fontsize=7)
    for place in range(len(some), rows * columns):
        axes[place // columns][place % columns].set_axis_off()
    return drawn


def _cell(text: str) -> str:
    """Return text of a row as a cell of Markdown, which shows it as it is."""
    return html.escape(text, quote=False).replace("|", "\\|")


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{100 * value:.1f} %"


def _summary(name: str, one: dict[str, Any]) -> str:
    signs = f"{one['signs_right']} of {one['signs']}" if one["signs"] else "–"
    points = f"{one['mean_abs_points']:.1f}, {one['worst_points']:.1f}" if "worst_points" in one else "–"
    target, reached = TARGETS.get(name, ("", None))
    verdict = "" if reached is None or not (one["rows"] or one.get("percentages")) else (
        "reached" if reached(one) else "missed")
    predicted, fitted = one["predicted"], one["fitted"]
    if verdict and fitted["rows"] and not predicted["rows"]:
        verdict += ", but on fitted rows alone"
    return (f"| {name} | {predicted['rows']} | {_percent(predicted['mean_abs_error'])} | "
            f"{_percent(predicted['worst'])} | {fitted['rows']} | {_percent(fitted['mean_abs_error'])} | {signs} | "
            f"{points} | {target} | {verdict} |")


def reason_of(one: Compared | ComparedRatio) -> str:
    """Return the known reason of a miss, or nothing."""
    text = f"{one.machine} {one.row.scenario}"
    return next((reason for words, reason in REASONS if re.search(words, one.row.scenario) or re.search(words, text)),
                "")


def _text(found: Validation, by_machine: dict[str, dict[str, list[tuple[float, Compared]]]]) -> str:
    head = ("| {} | predicted rows | mean error | worst | fitted rows | mean error | signs right | points: mean, worst "
            "| target | |\n|---|--:|--:|--:|--:|--:|--:|--:|---|---|\n")
    lines = ["# Measurements by others, and ours\n",
             _INTRODUCTION,
             "## By quantity\n", head.format("quantity") + "\n".join(
                 _summary(name, one) for name, one in found.grouped("quantity").items()) + "\n",
             "## By machine\n", head.format("machine") + "\n".join(
                 _summary(name, one) for name, one in found.grouped("machine").items()) + "\n"]
    misses = []
    for machine, some in by_machine.items():
        for title, points in some.items():
            worst = max((row for _, row in points), key=lambda row: abs(row.error))
            if abs(worst.error) > _WORST_OF_A_CURVE:
                at = worst.row.scenario if isinstance(worst.row.ask, Gemm) else worst.row.scenario.rpartition(", ")[2]
                misses.append(f"| {_cell(f'{machine}: {title}')} | {len(points)} | {_cell(at)} | "
                              f"{worst.error:+.0%} | {reason_of(worst)} |")
    lines += ["## Curves with a row that misses by more than 25 %\n",
              "| curve | rows | worst at | error | reason |\n|---|--:|---|--:|---|\n" + "\n".join(misses) + "\n"]
    wrong = [one for one in found.ratios if one.right is False]
    if wrong:
        lines += ["## Signs that are wrong\n",
                  "| row | measured ratio | ours | reason |\n|---|--:|--:|---|\n" + "\n".join(
            f"| {_cell(f'{one.machine}: {one.row.scenario}')} | {one.row.measured:.2f} | {one.ours:.2f} | "
            f"{reason_of(one)} |"
            for one in wrong) + "\n"]
    if gave := constants((one.row, one.machine) for one in found.rows):
        lines += ["## Constants and how many rows they come from\n",
                  "Those of one row can only be seen to be wrong by the rows that they predict.\n",
                  "| machines | constant | rows |\n|---|---|--:|\n" + "\n".join(
                      f"| {names} | {key} | {'**one**' if count == 1 else count} |"
                      for (names, key), count in gave.items()) + "\n"]
    lines += ["## Rows that no model expresses\n", "| rows | reason |\n|--:|---|\n" + "\n".join(
        f"| {len(some)} | {_cell(reason)} |" for reason, some in sorted(found.left_out.items())) + "\n"]
    for machine in by_machine:
        lines += [f"## {machine}\n", f"![measured and ours on {machine}](validation-{machine}.svg)\n"]
    return "\n".join(lines)
