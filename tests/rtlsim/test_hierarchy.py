"""Equal components are one module, which is written once; what differs in anything is another."""

import pytest
from amaranth import Module, Mux, Signal
from amaranth.back import rtlil
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out

from t3sim.rtl.gpu_top import GpuTop
from t3sim.rtlsim import hierarchy
from t3sim.rtlsim.hierarchy import rtlil_modules
from t3sim.testbenches.geometries import GEOMETRIES
from tests.support.tiers import on_one

pytestmark = pytest.mark.builds_rtl


class Part(wiring.Component):
    """A counter and a memory, of which `change` says what is not as usual."""

    def __init__(self, change: str = "") -> None:
        super().__init__({"step": In(8), "total": Out(8), "row": Out(4)})
        self._change = change

    def elaborate(self, platform) -> Module:
        m, change = Module(), self._change
        count = Signal(9 if change == "width" else 8, init=change == "initial value", reset_less=change == "no reset",
                       name="counter" if change == "name" else "count", attrs={"keep": 1} if change == "mark" else {})
        other = Signal.like(count, name=count.name)
        m.d.sync += count.eq(count - self.step if change == "operator" else count + self.step)
        m.d.sync += other.eq(count)
        m.d.comb += self.total.eq(Mux(self.step[0], count, count if change == "one register for two" else other))
        content = [1, 2, 3, 5 if change == "content" else 4]
        m.submodules.rows = rows = memory.Memory(shape=4, depth=4, init=content)
        read = rows.read_port(domain="comb" if change == "unclocked" else "sync")
        m.d.comb += [read.addr.eq(count), self.row.eq(read.data)]
        return m


class Two(wiring.Component):
    def __init__(self, change: str) -> None:
        super().__init__({"steps": In(8).array(2), "totals": Out(8).array(2), "rows": Out(4).array(2)})
        self._change = change

    def elaborate(self, platform) -> Module:
        m = Module()
        for number, change in enumerate(("", self._change)):
            m.submodules[f"part_{number}"] = part = Part(change)
            m.d.comb += [part.step.eq(self.steps[number]), self.totals[number].eq(part.total),
                         self.rows[number].eq(part.row)]
        return m


@pytest.fixture
def written(monkeypatch) -> list[str]:
    """Gives what is written of an elaborated component."""
    convert, texts = rtlil.convert_fragment, []

    def noted(*arguments, **options):
        text = convert(*arguments, **options)
        texts.append(text[0])
        return text
    monkeypatch.setattr(rtlil, "convert_fragment", noted)
    return texts


def test_equal_parts_are_written_once(written):
    _, tree = rtlil_modules(Two(""), "two")
    assert len(written) == 2 and tree.instances == {"two": {"part_0": "part", "part_1": "part"}, "part": {}}


@pytest.mark.parametrize("change", ["width", "initial value", "no reset", "name", "mark", "operator", "content",
                                    "one register for two", "unclocked"])
def test_any_difference_is_another_module(written, change):
    _, tree = rtlil_modules(Two(change), "two")
    assert len(written) == 3 and tree.instances["two"] == {"part_0": "part", "part_1": "part_2"}


@pytest.mark.parametrize("geometry", on_one(GEOMETRIES, "small"))
def test_the_text_is_as_if_all_were_written(written, geometry, monkeypatch):
    once = rtlil_modules(GpuTop(GEOMETRIES[geometry]), "gpu_top")
    assert len(set(written)) == len(written) == len(once[1].instances)
    monkeypatch.setattr(hierarchy, "_contents", lambda _: (object(),))
    assert rtlil_modules(GpuTop(GEOMETRIES[geometry]), "gpu_top") == once
