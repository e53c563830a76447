"""`t3 area --library` with damaged libraries."""

import re
from pathlib import Path

import pytest

from t3sim.base.errors import Failure
from t3sim.cosim import yosys
from tests.support.damage import answered, damaged, replaced

CELLS = Path(__file__).parents[1] / "area" / "cells.lib"
TEXT = CELLS.read_text()


@pytest.fixture
def area(tmp_path, monkeypatch, capsys):
    """Run the command with a library of this text; what is accepted ends at a tool that is not there."""
    def no_tool(name):
        raise Failure("accepted")
    monkeypatch.setattr(yosys, "version", no_tool)

    def run(text: str | bytes) -> str:
        (tmp_path / "x.lib").write_bytes(text if isinstance(text, bytes) else text.encode())
        line = answered(capsys, ["area", "arbiter", "--no-fpga", "--library", tmp_path / "x.lib"])
        assert "x.lib" in line or "accepted" in line
        return line
    return run


def test_damaged(area):
    lines = [area(content) for content in damaged(TEXT.encode(), 60)]
    assert 20 < sum("x.lib" in line for line in lines)


@pytest.mark.parametrize("value", ["", "nan", "inf", "-1", "1e999", "x", "9" * 5000, '"', "{", ";"])
@pytest.mark.parametrize("key", ["area", "capacitance", "index_1", "index_2", "values"])
def test_wrong_numbers(area, key, value):
    text = re.sub(rf'\b{key} : [^;]+;', f"{key} : {value};", TEXT)
    text = re.sub(rf'\b{key} \([^)]*\);', f'{key} ("{value}");', text)
    assert "x.lib" in area(text) or value == "" and key.startswith("index")


@pytest.mark.parametrize("text", [
    "", "library", "library (x)", "library () {}", "library (x) {}", "library (x) { /* ", 'library (x) { a : "',
    "library (x) {" * 5000, "library (x) { cell () {} }", "library (x) { cell (a, b) {} }",
    'library (x) { cell ("a\nb") {} }', "library (x) { cell (A) { pin () {} } }", "library (x) { a : }", b"\xff" * 100,
    b"\0" * 100, "(" * 1000, "/*" * 100000, TEXT.replace('"(!A)"', '"' + "(" * 3000 + 'A"'),
    TEXT.replace('"(!A)"', "\"__import__('os').system('touch made')\""), TEXT.replace('"(!A)"', '"9 ** 9 ** 9"'),
    TEXT.replace("area : 4", "area : 0"), TEXT.replace('"1.0, 1.0", ', '"1.0, 1.0, 3", '),
    TEXT.replace('index_1 ("0, 1")', 'index_1 ("1, 1")'), TEXT.replace("cell (NAND2)", "cell (NAND2, NAND3)"),
])
def test_wrong_libraries(area, text, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert "x.lib" in area(text) and not (tmp_path / "made").exists()


def test_tables_take_their_indices_from_the_template(area):
    assert "accepted" in area(replaced(TEXT, '(two) { index_1 ("0, 1"); index_2 ("0, 1");', "(two) {"))
