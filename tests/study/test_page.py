"""The page on scenarios lists every key, as its source describes it."""

import re
import tomllib
from pathlib import Path

import t3sim.study.scenario.scenario as source
from t3sim import cli
from t3sim.base.errors import Failure
from t3sim.commands.flags import FLAGS
from t3sim.study import techniques
from t3sim.study.scenario.files import keys, scenario_of, sections
from t3sim.study.scenario.kinds import KINDS
from t3sim.trace import record
from tests.support.fake_run import fake_result

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "scenario.md").read_text(encoding="utf-8")


def rows() -> list[str]:
    """A row for each key: its name, the option that is its short-cut, the kinds that take it, and what it is."""
    short = {flag.key: f"`{flag.word}`" for flag in FLAGS}
    section_of = {kind.__name__: name for name, kind in sections().items()}
    lines, section = [], ""
    for line in Path(source.__file__).read_text(encoding="utf-8").splitlines():
        if begins := re.match(r"class (\w+)\(", line):
            section = section_of.get(begins[1], "")
        elif field := re.match(r"    (\w+): .*  #: (.*)$", line):
            key = f"{section}.{field[1]}" if section else field[1]
            if key in keys():
                kinds = ", ".join(name for name, kind in KINDS.items() if key in kind.keys)
                kinds = "all" if key == "level" else kinds.replace(", ".join(KINDS), "all")
                lines.append(f"| `{key}` | {short.get(key, '')} | {kinds} | {field[2]} |")
    return lines


def test_every_key_has_its_row():
    assert len(rows()) == len(keys())
    assert all(any(key in kind.keys for kind in KINDS.values()) for key in keys()), "a key that no kind takes"
    assert [row for row in rows() if row not in PAGE] == []
    assert len(re.findall(r"^\| `[\w.]+` \|", PAGE, re.M)) == len(rows()), "a row of no key"


def shown(language: str) -> str:
    return re.search(rf"```{language}\n(.*?)```", PAGE, re.DOTALL)[1]


def test_the_page_shows_a_scenario_that_is_one():
    scenario = scenario_of(tomllib.loads(shown("toml")), {})
    assert scenario.changes().keys() >= {"layer.gemm", "exchange.algorithm", "machine", "techniques"}


def test_the_commands_of_the_page_are_taken(tmp_path, monkeypatch, capsys):
    runs = []
    monkeypatch.chdir(tmp_path)
    (tmp_path / "direct.toml").write_text(shown("toml"))
    monkeypatch.setattr(techniques, "run_sublayer", lambda plan, names, *rest: (
        runs.append(names), fake_result(plan.workload, plan.machine, names))[1])

    def recorded(setup, *rest, **options):
        runs.append(setup.technique)
        raise Failure("recorded")
    monkeypatch.setattr(record, "record", recorded)
    commands = shown("sh").splitlines()
    assert len(commands) == 3
    for command in commands[:2]:
        assert cli.main(command.split()[1:]) == 0, capsys.readouterr().err
    assert cli.main(commands[2].split()[1:]) == 1 and capsys.readouterr().err.endswith("t3: error: recorded\n")
    assert runs == [("sequential", "t3", "t3-mca"), ("sequential", "t3", "t3-mca"), "t3"]
