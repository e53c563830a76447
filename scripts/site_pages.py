"""Pages of the site that the code writes: one per block, command and section of a machine, and the list of the reports.

A hook of mkdocs. A block's ports are those of its signature at the machine's own geometry; its waveform is a recording
of its testbench (`docs/waves/BLOCK.json`, made by `make waves`). The tables of the reports are in the tree; their
pages are there after `make reports`, or out of a release's artefact.
"""

import csv
import inspect
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import typer
import wavedrom
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from t3sim.base.extras import needs
from t3sim.commands.app import COMMANDS, command_of
from t3sim.machine import PRESETS, Machine, load_machine
from t3sim.machine.levels import LEVELS, Level
from t3sim.machine.section import Section, is_read, section_of
from t3sim.papers.figure import PAPERS
from t3sim.rtl import blocks
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.signature import signature_ports
from t3sim.testbenches import plan

ROOT = Path(__file__).resolve().parents[1]
WAVES = ROOT / "docs" / "waves"
REPORTS = ROOT / "docs" / "reports"
MACHINES = ROOT / "sim_models" / "machine" / "machines"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the pages where the navigation has an empty list for them."""
    lists = {"Commands": [f"commands/{name}.md" for name in commands()],
             "Machine file": [f"machine/{name}.md" for name in sections()],
             "Blocks": ["blocks/index.md", *(f"blocks/{name}.md" for name in sorted(blocks.BLOCKS))],
             "Reports": ["reports/index.md",
                         *({short: f"reports/{short}/report.html"} for short in PAPERS if written(short))]}
    _fill(config.nav, lists)
    return config


def _fill(nav: list, lists: dict[str, list]) -> None:
    """Put each list where the navigation, at any depth, has an empty one of its title."""
    for section in nav:
        for title, pages in section.items() if isinstance(section, dict) else ():
            if not pages and title in lists:
                section[title] = lists[title]
            elif isinstance(pages, list):
                _fill(pages, lists)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the commands, sections of a machine and blocks, and the list of the reports."""
    for name in sections():
        files.append(File.generated(config, f"machine/{name}.md", content=section_page(name)))
    for name in commands():
        files.append(File.generated(config, f"commands/{name}.md", content=command_page(name)))
    geometry = load_machine().geometry()
    names = sorted(blocks.BLOCKS)
    for name in names:
        files.append(File.generated(config, f"blocks/{name}.md", content=page(name, geometry)))
    index = "# Blocks\n\nEvery block by itself: its contract, its ports on the machine of table 1, a waveform.\n\n"
    index += "".join(f"- [{name}]({name}.md): {first_line(name)}\n" for name in names)
    files.append(File.generated(config, "blocks/index.md", content=index))
    files.append(File.generated(config, "reports/index.md", content=list_of_reports()))
    return files


def commands() -> dict[str, typer.core.TyperCommand]:
    """Return the subcommands of `t3` by name, in the order of its help."""
    return {name: command for name in COMMANDS if not (command := command_of(name)).hidden}


def command_page(name: str) -> str:
    """Write Markdown of a command's page: what it does, its arguments and its options, as its help has them."""
    command = commands()[name]
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    listed = "\n".join("- {}  \n  {}".format(", ".join(f"`{spelling}`" for spelling in spellings(parameter)),
                                              parameter.help or "") for parameter in shown)
    extra = f"{line}\n\n" if (line := needs(name)) else ""
    return f"# t3 {name}\n\n{inspect.cleandoc(command.help or '')}\n\n{extra}## Options\n\n{listed}\n"


def spellings(parameter) -> list[str]:
    """Return how a parameter is written on the command line, with the form of its value."""
    if parameter.param_type_name == "argument":
        return [parameter.metavar or parameter.name.upper()]
    form = "" if parameter.is_flag else f" {parameter.metavar or parameter.type.name.upper()}"
    return [spelling + form for spelling in parameter.opts]


def sections() -> dict[str, type[Section]]:
    """Return the sections of a machine by name, in the record's order."""
    return {name: kind for name, field in Machine.model_fields.items() if (kind := section_of(field))}


