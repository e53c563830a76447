"""Waveforms as FST, read back by the library that writes them."""

import pytest
from vcd import VCDWriter

from t3sim.cli import main
from t3sim.trace.fst import to_fst


def test_an_fst_says_what_the_vcd_says(tmp_path):
    pylibfst = pytest.importorskip("pylibfst")
    wide = (1 << 69) + 2
    with (tmp_path / "a.vcd").open("w") as file, VCDWriter(file, timescale="10 ps") as writer:
        bit = writer.register_var("top.inside", "bit", "wire", size=1, init=0)
        word = writer.register_var("top", "word", "wire", size=70, init=5)
        unknown = writer.register_var("top", "unknown", "wire", size=4)
        for variable, at, value in ((bit, 3, 1), (word, 4, wide), (unknown, 5, "xz01"), (unknown, 9, 3)):
            writer.change(variable, at, value)
    to_fst(tmp_path / "a.vcd", tmp_path / "a.fst")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.fst", "a.vcd"]
    reader = pylibfst.lib.fstReaderOpen(str(tmp_path / "a.fst").encode())
    scopes, signals = pylibfst.get_scopes_signals2(reader)
    assert scopes == ["top", "top.inside"] and pylibfst.lib.fstReaderGetTimescale(reader) == -11
    assert {name: one.length for name, one in signals.by_name.items()} == {
        "top.word": 70, "top.unknown": 4, "top.inside.bit": 1}
    pylibfst.lib.fstReaderSetFacProcessMaskAll(reader)
    found = []
    pylibfst.fstReaderIterBlocks(reader, lambda _, at, handle, value: found.append(
        (at, signals.by_handle[handle].name, pylibfst.string(value))))
    pylibfst.lib.fstReaderClose(reader)
    assert sorted(found) == sorted([
        (0, "top.inside.bit", "0"), (0, "top.word", f"{5:070b}"), (0, "top.unknown", "xxxx"),
        (3, "top.inside.bit", "1"), (4, "top.word", f"{wide:070b}"), (5, "top.unknown", "xz01"),
        (9, "top.unknown", "0011")])


def test_it_is_of_waves(capsys, tmp_path):
    assert main(["trace", "--fst", "--out", str(tmp_path / "x")]) == 2
    assert "--fst needs --waves" in capsys.readouterr().err


def test_without_the_library_nothing_runs(capsys, tmp_path, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "pylibfst", None)
    assert main(["trace", "--waves", "--fst", "--from", "1", "--until", "9", "--out", str(tmp_path / "x")]) == 1
    error = capsys.readouterr().err
    assert "pip install 't3sim[trace]'" in error and error.count("\n") == 1
