"""All is imported under one name, `t3sim`, while the folders keep theirs."""

import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = (".ci", ".github", "docs", "rtl", "scripts", "sim_models", "testbenches", "tests")
KINDS = {".py", ".md", ".toml", ".yml", ".yaml", ".ipynb", ".j2", ".csv", ""}

#: Modules by the names of their folders, in imports, strings and prose.
OLD_NAME = re.compile(r"(?<![\w./])(?:rtl|testbenches|sim_models)\.(?=[a-z{])"
                      r"|(?<!t3sim )\b(?:from|import) +(?:rtl|testbenches|sim_models)(?![\w/-])")

#: The one line that may be written with the folder's name, at the root of a checkout.
ALLOWED = re.compile(r"`from sim_models import [^`]+`")


def old_names(text: str) -> list[str]:
    return OLD_NAME.findall(ALLOWED.sub("", text))


def written() -> list[Path]:
    inside = [path for folder in FOLDERS for path in (ROOT / folder).rglob("*") if path.suffix in KINDS]
    return [path for path in (*inside, *(ROOT / name for name in ("Makefile", "README.md", "pyproject.toml")))
            if path.is_file() and path.name != Path(__file__).name]


def test_nothing_uses_a_folders_name():
    assert len(written()) > 400
    assert {path.relative_to(ROOT).as_posix(): found for path in written()
            if (found := old_names(path.read_text(encoding="utf-8")))} == {}


@pytest.mark.parametrize("text", ["from rtl.tracker import Tracker", "import sim_models", "-m testbenches.run",
                                  "from testbenches import bench", 'patch("rtl.gpu_top.X")', "`sim_models.schedule`"])
def test_an_old_name_is_found(text):
    assert old_names(text)


def test_other_words_are_left_alone():
    assert not old_names("t3sim.rtl.track.tracker, t3sim.machine, rtl/track/tracker.py, for all testbenches. "
                         "`from sim_models import run`; from t3sim import rtl")


def test_a_wheel_has_one_name(tmp_path):
    """Built of a copy: setuptools leaves its work beside the sources."""
    for name in ("rtl", "sim_models", "testbenches"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    subprocess.run([sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "."],
                   cwd=tmp_path, check=True, capture_output=True, timeout=200)
    packed = zipfile.ZipFile(next(tmp_path.glob("*.whl"))).namelist()
    tops = {name.split("/")[0] for name in packed}
    assert len(tops) == 2 and "t3sim" in tops and next(iter(tops - {"t3sim"})).endswith(".dist-info")
    kinds = {".py", ".toml", ".json", ".csv", ".cpp", ".h", ".j2", ".typed"}
    ours = {path.relative_to(ROOT) for folder in ("rtl", "sim_models", "testbenches")
            for path in (ROOT / folder).rglob("*") if path.suffix in kinds or path.name == "py.typed"}
    wanted = {"t3sim/" + path.as_posix().removeprefix("sim_models/") for path in ours}
    assert sorted(wanted - {*packed}) == []


def test_the_folders_name_gives_the_same_objects():
    """At the root of a checkout, and never a second copy of a module."""
    program = ("import sim_models, t3sim, sys\nfrom sim_models import run, Machine\n"
               "assert run is t3sim.run and Machine is t3sim.Machine\n"
               "try: import sim_models.machine\nexcept ModuleNotFoundError: pass\nelse: sys.exit('a second copy')")
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, text=True, capture_output=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_a_run_and_a_bench_are_one_thing_each():
    """What a name stands for is told by its file alone; six files were once called run, four bench."""
    found = sorted(path.relative_to(ROOT).as_posix() for folder in ("rtl", "sim_models", "testbenches")
                   for path in (ROOT / folder).rglob("*.py") if path.stem in ("run", "bench", "recorder"))
    assert found == ["sim_models/commands/bench.py", "sim_models/commands/run.py", "sim_models/trace/recorder.py",
                     "testbenches/bench.py"]