def example(name: str) -> tuple[str, str]:
    """Return a machine whose own file has a section, a level's example if one has it, and the section's text."""
    for machine in dict.fromkeys([*(level.example for level in LEVELS), *PRESETS]):
        text = (MACHINES / f"{machine}.toml").read_text(encoding="utf-8")
        if found := re.search(rf"^\[+{name}[.\]].*?\n(.*?)(?=^\[|\Z)", text, re.M | re.S):
            return machine, found[1]
    raise ValueError(f"no machine has [{name}]")


def section_page(name: str) -> str:
    """Write Markdown of a section's page: its keys, what they take, which levels read them, and a machine's values."""
    kind, levels, (machine, text) = sections()[name], [one for one in LEVELS if name in one.reads], example(name)
    given = {key: (value, source) for key, value, source in re.findall(r"^(\w+) = (.*?)(?:  # (.*))?$", text, re.M)}
    rows = ""
    for key, field in kind.model_fields.items():
        value, source = given.get(key, ("", ""))
        read = [level for level in levels if is_read(field, level)]
        cells = (f"`{key}`", meaning(kind, key), allowed(field), f"`{value}`" if value else "not given", source,
                 "all" if read == levels else commands_of(read))
        rows += f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |\n"
    return (f"# [{name}]\n\n{inspect.cleandoc(kind.__doc__ or '')}\n\nRead by {commands_of(levels)}.\n\n## Keys\n\n"
            f"The value and its source are those of `{machine}`.\n\n"
            f"| key | what it is | allowed | value | source | read by |\n|---|---|---|---|---|---|\n{rows}")


def commands_of(levels: list[Level]) -> str:
    """Return the commands that simulate these levels."""
    return ", ".join(dict.fromkeys(f"`{level.command}`" for level in levels))


def meaning(kind: type, key: str) -> str:
    """Return what the schema's source says of a key, in the line before or at the end of its own."""
    for one in kind.__mro__:
        if issubclass(one, Section) and (found := re.search(
                rf"((?:^ +#: .*\n)*)^ +{key}: [^\n]*?(?:#: (.*))?$", inspect.getsource(one), re.M)):
            return found[2] or " ".join(line.strip().removeprefix("#: ") for line in found[1].splitlines())
    return ""


def allowed(field) -> str:
    """Return which values a key takes: limits, words, or whether it may be left out."""
    parts = [field, *(part for one in get_args(field.annotation) for part in getattr(one, "__metadata__", ()))]
    limits = [getattr(limit, name) for part in parts for limit in getattr(part, "metadata", ())
              for name in ("ge", "gt", "le") if hasattr(limit, name)]
    words = [word for part in (field.annotation, *get_args(field.annotation)) for word in get_args(part)
             if isinstance(word, str)]
    found = ["{} to {}".format(*(f"{limit:,}" if isinstance(limit, int) else f"{limit:g}" for limit in limits))
             ] if len(limits) == 2 else []
    found += [f"`{word}`" for word in dict.fromkeys(words)]
    return ", ".join(found) or {bool: "true, false", str: "text"}.get(field.annotation, "")


def written(short: str) -> bool:
    """Say whether a paper's report is there: it is not in the tree."""
    return (REPORTS / short / "report.html").is_file()


def list_of_reports() -> str:
    """Write Markdown of the page that leads to every report, with how many of its targets are met."""
    heads = {short: f"[{title}]({short}/report.html)" if written(short) else f"{title} (`make reports PAPER={short}`)"
             for short, title in PAPERS.items()}
    rows = "".join(f"| {head} | {met} | {judged} | [CSV]({short}/tables/summary.csv) |\n"
                   for short, head in heads.items() for met, judged in [verdicts(REPORTS / short)])
    return ("# Reports\n\nEvery figure and table of the papers' evaluations, ours beside theirs, as `t3 reproduce` "
            "wrote them. `make reports` writes the pages with their plots; each ends with the commit and the versions "
            "that it was made with. What is missed, and why: [fidelity](../fidelity.md), "
            "[end to end](../end-to-end.md).\n\n"
            f"| evaluation of | targets met | of | numbers |\n|---|--:|--:|---|\n{rows}")


def verdicts(report: Path) -> tuple[int, int]:
    """Count how many of a report's numbers meet their targets, and how many have one."""
    with (report / "tables" / "summary.csv").open(encoding="utf-8", newline="") as file:
        found = [row["met"] for row in csv.DictReader(file)]
    return found.count("True"), len(found) - found.count("")


