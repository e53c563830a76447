"""The report's tables as CSV files, for spreadsheets and scripts."""

import csv
import io
import re

from t3sim.papers.campaign import Campaign, Chapter

FOLDER = "tables"  #: beside the page
SUMMARY = "summary.csv"
_SUMMARY_COLUMNS = ("figure", "quantity", "ours", "from", "to", "paper", "difference", "unit", "target", "met",
                    "section", "machine", "second_machine", "second_ours", "second_met")


def file_name(figure: str, title: str) -> str:
    """Name the file of a figure's table."""
    return f"{figure}-{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')[:80]}.csv"


def csv_tables(campaign: Campaign) -> dict[str, str]:
    """Write every table of the page, and the summary with all its digits: file name to text."""
    chapters = campaign.chapters
    files = {SUMMARY: _text(_SUMMARY_COLUMNS, [
        (chapter.figure.name, entry["title"], entry["ours"], *entry.get("range", ("", "")), entry["paper"],
         entry["difference"], entry["unit"], entry["wanted"], entry["met"], entry["section"],
         *_second(chapter, quantity))
        for chapter in chapters for quantity, entry in chapter.summary.items() if entry["section"]])}
    for chapter in chapters:
        for table in chapter.tables:
            files[file_name(chapter.figure.name, table.title)] = _text(table.columns, [
                [_plain(cell) for cell in row] for row in table.rows])
    return files


def _second(chapter: Chapter, quantity: str) -> tuple:
    """Return whose numbers a row has, and those of the second machine; empty where there is none."""
    if not chapter.figure.per_machine:
        return "", "", "", ""
    entry = chapter.second.summary.get(quantity) if chapter.second else None
    return (chapter.machine, *((chapter.second.machine, entry["ours"], entry["met"]) if entry else ("", "", "")))


def _plain(cell: str) -> str:
    """Return a number without the commas between its thousands."""
    return cell.replace(",", "") if re.fullmatch(r"[-+]?\d{1,3}(,\d{3})+(\.\d+)?", cell) else cell


def _text(columns, rows) -> str:
    text = io.StringIO(newline="")
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    return text.getvalue()
