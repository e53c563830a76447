"""The page on scenarios lists every key, as its source describes it."""

import re
from pathlib import Path

import t3sim.scenario.scenario as source
from t3sim.commands.flags import FLAGS
from t3sim.scenario.files import keys, scenario_of, sections

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "scenario.md").read_text(encoding="utf-8")


def rows() -> list[str]:
    """A row for each key: its name, the option that is its short-cut, and what it is."""
    short = {flag.key: f"`{flag.word}`" for flag in FLAGS}
    section_of = {kind.__name__: name for name, kind in sections().items()}
    found, section = [], ""
    for line in Path(source.__file__).read_text(encoding="utf-8").splitlines():
        if begins := re.match(r"class (\w+)\(", line):
            section = section_of.get(begins[1], "")
        elif field := re.match(r"    (\w+): .*  #: (.*)$", line):
            key = f"{section}.{field[1]}" if section else field[1]
            if key in keys():
                found.append(f"| `{key}` | {short.get(key, '')} | {field[2]} |")
    return found


def test_every_key_has_its_row():
    assert len(rows()) == len(keys())
    assert [row for row in rows() if row not in PAGE] == []
    assert len(re.findall(r"^\| `[\w.]+` \|", PAGE, re.M)) == len(rows()), "a row of no key"


def test_the_page_shows_a_scenario_that_is_one():
    import tomllib

    shown = re.search(r"```toml\n(.*?)```", PAGE, re.DOTALL)[1]
    scenario = scenario_of(tomllib.loads(shown), {})
    assert scenario.given().keys() >= {"layer.gemm", "exchange.algorithm", "machine", "techniques"}
