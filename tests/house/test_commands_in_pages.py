"""Every `t3` command of the README and the pages: its options are there, and what it asks for is planned.

Where work begins that takes longer than a moment, a command is stopped; until then all of it runs.
"""

import itertools
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from t3sim import cli
from t3sim.base.errors import Failure
from t3sim.commands.app import COMMANDS, command_of
from t3sim.study.sweeps.study import Study

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if "reports" not in page.parts)]
#: Where what takes time begins.
WORK = ("t3sim.study.techniques.run_sublayer", "t3sim.runs.kernels.simulate", "t3sim.runs.isolated_kernels.run_table",
        "t3sim.runs.collective_alone.PlannedCollective.simulate", "t3sim.trace.record.record",
        "t3sim.study.sweeps.sweep.sweep", "t3sim.papers.pipeline.reproduce", "t3sim.runs.queued.run_queued",
        "t3sim.event.flow.dma.run_collective", "t3sim.event.flow.runs.run_collectives")
PLANNED = "planned until work begins"
#: What a command says of a file that only its reader has.
FILE = re.compile(r"\.(toml|json|et|npz|py|csv|log|xml)\b.*(No such file|neither a file)|fails: FileNotFoundError")
#: Commands that are run so far; of the others, whose work begins with a trace, a compiler or rows, words are checked.
RUN = ("run", "trace", "kernel", "overlap", "sweep", "dma", "collective", "machines", "techniques", "end-to-end",
       "registers")


def commands(text: str) -> Iterator[tuple[str, bool]]:
    """Give each command of a page, and whether it stands in a block, where it must be whole."""
    blocks = re.findall(r"^```(?:console|sh)\n(.*?)^```", text, re.M | re.S)
    for block in blocks:
        for line in block.replace("\\\n", " ").splitlines():
            if found := re.match(r"(?:\$ )?(?:\.venv/bin/)?t3 (.*)", line):
                yield found[1], True
    for found in re.findall(r"`(?:\.venv/bin/)?t3 ([^`]+)`", re.sub(r"^```.*?^```", "", text, flags=re.M | re.S)):
        yield found, False


def words_of(line: str) -> list[str]:
    """Split a line, without what the shell does with its output, a remark, and dots for what is left out."""
    alone = re.split(r"\s#|\s[>|] |\s2>|;|&&", re.sub(r"<\(.*?\)", "FILE", line.replace("\\|", "|")))[0]
    return [word for word in shlex.split(alone) if word not in ("...", "…")]


def is_placeholder(word: str) -> bool:
    """Say whether a word stands for others: FILE, N, A,B, rs|ag, DIR/x."""
    value = word.rpartition("=")[2]
    return bool(re.search(r"(?<![\w/.-])[A-Z][A-Z_]*(?![\w.])|\||^\.\.\.", value)) or word.endswith("...")


def wrong_words(words: list[str]) -> str:
    """Return a command or an option that is not there, of a line whose other words may stand for something."""
    if words[0] not in COMMANDS:
        return f"no command {words[0]!r}"
    parameters = command_of(words[0]).params
    known = {"--help"}.union(*((*parameter.opts, *parameter.secondary_opts) for parameter in parameters))
    for word in words[1:]:
        option = word.partition("=")[0]
        if option.startswith("--") and option not in known and "|" not in option:
            return f"no option {option!r}"
    return ""


@pytest.fixture
def planning(monkeypatch, tmp_path):
    """Stop commands where work begins; a study has its first points only."""
    def stop(*_, **__):
        raise Failure(PLANNED)
    for name in WORK:
        monkeypatch.setattr(name, stop)
    every = Study.points_settings
    monkeypatch.setattr(Study, "points_settings", lambda study: itertools.islice(every(study), 2))
    for name in ("docs", "tests", "sim_models"):  # a command finds its files, and leaves its plots in this folder
        (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_every_command_of_a_page(planning, capsys):
    seen: set[str] = set()
    faults = []
    for page in PAGES:
        for line, whole in commands(page.read_text(encoding="utf-8")):
            if line in seen:
                continue
            seen.add(line)
            if fault := check(words_of(line), whole, planning, capsys):
                faults.append(f"{page.relative_to(ROOT)}: t3 {line}: {fault}")
    assert len(seen) > 100 and not faults, "\n".join(faults)


def check(words: list[str], whole: bool, folder: Path, capsys) -> str:
    """Return what is wrong with a command; nothing if it is as it should be."""
    if not words or is_placeholder(words[0]) or words[0].startswith("-"):
        return ""
    names = words[0].split("|")
    for name in names:
        if fault := wrong_words([name, *words[1:]]):
            return fault
    is_part = not whole and (words[-1].startswith("--") or len(words) == 1)  # an option, or a command's name
    if len(names) > 1 or words[0] not in RUN or any(map(is_placeholder, words)) or "--help" in words or is_part:
        return ""
    code = cli.main([word.replace("build/", f"{folder}/") for word in words])
    printed = capsys.readouterr().err
    if code == 0 or PLANNED in printed:
        return ""
    line = next((one for one in printed.splitlines() if one.startswith("t3: error")), printed)
    if FILE.search(line) and not re.search(r"\b(docs|tests)/", line):  # a reader's own
        return ""
    return line if whole or code != 2 or re.search("is unknown|No such|unexpected", line) else ""


def test_what_is_wrong_is_found(planning, capsys):
    for line, told in (("run --set tracker.sets=64", "'tracker.sets' is unknown"), ("rum --tp 8", "no command 'rum'"),
                       ("area --nodes 7", "no option '--nodes'"), ("sweep no-such-study --out o", "neither a file"),
                       ("run --machine docs/machines/none.toml", "neither a file")):
        assert told in check(words_of(line), True, planning, capsys), line
    for line in ("run --tp 8 # as in the paper", "run FILE", "run direct.toml", "overlap --tp 8 > ranking.txt"):
        assert not check(words_of(line), True, planning, capsys), line
