"""Each format's good file with any value wrong, gone or cut off there: a line, or a sound answer, in seconds."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from t3sim import cli
from t3sim.study import techniques
from tests.support.damage import answered
from tests.support.fake_run import fake_result

ROOT = Path(__file__).parents[2]
VALUES = ("null", "true", "-1", "0", "0.5", "1e300", "1e999", "4611686018427387904", "9" * 4000, "NaN", '""', '"x"',
          '"[/red]"', '"' + "x" * 3000 + '"', "[]", "[[]]", "[-1]", "{}", "[" * 200 + "]" * 200)
SECONDS = 20  #: of a processor, for an answer
MOST = 40  #: files of a format

_JSON = r'(?<=: )(?:"(?:[^"\\]|\\.)*"|[-\d.]+|true|false|null)'
_TOML = r"(?<= = )[^\n#]+"
_FABRIC = (ROOT / "sim_models/machine/machines/torus-128.toml").read_text()
_SCENARIO = """level = "event"
machine = "h100-sxm"
techniques = ["flux"]

[layer]
gemm = "4096x4096x1024"
devices = 4
"""

#: The file's name, a good one, its values, and the command that reads it.
FORMATS = {
    "machine": ("x.toml", (ROOT / "tests/data/machines/ring_small.toml").read_text(), _TOML, ["machines", "x.toml"]),
    "network": ("x.toml", _FABRIC, _TOML,
                "collective --collective ar --topology ring:4 --sizes 1M --machine x.toml".split()),
    "scenario": ("x.toml", _SCENARIO, _TOML, ["run", "x.toml"]),
    "config.json": ("x.json", (ROOT / "docs/workloads/small-config.json").read_text(), _JSON,
                    "end-to-end --model x.json --gpus 8 --mapping tp=4,dp=2".split()),
    "plan": ("x.json", (ROOT / "docs/plans/packet-all-reduce-4.json").read_text(), _JSON,
             "collective --plan x.json --topology full:4".split()),
    "Chakra": ("x.json", (ROOT / "docs/workloads/small-trace.json").read_text(), _JSON,
               "run --chakra x.json --tp 4".split()),
}


def changed(good: str, value: str) -> Iterator[str]:
    """Give the file with each of its values (a pattern) replaced by each of VALUES, gone, and cut off there."""
    for found in re.finditer(value, good):
        for other in VALUES:
            yield good[:found.start()] + other + good[found.end():]
        start, end = good.rfind("\n", 0, found.start()) + 1, good.find("\n", found.end()) + 1
        yield good[:start] + good[end or len(good):]
        yield good[:found.start()]


@pytest.mark.builds_loops
@pytest.mark.parametrize("kind", FORMATS)
def test_any_value(kind, tmp_path, monkeypatch, capsys):
    name, good, value, words = FORMATS[kind]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(techniques, "run_sublayer", lambda plan, names, *_:
                        fake_result(plan.workload, plan.machine, names, 0))
    Path(name).write_text(good)
    assert cli.main(words) == 0, capsys.readouterr().err
    capsys.readouterr()
    every = [*changed(good, value)]
    refused = 0
    for made in every[::max(1, len(every) // MOST) | 1]:  # an odd step meets each of the values
        Path(name).write_text(made)
        started = time.process_time()
        line = answered(capsys, words, (0, 2))
        assert time.process_time() - started < SECONDS
        refused += bool(line)
        assert not line or "x." in line or kind in ("Chakra", "scenario"), line
    assert refused > 0
