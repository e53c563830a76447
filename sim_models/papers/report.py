"""The campaign as one page: self-contained HTML, made to be read and printed."""

import re
from typing import Any

import jinja2

from t3sim.papers.campaign import Campaign, Chapter
from t3sim.papers.csv_tables import FOLDER, SUMMARY, file_name
from t3sim.papers.figure import FIRST_ANSWERS, PAPER_NAMES, PAPERS
from t3sim.papers.paper import CENTRAL_CLAIM


def render_report(campaign: Campaign) -> str:
    environment = jinja2.Environment(loader=jinja2.PackageLoader("t3sim.papers", "."), autoescape=True,
                                     undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters.update(number=number, difference=difference, verdict=verdict, minus=minus,
                               csv_file=lambda table, figure: f"{FOLDER}/{file_name(figure, table.title)}")
    papers = {name: title for name, title in PAPERS.items()
              if any(chapter.figure.paper == name for chapter in campaign.chapters)}
    judged_entries = _judged_entries(campaign.chapters)
    second_chapters = [chapter.second for chapter in campaign.chapters if chapter.second]
    second_entries = _judged_entries(second_chapters)
    answers = _answers(campaign.chapters)
    return environment.get_template("report.html.j2").render(
        heading=_heading(list(papers)), papers={name: papers[name] for name in papers if name != "beyond"},
        ranged=any("range" in entry for chapter in campaign.chapters for entry in chapter.summary.values()),
        summary_csv=f"{FOLDER}/{SUMMARY}", campaign=campaign, chapters=campaign.chapters, host=campaign.host,
        machine=campaign.setup.machine,
        provenance=campaign.provenance, judged=len(judged_entries), met=sum(entry["met"] for entry in judged_entries),
        second=campaign.second_setup.machine if campaign.second_setup and second_chapters else None,
        judged_second=len(second_entries), met_second=sum(entry["met"] for entry in second_entries),
        claim_second=_claim(second_chapters),
        parameters_second=_parameter_differences(campaign) if campaign.second_setup else [],
        missed=sorted((entry for entry in judged_entries if not entry["met"]), key=lambda entry: -entry["missed_by"]),
        claim=_claim(campaign.chapters), answers=answers, shown_first={plot for *_, plot in answers.values()},
        parameters=_parameters(campaign.provenance["machine"]))


def _judged_entries(chapters: list[Chapter]) -> list[dict[str, Any]]:
    return [entry for chapter in chapters for entry in chapter.summary.values() if entry["met"] is not None]


def _answers(chapters: list[Chapter]) -> dict[str, tuple[str, Chapter, str]]:
    """Return the question of each paper whose answer is there, with its chapter and plot, by the figure's name."""
    chapters_by_name = {chapter.figure.name: chapter for chapter in chapters if chapter.plots}
    return {name: (question, chapters_by_name[name], next(iter(chapters_by_name[name].plots)))
            for question, name in FIRST_ANSWERS.values() if name in chapters_by_name}


def _claim(chapters: list[Chapter]) -> dict[str, Any] | None:
    return next((chapter.summary[CENTRAL_CLAIM] for chapter in chapters if CENTRAL_CLAIM in chapter.summary), None)


def _parameter_differences(campaign: Campaign) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return the parameters in which the second machine differs from the first."""
    first = dict(_parameters(campaign.provenance["machine"]))
    section_pairs = ((name, keys, dict(first[name]))
                     for name, keys in _parameters(campaign.results["beside"]["machine"]))
    sections = [(name, [(key, value) for key, value in keys if value != before[key]])
                for name, keys, before in section_pairs]
    return [(name, keys) for name, keys in sections if keys]


def _heading(papers: list[str]) -> str:
    if papers == ["beyond"]:
        return PAPER_NAMES["beyond"]
    return (", ".join(PAPER_NAMES[name] for name in papers if name != "beyond") + ", reproduced"
            + (" on RTL" if papers == ["t3"] else ""))


def number(value: float | None, unit: str, sign: str = "") -> str:
    """Write a quantity with its unit, to the digits that mean something."""
    if value is None:
        return "–"
    text = {"x": "×", "": ""}.get(unit, f" {unit}")
    if unit == "MB":  # powers of two of either sign
        return minus(f"{value:{sign},.4f}".rstrip("0").rstrip(".") + text)
    digits = 2 if unit == "x" else 1
    return minus(f"{round(value, digits) + 0.0:{sign}.{digits}f}{text}")  # + 0.0: no negative zero


def minus(text: str) -> str:
    """Put a minus where a hyphen stands before a number."""
    return re.sub(r"(?<!\w)-(?=\d)", "−", text)


def difference(entry: dict[str, Any]) -> str:
    """Write a difference from the paper; percentages differ by points."""
    unit = "points" if entry["unit"] == "%" else entry["unit"]
    return number(entry["difference"], unit, "+")


def verdict(entry: dict[str, Any]) -> str:
    if entry["met"] is None:
        return ""
    unit = "points" if entry["unit"] == "%" else entry["unit"]
    return "met" if entry["met"] else f"missed by {number(entry['missed_by'], unit)}"


def _parameters(machine: dict[str, Any]) -> list[tuple[str, list[tuple[str, Any]]]]:
    """Return the sections of the machine file and their keys."""
    top = [(key, value) for key, value in machine.items() if not isinstance(value, dict)]
    return [("", top), *((name, list(section.items())) for name, section in machine.items()
                         if isinstance(section, dict))]
