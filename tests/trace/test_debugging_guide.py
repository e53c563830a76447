"""docs/debugging.md: the commands with which its three bugs are found, run in its order, print what it says."""

import re
from pathlib import Path

import pytest

from t3sim import cli

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "debugging.md").read_text().split("## Three bugs")[1]


def commands() -> list[tuple[str, list[str]]]:
    """Each command of the guide, and the passages that must appear in its output one after the other."""
    found = []
    for block in re.findall(r"```console\n(.*?)```", GUIDE, re.DOTALL):
        for command in block.split("$ t3 ")[1:]:
            line, _, shown = command.partition("\n")
            found.append((line, [" ".join(passage.split()) for passage in re.split(r"^\.\.\.$", shown, flags=re.M)]))
    return found


def test_the_guide_has_commands():
    assert [line.split()[0] for line, _ in commands()].count("trace") == 4 and len(commands()) > 10


@pytest.fixture(scope="module")
def folder(tmp_path_factory) -> str:
    return str(tmp_path_factory.mktemp("guide"))


@pytest.mark.parametrize(("line", "passages"), commands(), ids=lambda value: value if isinstance(value, str) else "")
def test_it_prints_what_it_says(line, passages, folder, capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    stuck = any("The run stuck" in passage for passage in passages)
    assert cli.main([word.replace("build/", f"{folder}/") for word in line.split()]) == stuck
    printed = " ".join(capsys.readouterr().out.replace(f"{folder}/", "build/").split())
    for passage in passages:
        assert passage in printed
        printed = printed[printed.index(passage) + len(passage):]
