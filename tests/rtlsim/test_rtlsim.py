"""The compiler's own interface, as its page shows it."""

import re
import stat
import subprocess
import sys
from dataclasses import replace
from itertools import count, islice
from pathlib import Path

import pytest
from amaranth import ClockDomain, ClockSignal, Instance, Module, Signal, signed
from amaranth.lib import data, fifo, stream, wiring
from amaranth.lib.wiring import In, Out
from vcd.reader import TokenKind, tokenize

from t3sim import rtlsim
from t3sim.base.errors import BadInput, Failure
from t3sim.rtl.blocks import BLOCKS
from t3sim.rtlsim.amaranth_backend import AmaranthBackend
from t3sim.rtlsim.toolchain import ToolchainError
from t3sim.testbenches import fuzz
from t3sim.testbenches.geometries import GEOMETRIES

pytestmark = pytest.mark.builds_rtl
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "simulate-your-own-design.md"


def test_the_pages_example_prints_what_it_says():
    program, output, *_ = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (ran.stdout, ran.returncode) == (output, 0), ran.stderr


@pytest.fixture(scope="module")
def design():
    return rtlsim.compile(BLOCKS["line_router"](GEOMETRIES["small"]))


def test_fields_are_set_and_read_by_name(design):
    with design.simulator() as router:
        fields = [f"{port.name}.{leaf}" for port in design.ports.inputs.values() for leaf in port.fields]
        assert len(fields) > 5
        for name in fields:
            router.set(name, 1)
            if name in design.ports.below:
                continue
            assert router.get(name) == 1
            port, lsb, width = design.ports.place(name)
            router.set(name, -1)
            assert router.get(name) == (1 << width) - 1
            assert int(router.inputs[port.offset]) == (1 << width) - 1 << lsb & (1 << 64) - 1
            router.set(name, 0)
            assert not router.inputs.any(), name


def test_names_and_values_that_cannot_be_are_refused(design):
    output = next(iter(design.ports.outputs))
    name, port = next(iter(design.ports.inputs.items()))
    with design.simulator() as router:
        with pytest.raises(KeyError):
            router.set("nothing", 0)
        for wrong, value in ((output, 0), (name, 1 << port.width), (name, -1 << port.width)):
            with pytest.raises(ValueError):
                router.set(wrong, value)
        assert not router.inputs.any()


PAIR = data.StructLayout({"tag": 3, "ends": data.ArrayLayout(signed(4), 2),
                          "body": data.StructLayout({"last": 1, "number": 70})})


class Queued(wiring.Component):
    """A queue of Amaranth's library around which all is named."""

    work: In(stream.Signature(PAIR))
    done: Out(stream.Signature(PAIR))

    def elaborate(self, platform) -> Module:
        m = Module()
        m.submodules.queue = queue = fifo.SyncFIFOBuffered(width=PAIR.size, depth=8)
        front = Signal(PAIR)
        tags = Signal(8)
        m.d.sync += tags.eq(tags + self.work.p.tag)
        m.d.comb += [queue.w_data.eq(self.work.p), queue.w_en.eq(self.work.valid), self.work.ready.eq(queue.w_rdy),
                     front.eq(queue.r_data), self.done.p.eq(front), self.done.valid.eq(queue.r_rdy),
                     queue.r_en.eq(self.done.ready)]
        return m


@pytest.fixture(scope="module")
def queued():
    return rtlsim.compile(Queued(), inner="*")


FIRST = {"tag": 5, "ends": {0: 13, 1: 2}, "body": {"last": 1, "number": 1 << 69}}


def test_what_is_inside_is_read_by_name(queued):
    with queued.simulator() as top:
        top.set("work", {"valid": 1, "payload": {**FIRST, "ends": {0: -3, 1: 2}}})
        assert top.get("work") == {"valid": 1, "payload": FIRST, "ready": 1}
        top.step(3)
        assert (top.get("queue.level"), top.get("tags"), top.get("front")) == (3, 15, FIRST)
        assert top.get("front.body.number") == 1 << 69 and top.get("queue")["level"] == 3
        with pytest.raises(ValueError, match="queue.level is no input"):
            top.set("queue.level", 0)
        with pytest.raises(KeyError, match="no port, field or shown signal 'queue.levle'; close to it: queue.level"):
            top.get("queue.levle")


def test_words_of_memories_are_read_and_written(queued):
    memory = queued.ports.memories["queue.storage"]
    with queued.simulator() as top:
        top.set("work.valid", 1)
        for number in range(4):
            top.set("work.payload", {"body": {"number": number}})
            top.step()
        assert [top.get(f"queue.storage[{n}]") >> 12 for n in range(4)] == [0, 1, 2, 3]
        top.set("queue.storage[1]", -1)
        top.set("work.valid", 0)
        top.set("done.ready", 1)
        top.step()
        assert top.get("done.payload.body.number") == (1 << 70) - 1  # what reads it has noticed
        assert top.get("queue.storage[1]") == (1 << memory.width) - 1
        for wrong, error in ((f"queue.storage[{memory.depth}]", KeyError), ("queue.storage[-1]", KeyError)):
            with pytest.raises(error, match="has words 0 to 6"):
                top.get(wrong)
        with pytest.raises(ValueError, match="82 bits"):
            top.set("queue.storage[0]", 1 << 82)


