"""Tests lie in the folder of `tests/` that has the name of the room they ask about; the others say what they cross."""

from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

#: Folders of tests that ask about more than one room.
ACROSS = {
    "bad_files": "every file that a user can give, damaged or hostile",
    "cocotb": "testbenches/: the testbenches of the blocks",
    "equivalence": "rtl/ in three simulators",
    "faults": "hardware and models with bits that flip and messages that are lost",
    "house": "the project itself",
    "notebooks": "docs/notebooks",
    "rtl": "rtl/",
    "whole": "the command line, and runs from options to every bit",
}
NO_TESTS = {"data", "support"}  #: files and functions that tests share

#: Rooms without a folder of tests, and the folders whose tests ask about them.
ELSEWHERE = {
    "commands": ["whole", "scenario"], "engine": ["mechanisms", "runs", "whole"], "reference": ["rtl"],
    "support": ["area", "whole"], "topologies": ["collectives", "flow", "schedule"],
}


def rooms(root: Path) -> set[str]:
    """Return the rooms of sim_models/ and testbenches/; a folder that only has data is none."""
    return {path.parent.name for place in ("sim_models", "testbenches") for path in (root / place).glob("*/[a-z]*.py")}


def wrong(root: Path) -> list[str]:
    """Return a line for each folder of tests without a room, and for each room without tests."""
    folders = {path.parent.name for path in (root / "tests").glob("*/*.py")} | {
        path.name for path in (root / "tests").glob("*/") if any(path.iterdir()) and path.name != "__pycache__"}
    known = rooms(root)
    found = [f"tests/{name}: no room has that name" for name in sorted(folders - known - set(ACROSS) - NO_TESTS)]
    found += [f"{name}: no tests/{name}" for name in sorted(known - (folders - NO_TESTS) - set(ELSEWHERE))]
    for name, places in ELSEWHERE.items():
        found += [f"{name}: tests/{place} does not ask about it" for place in places if not any(
            f"t3sim.{name}" in path.read_text(encoding="utf-8") for path in (root / "tests" / place).glob("test_*.py"))]
    modules = {path.stem for path in (root / "sim_models").glob("*.py")}
    found += [f"tests/{path.name}: no module of sim_models/ has it" for path in (root / "tests").glob("test_*.py")
              if path.stem.removeprefix("test_") not in modules]
    return found


def test_tests_mirror_the_source():
    assert wrong(ROOT) == []
    assert not [name for name in ACROSS if not any((ROOT / "tests" / name).glob("test_*.py"))]


@pytest.mark.parametrize(("path", "words"), [
    ("tests/models/test_llc.py", "tests/models: no room"), ("sim_models/cache/lines.py", "cache: no tests/cache"),
    ("tests/test_everything.py", "test_everything.py: no module of sim_models/")])
def test_what_mirrors_nothing_is_found(tmp_path, monkeypatch, path, words):
    for place in ("sim_models/hbm/device.py", "tests/hbm/test_hbm.py", path):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).touch()
    monkeypatch.setitem(globals(), "ELSEWHERE", {})
    line, = wrong(tmp_path)
    assert words in line
