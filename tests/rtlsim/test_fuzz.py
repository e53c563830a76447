"""Random designs: compiled RTL equals Amaranth's simulator and Verilator; what the compiler gets wrong is found."""

import re
import time
from collections.abc import Callable

import numpy as np
import pytest
import typer
from amaranth import Module, Mux, Signal, signed
from amaranth.lib import wiring
from amaranth.lib.wiring import In, Out
from typer.testing import CliRunner

from t3sim.cosim.component import build_component
from t3sim.rtlsim.expressions import Expressions
from t3sim.rtlsim.graph_code import GraphWriter
from t3sim.rtlsim.simulator import Simulator
from t3sim.testbenches import fuzz
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl


class Parts(wiring.Component):
    """Parts of values that begin anywhere, also far beyond them."""

    def __init__(self, width: int, offset: int) -> None:
        self._width, ports = width, {f"{kind}_{how}": Out(width) for kind in KINDS for how in ("bit", "word")}
        super().__init__({"a": In(5), "offset": In(offset), **ports, "right": Out(5)})

    def elaborate(self, platform) -> Module:
        m = Module()
        number = Signal(signed(5))
        m.d.comb += [number.eq(self.a), self.right.eq(number >> self.offset)]
        for kind, value in zip(KINDS, (self.a, self.a.as_signed(), number, Mux(self.a[0], number, self.a.as_signed()))):
            m.d.comb += [getattr(self, f"{kind}_bit").eq(value.bit_select(self.offset, self._width)),
                         getattr(self, f"{kind}_word").eq(value.word_select(self.offset, self._width))]
        return m


KINDS = ("plain", "as_signed", "signal", "choice")


@pytest.mark.parametrize("width", on_one([5, 1, 9, 64, 70], 5, 70))
@pytest.mark.parametrize("offset", [3, 70])
def test_a_part_beyond_its_value_is_zero(width, offset):
    """As in the Verilog: a signed value is extended to the part's width, and zeros follow. No offset wraps."""
    design = build_component(lambda: Parts(width, offset), "parts")
    cases = [(a, at) for a in range(32) for at in (*range(8), *(1 << offset - 1 - n for n in range(3)),
                                                   (1 << offset) - 1, ((1 << 64) // width) % (1 << offset))]
    ports = design.ports
    rows = np.zeros((len(cases), ports.input_words), np.uint64)
    for row, (a, at) in zip(rows, cases):
        row[ports.inputs["a"].offset] = a
        for word in range(ports.inputs["offset"].words):
            row[ports.inputs["offset"].offset + word] = at >> 64 * word & (1 << 64) - 1
    with Simulator(design) as compiled:
        outputs = compiled.run(rows)
    for (a, at), row in zip(cases, outputs):
        number = a - 32 * (a >> 4)
        for kind in KINDS:
            extended = a if kind == "plain" else number & (1 << max(5, width)) - 1
            for how, first in (("bit", at), ("word", at * width)):
                expected = extended >> min(first, 200) & (1 << width) - 1
                assert fuzz.number(row, ports.outputs[f"{kind}_{how}"]) == expected, (kind, how, a, at)
        assert fuzz.number(row, ports.outputs["right"]) == number >> min(at, 200) & 31


def run(*arguments: str) -> tuple[int, str]:
    app = typer.Typer()
    app.command()(fuzz.main)
    result = CliRunner().invoke(app, list(arguments))
    return result.exit_code, result.output


def test_random_designs_are_equal(seed):
    """Random operators, arrays, memories and resets: compiled RTL and Amaranth's simulator agree per cycle."""
    code, told = run("--seed", str(100 * seed), "--cases", "6", "--verilator", "0")
    assert code == 0 and re.search(r"[3-6] designs equal, 0 of them", told), told


@pytest.mark.slow
def test_random_designs_are_equal_in_verilator(seed):
    """A few of them; `make fuzz` runs longer."""
    code, told = run("--seed", str(100 * seed + 6), "--cases", "30", "--verilator", "15")
    assert code == 0 and re.search(r"[23]\d designs equal, [12] of them", told), told


def test_a_seed_is_a_design():
    assert fuzz.draw(5).text == fuzz.draw(5).text != fuzz.draw(6).text
    drawn = "\n".join(fuzz.draw(seed).text for seed in range(60))
    for word in ("Array", "Cat(", "bit_select", "word_select", "replicate", "m.If", "m.Elif", "m.Else", "m.Switch",
                 "m.Default", 'domain="comb"', 'domain="sync"', "transparent_for=[w", "granularity=8", "= Part0()",
                 "ResetInserter", "EnableInserter", "reset_less", "signed(150)", "unsigned(1)", " // ", " % ", " * "):
        assert word in drawn


#: A mistake in what a node computes: its operator, and the C++ that is wrong.
MISTAKES = {
    "-": lambda text: text.replace(" - ", " + "),
    "s>>": lambda text: text.replace(">> (", ">> 1 + 0 * ("),
    "u<": lambda text: text.replace(" < ", " <= "),
    "^": lambda text: text.replace(" ^ ", " | "),
    "r^": lambda text: f"!{text}",
    "s<=": lambda text: text.replace(" <= ", " < "),
    "part": lambda text: text.replace("part<", "1 + part<"),
    "u%": lambda text: text.replace(" : 0", " : 1"),
    "match": lambda text: "0",
}


@pytest.mark.parametrize("operator", on_one(MISTAKES))
def test_a_wrong_operator_is_found_in_seconds(operator, monkeypatch):
    """And the smallest design that shows it is printed with the command that repeats it."""
    right, broken = Expressions.node, _must_change(MISTAKES[operator])

    def wrong(self, number: int) -> str:
        text = right(self, number)
        return broken(text) if self.graph.nodes[number].op == operator else text

    monkeypatch.setattr(Expressions, "node", wrong)
    _found(monkeypatch)


@pytest.mark.slow
def test_a_wrong_memory_is_found(monkeypatch):
    """A write port that ignores its enable by bit."""
    right, broken = GraphWriter.write, _must_change(lambda text: re.sub(r" & s\.e\S+;", ";", text))
    monkeypatch.setattr(GraphWriter, "write", lambda self, *where: (
        broken("\n".join(right(self, *where))).splitlines()))
    _found(monkeypatch)


def _must_change(change: Callable[[str], str]) -> Callable[[str], str]:
    """Return the change; it fails if the first 20 texts have nothing to be changed, because no design would show it."""
    changed: list[bool] = []

    def checked(text: str) -> str:
        broken = change(text)
        changed.append(broken != text)
        assert any(changed) or len(changed) < 20, f"there is nothing to change in {text!r}"
        return broken

    return checked


def _found(monkeypatch) -> None:
    monkeypatch.setattr(fuzz, "_SHRINK_SECONDS", 20)
    told: list[tuple[float, str]] = []
    start = time.monotonic()
    tally = fuzz.fuzz(range(1, 31), lambda line: told.append((time.monotonic() - start, line)), 0)
    (seconds, first), (_, smallest) = told
    print(f"found after {seconds:.0f} s")
    assert tally.failed == tally.equal + tally.refused + 1 < 30
    assert f"FAILED: seed {tally.failed}: " in first
    assert f"Repeat with: make fuzz SEED={tally.failed} CASES=1" in smallest
    assert len(smallest.splitlines()) < len(fuzz.draw(tally.failed).text.splitlines())
    assert "class Top(wiring.Component):" in smallest and " in the compiled RTL, " in smallest