def waves_of(path: Path, start: float, step: float, count: int) -> dict[str, list[int]]:
    """Read a VCD file: by name the values at `count` times."""
    names, now, scope, found, sampled = {}, {}, [], {}, 0

    def sample(until: float) -> None:
        nonlocal sampled
        while sampled < count and start + sampled * step < until:
            for name, value in now.items():
                found.setdefault(name, []).append(value)
            sampled += 1

    with path.open("rb") as file:
        for token in tokenize(file):
            if token.kind is TokenKind.SCOPE:
                scope.append(token.scope.ident)
            elif token.kind is TokenKind.UPSCOPE:
                scope.pop()
            elif token.kind is TokenKind.VAR:
                names.setdefault(token.var.id_code, []).append(".".join([*scope, token.var.reference]))
            elif token.kind is TokenKind.CHANGE_TIME:
                sample(token.time_change)
            elif token.kind in (TokenKind.CHANGE_SCALAR, TokenKind.CHANGE_VECTOR):
                change = token.scalar_change if token.kind is TokenKind.CHANGE_SCALAR else token.vector_change
                for name in names[change.id_code]:
                    now[name] = int(change.value, 2) if isinstance(change.value, str) else change.value
    sample(float("inf"))
    return found


def test_inner_signals_and_waves_are_those_of_amaranths_simulator(seed, tmp_path):
    """Of random designs, every signal by its path, at every cycle."""
    cycles, compared = 60, 0
    for drawn in islice((one for one in map(fuzz.draw, count(100 * seed)) if "second" not in one.text), 3):
        number = drawn.seed
        top = rtlsim.compile(drawn.factory()(), "top", inner="*", cache=tmp_path / "cache")
        rows = fuzz.stimulus(top.ports, number, cycles)
        theirs = drawn.factory()()
        plain = replace(top.ports, outputs={name: port for name, port in top.ports.outputs.items()
                                            if name in theirs.signature.members})
        with AmaranthBackend(theirs, plain, tmp_path / "theirs.vcd") as amaranth:
            amaranth.run(rows)
        with top.simulator() as simulator, simulator.waves(tmp_path / "ours.vcd"):
            shown = simulator.run(rows)
        ours = waves_of(tmp_path / "ours.vcd", 1, 2, cycles)
        theirs = waves_of(tmp_path / "theirs.vcd", 0.6e6, 1e6, cycles)  # its edges are at odd half nanoseconds
        for name, port in top.ports.outputs.items():
            if re.fullmatch(r"(.*\.)?[sr]\d+(__data)?", name):  # what is in one module only has the same name in both
                values = ours[f"top.{name}"]
                assert values == theirs[f"bench.top.dut.{name}"], (number, name)
                assert values == [fuzz.number(row, port) for row in shown]
                compared += 1
    assert compared > 20


@pytest.mark.parametrize("what, message", [
    ("instance", r"test_rtlsim.py:\d+: foreign: an instance of black_box, which is not Amaranth"),
    ("gated", r"test_rtlsim.py:\d+: foreign: a clock that the design makes itself is not simulated")])
def test_what_is_not_supported_is_named_with_file_and_line(what, message):
    class Foreign(wiring.Component):
        data: In(8)
        out: Out(8)

        def elaborate(self, platform) -> Module:
            m = Module()
            if what == "instance":
                m.submodules.box = Instance("black_box", i_a=self.data, o_b=self.out)
            else:
                m.domains.gated = gated = ClockDomain(reset_less=True)
                m.d.comb += gated.clk.eq(ClockSignal() & self.data[0])
                m.d.gated += self.out.eq(self.data)
            return m

    with pytest.raises(Failure, match=message):
        rtlsim.compile(Foreign())


def test_a_cache_of_ones_own(queued, tmp_path, capfd):
    tmp_path.chmod(0o755)
    made = rtlsim.compile(Queued(), inner="queue.level", cache=tmp_path / "mine")
    assert made.path.is_relative_to(tmp_path / "mine") and "queue.level" in made.ports.outputs
    assert rtlsim.compile(Queued(), inner="queue.level", cache=tmp_path / "mine").path == made.path
    (tmp_path / "file").write_text("")
    assert rtlsim.compile(Queued(), inner="tags", cache=tmp_path / "file").simulator().get("tags") == 0
    (tmp_path / "mine").chmod(0o777)
    with pytest.raises(BadInput, match="others may write there"):
        rtlsim.compile(Queued(), cache=tmp_path / "mine")


def test_a_compiler_that_fails_leaves_the_source(tmp_path, monkeypatch):
    compiler = tmp_path / "c++"
    compiler.write_text("#!/bin/sh\n[ $# = 1 ] && echo 14.2 && exit\necho 'design.cpp:1: error: no'\nexit 1\n")
    compiler.chmod(compiler.stat().st_mode | stat.S_IXUSR)
    from t3sim.rtlsim.toolchain import compiler_command
    monkeypatch.setenv("CXX", str(compiler))
    compiler_command.cache_clear()
    try:
        with pytest.raises(ToolchainError, match=r"design.cpp:1: error: no The source is kept: (.*)") as failed:
            rtlsim.compile(Queued(), cache=tmp_path / "cache")
    finally:
        monkeypatch.undo()
        compiler_command.cache_clear()
    source = Path(str(failed.value).rpartition(" ")[2])
    assert "struct Top" in source.read_text()
    source.unlink()
    source.parent.rmdir()
