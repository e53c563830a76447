"""Waveforms of a window, read back: they say what the events of the same window say."""

import pytest
from vcd.reader import TokenKind, tokenize

from t3sim.base.errors import BadInput
from t3sim.trace import store
from t3sim.trace.recorder import Filter
from t3sim.trace.schema import COMPLETE, Kind
from tests.support.recorded import make

pytestmark = [pytest.mark.builds_rtl, pytest.mark.builds_loops]

FIRST, END = 2400, 3400


@pytest.fixture(scope="module")
def trace(tmp_path_factory):
    return make(tmp_path_factory.mktemp("waves"), wanted=Filter(FIRST, END), with_waves=True)


@pytest.fixture(scope="module")
def signals(trace) -> dict[str, list[tuple[int, int]]]:
    """Path: its changes (cycle, value)."""
    names, found, scope, now = {}, {}, [], 0
    with (trace.folder / store.WAVES).open("rb") as file:
        for token in tokenize(file):
            if token.kind is TokenKind.SCOPE:
                scope.append(token.scope.ident)
            elif token.kind is TokenKind.UPSCOPE:
                scope.pop()
            elif token.kind is TokenKind.VAR:
                names[token.var.id_code] = ".".join([*scope, token.var.reference])
                found[names[token.var.id_code]] = []
            elif token.kind is TokenKind.CHANGE_TIME:
                now = token.time_change
            elif token.kind in (TokenKind.CHANGE_SCALAR, TokenKind.CHANGE_VECTOR):
                change = token.scalar_change if token.kind is TokenKind.CHANGE_SCALAR else token.vector_change
                value = change.value
                found[names[change.id_code]].append((now, int(value, 2) if isinstance(value, str) and
                                                     set(value) <= {"0", "1"} else value))
    return found


def value(signals, path: str, cycle: int) -> int:
    return [v for at, v in signals[path] if at <= cycle][-1]


def test_waves_agree_with_events(trace, signals):
    updates = trace.events[(trace.events["kind"] == Kind.UPDATE) & (trace.events["cycle"] >= FIRST)]
    assert len(updates) > 100 and (updates["flags"] & COMPLETE).any()
    for e in updates[::7]:
        at = f"gpu_{e['device']}.inside.tracker_{e['unit']}"
        assert value(signals, f"{at}.done", int(e["cycle"])) == 1
        assert value(signals, f"{at}.count", int(e["cycle"])) + e["amount"] == e["a"]
        assert value(signals, f"{at}.complete", int(e["cycle"])) == bool(e["flags"] & COMPLETE)
    for e in trace.events[trace.events["kind"] == Kind.ENTER][::50]:
        port = f"gpu_{e['device']}.{('compute', 'inbound')[e['stream']]}_{e['unit']}"
        cycle = int(e["cycle"])
        assert value(signals, f"{port}.valid", cycle) == value(signals, f"{port}.ready", cycle) == 1
        assert value(signals, f"{port}.payload_address", cycle) == e["address"]
    for e in trace.events[trace.events["kind"] == Kind.SERVE][::50]:
        assert value(signals, f"gpu_{e['device']}.models.channel_{e['unit']}.dram_queue", int(e["cycle"])) >= e["a"]


def test_save_files_name_signals_that_exist(trace, signals):
    save = (trace.folder / store.GTKWAVE).read_text()
    named = {line.split("[")[0] for line in save.splitlines() if line.startswith("gpu_")}
    assert named <= set(signals) and "gpu_0.inside.tracker_1.count" in named and "-gpu_0: models" in save
    scopes = {path.rpartition(".")[0] for path in named}
    commands = [line.split() for line in (trace.folder / store.SURFER).read_text().splitlines()]
    assert {words[1] for words in commands if words[0] == "scope_add_as_group"} == scopes
    assert all(len(words) <= 2 for words in commands), "Surfer drops a command with more words"


def test_a_long_window_is_refused(tmp_path):
    with pytest.raises(BadInput, match="at most 20,000 cycles"):
        make(tmp_path, wanted=Filter(0, 50_000), with_waves=True)
