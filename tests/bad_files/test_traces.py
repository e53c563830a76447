"""`t3 explain` and `t3 step` with damaged and edited traces."""

import copy
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from t3sim.trace.recorder import Filter
from t3sim.trace.store import EVENTS, PLAN, RUN, Trace
from tests.support.damage import answered, damaged
from tests.support.recorded import make

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops, pytest.mark.slow]

VALUES = (None, True, -1, 0, 1 << 62, 1e300, 0.5, "", "x" * 2000, [], [[]], [None], [-1], ["x"], {}, {"a": 1})
_LAWFUL = {"seed", "machine", "technique", "policy", "workload", "bug", "errors", "counters", "versions"}  #: not read


@pytest.fixture(scope="module")
def short(tmp_path_factory) -> Trace:
    return make(tmp_path_factory.mktemp("short"), wanted=Filter(end=300))


@pytest.fixture
def folder(short, tmp_path) -> Path:
    return Path(shutil.copytree(short.folder, tmp_path / "trace"))


def edited(run: dict) -> Iterator[tuple[str, dict]]:
    """Give the description with each of its fields, and of its parts', gone and of each other value."""
    def places(part, path=()) -> Iterator[tuple]:
        for key in part if isinstance(part, dict) else range(len(part)):
            yield (*path, key)
            if isinstance(part[key], dict | list):
                yield from places(part[key], (*path, key))
    for path in places(run):
        if path[0] in _LAWFUL or path[:2] == ("policies", "mca"):
            continue
        for value in (..., *VALUES):
            made = copy.deepcopy(run)
            part = made
            for key in path[:-1]:
                part = part[key]
            if value is ...:
                del part[path[-1]]
            else:
                part[path[-1]] = value
            yield f"{'.'.join(map(str, path))} {value!r:.20}", made


def test_edited_descriptions(folder, capsys):
    run = json.loads((folder / RUN).read_text())
    every = [*edited(run)]
    for number, (what, made) in enumerate(every):
        if number % 21:  # of some 1,500, each with another command
            continue
        (folder / RUN).write_text(json.dumps(made))
        for words in (["explain", folder], ["explain", folder, "--wg", 1, "--wf", 0],
                      ["explain", folder, "--channel", 1, "--cycle", 100], ["step", folder])[number % 4:][:1]:
            line = answered(capsys, words, (0, 2))
            assert not line or str(folder) in line or "needs a terminal" in line or "does not exist" in line or (
                "which has" in line), (what, line)


@pytest.mark.parametrize("name", [RUN, PLAN, EVENTS])
def test_damaged_files(folder, name, capsys):
    for content in damaged((folder / name).read_bytes(), 40):
        (folder / name).write_bytes(content)
        for words in (["explain", folder], ["explain", folder, "--wg", 1, "--wf", 0]):
            line = answered(capsys, words, (0, 2))
            assert not line or str(folder) in line


def test_a_plan_that_is_gone_or_of_another_run(folder, short, capsys):
    whole = dict(np.load(folder / PLAN))
    for name, array in whole.items():
        for made in (array[:0], array.astype(float), array[..., None], array - (1 << 50), array + (1 << 50)):
            np.savez(folder / PLAN, **{**whole, name: made})
            assert str(folder / PLAN) in answered(capsys, ["explain", folder], (2,))
    (folder / PLAN).unlink()
    for words in (["explain", folder], ["step", folder]):
        assert f"{PLAN} is missing" in answered(capsys, words, (2,))
    shutil.copy(short.folder / PLAN, folder / PLAN)
    run = json.loads((folder / RUN).read_text())
    (folder / RUN).write_text(json.dumps(run | {"has_plan": False}))
    assert "has_plan is false" in answered(capsys, ["explain", folder], (2,))


@pytest.mark.parametrize(("column", "value"), [("kind", 0), ("kind", 99), ("device", 200), ("source", 9),
                                               ("cycle", -5), ("unit", 9999), ("op", 7), ("stream", 9), ("reason", 77)])
def test_events_that_cannot_have_been(folder, column, value, capsys):
    table = pq.read_table(folder / EVENTS)
    values = table[column].to_numpy().copy()
    values[:] = value
    index = table.column_names.index(column)
    pq.write_table(table.set_column(index, column, pa.array(values)), folder / EVENTS)
    line = answered(capsys, ["explain", folder], (2,))
    first = re.search(rf"event (\d+) has {column} {value}\b", line)
    assert first and (first[1] == "0" or column in ("unit", "stream", "reason")), line


def test_any_value_in_any_column(folder, capsys):
    """No column can hold what makes a reader fail: a reader that does has a fault of its own, which is shown."""
    table, dice = pq.read_table(folder / EVENTS), np.random.default_rng(0)
    for column in table.column_names:
        values = table[column].to_numpy().copy()
        at = dice.integers(len(values), size=len(values) // 4)
        info = np.iinfo(values.dtype)
        values[at] = dice.integers(info.min, info.max, size=len(at), dtype=values.dtype)
        index = table.column_names.index(column)
        pq.write_table(table.set_column(index, column, pa.array(values)), folder / EVENTS)
        for words in (["explain", folder], ["explain", folder, "--wg", 1, "--wf", 0],
                      ["explain", folder, "--channel", 1, "--cycle", 100], ["step", folder]):
            line = answered(capsys, words, (0, 2))
            assert not line or str(folder) in line or "needs a terminal" in line