def block_class(name: str) -> type:
    """Return the component's class, also of a block that a function makes."""
    made = blocks.BLOCKS[name]
    return made if isinstance(made, type) else next(
        found for used in made.__code__.co_names if isinstance(found := getattr(blocks, used, None), type))


def first_line(name: str) -> str:
    return (inspect.getdoc(inspect.getmodule(block_class(name))) or "").splitlines()[0]


def page(name: str, geometry: Geometry) -> str:
    """Write Markdown of a block's page."""
    kind = block_class(name)
    source = Path(inspect.getfile(kind)).relative_to(ROOT).as_posix()
    rows = "\n".join(f"| `{port}` | {count} | {way} | {bits} |" for port, count, way, bits in ports(name, geometry))
    head = "| port | how many | direction | bits |\n|---|--:|---|--:|"
    return (f"# {name}\n\n{first_line(name)} Source: `{source}`.\n\n"
            f"## Contract\n\n{contract(inspect.getdoc(kind) or '')}\n\n"
            f"## Ports\n\nOn the machine `t3-table1`.\n\n{head}\n{rows}\n{waveform(name)}\n{verified(name)}")


def contract(docstring: str) -> str:
    """Write Markdown of a component's docstring: its members as a list."""
    words, _, members = docstring.partition("\nMembers\n-------\n")
    listed = []
    for member in re.split(r"\n(?=\S)", members) if members else ():
        head, _, text = member.partition("\n")
        name, _, shape = head.partition(" : ")
        listed.append(f"- **{name}** `{shape}`" + (f"  \n  {' '.join(text.split())}" if text else ""))
    return "\n".join([words, *listed])


def ports(name: str, geometry: Geometry) -> Iterator[tuple[str, int, str, int]]:
    """Return name, how many there are of it, direction and width; an array's ports are one row."""
    found: dict[tuple[str, str, int], int] = {}
    for path, (value, direction) in signature_ports(blocks.BLOCKS[name](geometry)).items():
        words = ["[ ]" if word.isdigit() else word for word in path.split("__")]
        key = ".".join(words).replace(".[ ]", "[ ]"), direction.name.lower(), len(value)
        found[key] = found.get(key, 0) + 1
    return ((port, count, way, bits) for (port, way, bits), count in found.items())


def waveform(name: str) -> str:
    """Draw the waveform of the block's testbench, as an SVG in the page."""
    wave = json.loads((WAVES / f"{name}.json").read_text(encoding="utf-8"))
    drawn = wavedrom.render(json.dumps(wave)).tostring()
    return (f"\n## Waveform\n\nThe testbench's first cycles with something to see, recorded by `make waves`: "
            f"{wave['foot']['text']}.\n\n<div style=\"overflow-x: auto; background: white\">{drawn}</div>\n")


def verified(name: str) -> str:
    """Write Markdown of how a block is verified: its tests and proofs, with what the source says of each."""
    bench, proofs = plan.testbench(name), plan.proofs(name)
    commands = ", ".join(f"`make {command} BLOCK={name}`" for command in ("cocotb", "formal", "mutate")
                         if proofs or command != "formal")
    lists = {f"Testbench, `{relative(bench)}`": plan.tests_in(bench)}
    for path in plan.unit_tests(name):
        lists[f"Unit tests, `{relative(path)}`"] = plan.tests_in(path)
    for path, tests in plan.elsewhere().get(name, {}).items():
        words = plan.tests_in(ROOT / path)
        lists[f"Also in `{path}`"] = {test: words[test] for test in tests}
    text = "".join(f"### {title}\n\n" + "".join(f"- `{test}`: {plain(words)}\n" for test, words in tests.items()) + "\n"
                   for title, tests in lists.items())
    if proofs:
        text += "### Proofs\n\n" + "".join(
            f"- {one.name}{', bounded' if one.bounded else ''}: {plain(one.statement)}"
            f"{f' (reduced: {plain(one.reason)})' if one.reason else ''}\n" for one in proofs)
    return (f"## How it is verified\n\nRun {commands}. [Verification](../verification.md) says what these commands do."
            f"\n\n{text}")


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def plain(words: str) -> str:
    """Return a docstring as Markdown: a star or an angle bracket outside of code is itself."""
    return "".join(re.sub(r"[*<]", r"\\\g<0>", part) if number % 2 == 0 else f"`{part}`"
                   for number, part in enumerate(words.split("`")))
