"""Amaranth designs drawn at random, compiled and compared cycle by cycle: `make fuzz MINUTES=10`.

A design is drawn from one number: values of 1 to 150 bits, signed and unsigned, every operator, slices, parts,
concatenations, arrays, If and Switch, memories, modules that exist several times, resets, a second clock, which may
fall or have an asynchronous reset. It is text, so the smallest design that fails is printed as a program.
The compiled RTL has to equal Amaranth's own simulator and, for some seeds,
Verilator, whose Verilog is what becomes hardware. Designs leave out what the two are known to answer differently
(Amaranth 0.5.10):

- Parts (`bit_select`) beyond the highest bit of a signed value, or of a number that Amaranth's simulator keeps with
  more bits than the value has, as of `~x`: there it gives sign bits, the hardware zeros.
- A registered read port of a memory during a reset: Amaranth's simulator clears its data, the hardware keeps them.
- A register without reset in a domain with an asynchronous one: there the reset's edge acts on it as a clock's.
- Edges of two clocks at once, of which one is assigned from a port: there it comes later than the other.
- Two writes to one address of a memory in one cycle, which no language defines.
"""

import ast
import os
import random
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import count, islice
from typing import Annotated, NamedTuple

import numpy as np
import typer
from amaranth import hdl
from amaranth.hdl import UnusedElaboratable
from amaranth.lib import wiring

from t3sim.cosim.cocotb_run import build_simulation, replay_cocotb
from t3sim.cosim.component import build_component
from t3sim.cosim.verilog import generate_verilog
from t3sim.rtlsim import compile, graph
from t3sim.rtlsim.amaranth_backend import AmaranthBackend
from t3sim.rtlsim.graph import UnsupportedDesign
from t3sim.rtlsim.port_map import RESET, Port, PortMap
from t3sim.rtlsim.simulator import Backend, Simulator

HEAD = """\
from amaranth.hdl import *
from amaranth.lib import memory, wiring
from amaranth.lib.wiring import In, Out
"""
NAMES: dict = {}
exec(HEAD, NAMES)
_WIDTHS = (1, 1, 2, 3, 5, 8, 13, 16, 31, 32, 33, 47, 63, 64, 65, 80, 100, 126, 127, 128, 129, 150)
_WIDEST, _WIDEST_NUMBER = max(_WIDTHS), 128  # products, quotients and signed numbers end at 128 bits
_CYCLES = 200
_SHRINK_SECONDS = 120
VERILATOR_EVERY = 25  #: seeds: Verilator takes twenty times as long as all else


@dataclass(frozen=True)
class RandomDesign:
    """A program whose class `Top` is a component."""

    seed: int  #: of what was drawn, and of the inputs
    text: str
    apart: bool  #: whether modules that exist twice stay graphs of their own, small as they are

    def factory(self) -> Callable[[], wiring.Component]:
        names: dict = {}
        exec(self.text, names)
        return names["Top"]


class Drawing:
    """A component as it is drawn, as text.

    Its values are driven in their order. What drives one reads inputs, values before it and all registers; what drives
    a register reads any value.
    """

    def __init__(self, rng: random.Random, name: str, values: int, below: list["Drawing"], beyond: bool,
                 domain: str = "") -> None:
        self._rng, self._beyond, self._below = rng, beyond, below
        self.name, self.inputs = name, [f"i{n}" for n in range(rng.randint(3, 7))]
        self._values = [f"s{n}" for n in range(values)]
        shapes = {value: f"{rng.choice(['unsigned', 'unsigned', 'signed'])}({rng.choice(_WIDTHS)})"
                  for value in (*self.inputs, *self._values)}
        self._signals = {value: hdl.Signal(eval(shape, NAMES)) for value, shape in shapes.items()}
        self._registers = {value for value in self._values if rng.random() < 0.3}
        self._in_second = {value for value in self._values if domain and rng.random() < 0.5}
        self._always_reset = self._in_second if "async" in domain else set()
        self._driven = 0
        lines: list[str] = []
        while self._driven < values:
            step = rng.choice([self._assigned] * 8 + [self._branches] * 4 + [self._either, self._inserted, self._memory]
                              + [self._instance] * 3 * bool(below))
            driven, more = step(self._values[self._driven:])
            self._driven += driven
            lines += more
        self.outputs = rng.sample(self._values, min(values, rng.randint(2, 12)))
        own = domain not in ("", "plain")
        if own:
            lines = [f"m.domains.second = ClockDomain({domain})",
                     "m.d.comb += ClockSignal('second').eq(self.second_clk)",
                     "m.d.comb += ResetSignal('second').eq(self.second_rst)", *lines]
        self.text = "\n".join([
            f"class {name}(wiring.Component):",
            *(f"    {one}: In({shapes[one]})" for one in self.inputs),
            *(f"    second_{pin}: In(1)" for pin in ("clk", "rst") if own),
            *(f"    o{one}: Out({shapes[one]})" for one in self.outputs),
            "",
            "    def elaborate(self, platform):",
            "        m = Module()",
            *(f"        {one} = self.{one}" for one in self.inputs),
            *(f"        {one} = Signal({shapes[one]}{self._initial(one)})" for one in self._values),
            *(f"        {line}" for line in lines),
            *(f"        m.d.comb += self.o{one}.eq({one})" for one in self.outputs),
            "        return m", ""])

    def _initial(self, value: str) -> str:
        if value not in self._registers:
            return ""
        width = len(self._signals[value])
        least = -(1 << width - 1) if self._signals[value].shape().signed else 0
        init = f", init={least + self._rng.getrandbits(width)}"
        return init + self._rng.choice(["", "", "" if value in self._always_reset else ", reset_less=True"])

    # Expressions: texts, with what `_value` makes of them.

    def _value(self, text: str) -> hdl.Value:
        return hdl.Value.cast(eval(text, NAMES, self._signals))

    def _any(self, depth: int = 1, after: bool = False) -> str:
        """Draw a value; `after`: also one whose step comes later."""
        rng = self._rng
        if depth and rng.random() < 0.4:
            return self._expression(depth - 1, after)
        if rng.random() < 0.06:
            width = rng.choice(_WIDTHS)
            return f"Const({rng.choice([0, 1, (1 << width) - 1, rng.getrandbits(width)])}, {width})"
        known = [*self.inputs, *self._values[:self._driven]]
        text = rng.choice(known + (self._values if after else sorted(self._registers)))
        return f"{text}.as_{rng.choice(['signed', 'unsigned'])}()" if rng.random() < 0.15 else text

    def _bits(self, most: int, least: int = 1, **how) -> str:
        """Draw an unsigned value of `least` to `most` bits."""
        text = f"Cat({self._any(**how)})"
        width = len(self._value(text))
        if width < least:
            return f"Cat({text}, Const({self._rng.getrandbits(least)}, {least}))[:{least}]"
        if width <= most:
            return text
        first = self._rng.choice([0, self._rng.randint(0, width - most)])
        return f"{text}[{first}:{first + most}]"

    def _number(self, most: int, **how) -> str:
        """Draw a signed or unsigned value of at most `most` bits, or of more where a design may be refused."""
        text = self._any(**how)
        if len(self._value(text)) <= most or self._beyond and self._rng.random() < 0.1:
            return text
        return self._bits(most, **how) + self._rng.choice(["", ".as_signed()"])

    def _expression(self, depth: int, after: bool) -> str:
        rng, how = self._rng, {"depth": depth, "after": after}

        def any_() -> str:
            return self._any(**how)

        def number(most: int = _WIDEST_NUMBER - 2) -> str:
            return self._number(most, **how)

        kind = rng.choice(("sum", "sum", "bits", "not", "minus", "product", "quotient", "left", "right", "order",
                           "equal", "all", "choice", "joined", "repeated", "slice", "part", "signed part", "array",
                           "matches", "turned"))
        match kind:
            case "sum":
                text = f"({any_()} {rng.choice('+-')} {any_()})"
            case "bits":
                text = f"({any_()} {rng.choice('&|^')} {any_()})"
            case "not":
                text = f"(~{any_()})"
            case "minus":
                text = f"(-{any_()})" if rng.random() < 0.7 else f"abs({any_()})"
            case "product":
                text = f"({number(63)} * {number(63)})"
            case "quotient":
                one, other = rng.choice([[self._bits(_WIDEST_NUMBER, **how) for _ in range(2)], [number(), number()]])
                text = f"({one} {rng.choice(['//', '%'])} {other})"
            case "left":
                text = f"({any_()} << {self._bits(rng.choice([1, 3, 6]), **how)})"
            case "right":
                by = self._bits(rng.choice([1, 3, 6, 7, 8, 64, 80]), **how)
                text = f"({rng.choice([number, lambda: self._bits(_WIDEST, **how)])()} >> {by})"
            case "order":
                text = f"({number()} {rng.choice(['<', '<=', '>', '>='])} {number()})"
            case "equal":
                one = any_()
                text = f"({one} {rng.choice(['==', '!='])} {rng.choice([any_(), one, f'({one} ^ 1)'])})"
            case "all":
                text = f"{any_()}.{rng.choice(['any', 'all', 'xor', 'bool'])}()"
            case "choice":
                text = f"Mux({any_()}, {any_()}, {any_()})"
            case "joined":
                text = f"Cat({', '.join(any_() for _ in range(rng.randint(1, 4)))})"
            case "repeated":
                text = f"{self._bits(9, **how)}.replicate({rng.randint(1, 20)})"
            case "slice":
                text = any_()
                first = rng.randrange(len(self._value(text)))
                text = f"{text}[{first}:{rng.randint(first + 1, len(self._value(text)))}]"
            case "part" | "signed part":
                one = self._bits(_WIDEST, **how)
                width = rng.choice([1, 2, 7, 64, 65, 150])
                if kind == "signed part":
                    one, width = f"{one}.as_signed()", min(width, len(self._value(one)))
                offset = self._bits(rng.choice([1, 3, 6, 8, 8, 64, 80]), **how)
                text = f"{one}.{rng.choice(['bit', 'word'])}_select({offset}, {width})"
            case "array":
                ones = ", ".join(any_() for _ in range(rng.randint(1, 5)))
                text = f"Array([{ones}])[{self._bits(3, **how)}]"
            case "matches":
                one = self._bits(rng.choice([3, 9, 70]), **how)
                text = f"{one}.matches({self._patterns(len(self._value(one)), 3)})"
            case "turned":
                method = f"{rng.choice(['rotate', 'shift'])}_{rng.choice(['left', 'right'])}"
                text = f"{any_()}.{method}({rng.randint(0, 70)})"
        width = len(self._value(text))
        return text if 0 < width <= _WIDEST else f"{text}[:{_WIDEST}]" if width else "Const(1, 1)"

    def _patterns(self, width: int, most: int) -> str:
        dashes = self._rng.choice([0.1, 0.5, 0.9])
        return ", ".join(repr("".join("-" if self._rng.random() < dashes else self._rng.choice("01")
                                      for _ in range(width))) for _ in range(self._rng.randint(1, most)))

    # Steps.

    def _assigned(self, values: list[str]) -> tuple[int, list[str]]:
        return 1, [f"{self._into(values[0])}.eq({self._any(2, self._late(values[0]))})"]

    def _late(self, value: str) -> bool:
        return value in self._registers

    def _into(self, value: str, target: str | None = None, module: str = "m") -> str:
        clocked = "second" if value in self._in_second else "sync"
        return f"{module}.d.{clocked if value in self._registers else 'comb'} += {target or value}"

    def _branches(self, values: list[str]) -> tuple[int, list[str]]:
        return 1, [*self._body(values[0]), *self._body(values[0], 2)]

    def _body(self, value: str, depth: int = 0) -> Iterator[str]:
        """Write an assignment to a value or to bits of it, or branches with such."""
        rng, width, late = self._rng, len(self._signals[value]), {"after": self._late(value)}
        kind = rng.choice(["if", "if", "switch"]) if depth else rng.choice(["all", "all", "slice", "part", "joined"])
        match kind:
            case "if":
                for branch in ("If", *("Elif",) * rng.randint(0, 2), "Else")[:rng.randint(1, 4)]:
                    yield f"with m.{branch}({'' if branch == 'Else' else self._bits(_WIDEST, **late)}):"
                    for _ in range(rng.randint(1, 2)):
                        yield from (f"    {line}" for line in self._body(value, rng.randint(0, depth - 1)))
            case "switch":
                subject = self._bits(rng.choice([1, 3, 5, 70]), **late)
                width = len(self._value(subject))
                cases = [f"m.Case({self._patterns(width, 3)})" for _ in range(rng.randint(1, 9))]
                if width > 5:  # of two wide patterns with dashes Yosys makes thousands
                    cases = [f"m.Case({self._patterns(width, 1)})"]
                if rng.random() < 0.3:
                    cases = [f"m.Case({n})" for n in rng.sample(range(min(16, 1 << width)), min(8, 1 << width))]
                yield f"with m.Switch({subject}):"
                for case in [*cases, *["m.Default()"] * rng.randint(0, 1)]:
                    yield f"    with {case}:"
                    yield from (f"        {line}" for line in self._body(value, rng.randint(0, depth - 1)))
            case "all":
                yield f"{self._into(value)}.eq({self._any(**late)})"
            case "slice":
                first = rng.randrange(width)
                yield f"{self._into(value)}[{first}:{rng.randint(first + 1, width)}].eq({self._any(**late)})"
            case "part":
                select = f"{rng.choice(['bit', 'word'])}_select({self._bits(5, **late)}, {rng.choice([1, 3, 20])})"
                yield f"{self._into(value)}.{select}.eq({self._any(**late)})"
            case "joined":
                at = rng.randrange(width)
                yield f"{self._into(value, f'Cat({value}[{at}:], {value}[:{at}])')}.eq({self._any(**late)})"

    def _either(self, values: list[str]) -> tuple[int, list[str]]:
        """Assign to one of an array."""
        some = values[:self._rng.randint(1, 3)]
        if self._registers & set(some):
            self._registers |= set(some)
        late = {"after": self._late(some[0])}
        into = self._into(some[0], f"Array([{', '.join(some)}])[{self._bits(2, **late)}]")
        return len(some), [f"{into}.eq({self._any(**late)})"]

    def _inserted(self, values: list[str]) -> tuple[int, list[str]]:
        """Assign to a register with a reset or an enable of its own."""
        value, inner = values[0], f"x{values[0][1:]}"
        self._registers.add(value)
        inserter = self._rng.choice(["ResetInserter", "EnableInserter"])
        return 1, [f"{inner} = Module()", f"{self._into(value, module=inner)}.eq({self._any(2, True)})",
                   f"m.submodules.{inner} = {inserter}({self._any()}.any())({inner})"]

    def _memory(self, values: list[str]) -> tuple[int, list[str]]:
        rng, reads = self._rng, values[:2]
        number = reads[0][1:]
        width, depth = rng.choice([1, 8, 40, 64, 70, 140]), rng.choice([1, 2, 3, 8, 13, 100])
        ram, writes = f"m{number}", [f"w{number}_{n}" for n in range(rng.randint(1, min(2, depth)))]
        bits = max(1, (depth - 1).bit_length())
        init = [rng.getrandbits(width) for _ in range(rng.randint(0, depth))]
        lines = [f"m.submodules.{ram} = {ram} = memory.Memory(shape={width}, depth={depth}, init={init})"]
        for n, port in enumerate(writes):
            grain = rng.choice([None, None, *(grain for grain in (1, 4, 8, 35) if width % grain == 0)])
            address = self._bits(bits, bits)
            if len(writes) == 2:  # even and odd ones
                address = f"Cat(Const({n}, 1), {address})"
            lines += [f"{port} = {ram}.write_port(granularity={grain})", f"m.d.comb += {port}.addr.eq({address})",
                      f"m.d.comb += {port}.data.eq({self._any()})", f"m.d.comb += {port}.en.eq({self._any()})"]
        for value in reads:
            port, late = f"r{value[1:]}", rng.random() < 0.5
            seen = ", ".join(rng.sample(writes, rng.randint(0, len(writes))))
            where = f'domain="sync", transparent_for=[{seen}]' if late else 'domain="comb"'
            lines += [f"{port} = {ram}.read_port({where})", f"m.d.comb += {port}.addr.eq({self._any()})",
                      *([f"m.d.comb += {port}.en.eq({self._bits(1)} | ResetSignal())"] if late else []),
                      f"{self._into(value)}.eq({port}.data)"]
        return len(reads), lines

    def _instance(self, values: list[str]) -> tuple[int, list[str]]:
        """Instantiate a component once or a few times."""
        part, driven, lines = self._rng.choice(self._below), 0, []
        for n in range(self._rng.randint(1, 4)):
            name, outputs = f"p{values[0][1:]}_{n}", list(zip(values[driven:], part.outputs))
            if outputs:
                lines += [f"m.submodules.{name} = {name} = {part.name}()",
                          *(f"m.d.comb += {name}.{port}.eq({self._any()})" for port in part.inputs),
                          *(f"{self._into(value)}.eq({name}.o{output})" for value, output in outputs)]
            driven += len(outputs)
        return driven, lines


def draw(seed: int) -> RandomDesign:
    """Draw a design; one of twenty may have operators on more bits than are compiled, and be refused."""
    rng = random.Random(seed)
    beyond, parts = rng.random() < 0.05, []
    for n in range(rng.choice([0, 0, 1, 2])):
        parts.append(Drawing(rng, f"Part{n}", rng.randint(2, 8), list(parts), beyond))
    domain = rng.choice(["", "", "", "plain", "async_reset=True", "clk_edge='neg'"])
    parts.append(Drawing(rng, "Top", rng.randint(3, 40), list(parts), beyond, domain))
    return RandomDesign(seed, "\n".join([HEAD, *(part.text for part in parts)]), rng.random() < 0.5)


def stimulus(ports: PortMap, seed: int, cycles: int = _CYCLES) -> np.ndarray:
    """Draw inputs, each from the seed and its name: held, random, all zeros or ones, a small number, or one bit."""
    rows = np.zeros((cycles, ports.input_words), np.uint64)
    for port in ports.inputs.values():
        rng, now = random.Random(f"{seed} {port.name}"), 0
        for row in rows:
            if port.name.endswith(RESET):
                now = int(rng.random() < 0.03)
            elif rng.random() < 0.6:
                ones = (1 << port.width) - 1
                now = rng.choice([rng.getrandbits(port.width), rng.getrandbits(port.width), 0, ones, rng.getrandbits(3),
                                  1 << rng.randrange(port.width), ones - rng.getrandbits(3)]) & ones
            for word in range(port.words):
                row[port.offset + word] = now >> 64 * word & (1 << 64) - 1
    return rows


class Fault(NamedTuple):
    """A design that failed, and how."""

    kind: str  #: the simulator that differs, or the exception
    port: str | None  #: the first output that differs
    text: str


def fault_of(design: RandomDesign, verilator: bool) -> Fault | None:
    """Compile and compare a design. Raises UnsupportedDesign where the compiler refuses it."""
    try:
        return _difference(design, verilator)
    except (UnsupportedDesign, KeyboardInterrupt):
        raise
    except Exception as error:  # a design that was drawn has to compile
        return Fault(type(error).__name__, None, traceback.format_exc())


def _run(backend: Backend, rows: np.ndarray, design: RandomDesign) -> np.ndarray:
    """Run rows of inputs; of several clocks, a part has its edge in each cycle."""
    clocks, rng = backend.ports.clocks, random.Random(design.seed)
    most = 1 if "ClockDomain(" in design.text else len(clocks)
    if not clocks:
        return backend.run(rows)
    outputs = np.zeros((len(rows), backend.ports.output_words), np.uint64)
    for row, shown in zip(rows, outputs):
        backend.inputs[:len(row)] = row
        backend.step(1, *rng.sample(clocks, rng.randint(1, most)))
        shown[:] = backend.outputs[:len(shown)]
    return outputs


def _difference(design: RandomDesign, verilator: bool) -> Fault | None:
    factory = design.factory()
    if ".d.second" in design.text:
        library, verilator = compile(factory(), "top"), False
    else:
        with _apart(design.apart):
            library = build_component(factory, "top")
    rows = stimulus(library.ports, design.seed)
    with Simulator(library) as compiled, AmaranthBackend(factory(), library.ports) as amaranth:
        ours, theirs = (_run(backend, rows, design) for backend in (compiled, amaranth))
    others = {"Amaranth": theirs}
    if verilator:
        verilog, ports = generate_verilog(factory(), "top")
        others["Verilator"], _ = replay_cocotb(build_simulation(verilog, ports), ports, rows)
    for name, theirs in others.items():
        if (ours != theirs).any():
            cycle = int(np.argwhere((ours != theirs).any(axis=1))[0, 0])
            port = next(port for port in library.ports.outputs.values()
                        if number(ours[cycle], port) != number(theirs[cycle], port))
            inputs = ", ".join(f"{one.name}={number(rows[cycle], one):#x}" for one in library.ports.inputs.values())
            return Fault(name, port.name, f"cycle {cycle}: {port.name} is {number(ours[cycle], port):#x} in the "
                                          f"compiled RTL, {number(theirs[cycle], port):#x} in {name}; inputs {inputs}")
    return None


def number(row: np.ndarray, port: Port) -> int:
    return sum(int(word) << 64 * n for n, word in enumerate(row[port.offset:port.offset + port.words]))


@contextmanager
def _apart(apart: bool) -> Iterator[None]:
    """Keep modules of any size as graphs of their own."""
    kept = graph._KEPT_CELLS, graph._KEPT_INSTANCES
    if apart:
        graph._KEPT_CELLS, graph._KEPT_INSTANCES = 1, 2
    try:
        yield
    finally:
        graph._KEPT_CELLS, graph._KEPT_INSTANCES = kept


def smallest(design: RandomDesign, fault: Fault, verilator: bool) -> tuple[RandomDesign, Fault]:
    """Leave out statements, ports and operators as long as the design fails in the same way."""
    until = time.monotonic() + _SHRINK_SECONDS

    def attempt(text: str) -> bool:
        nonlocal design, fault
        if text == design.text or time.monotonic() > until:
            return False
        try:
            again = fault_of(replace(design, text=text), verilator)
        except UnsupportedDesign:
            return False
        if again is None or again.kind != fault.kind:
            return False
        design, fault = replace(design, text=text), again
        return True

    size = len(_statements(ast.parse(design.text)))
    while size:
        at = 0
        while at < len(_statements(ast.parse(design.text))):
            at += 0 if attempt(_without(design.text, at, at + size)) else size
        size //= 2
    at = 0
    while (choices := _simpler(design.text, at)) is not None:
        at += not any(attempt(text) for text in choices)
    return design, fault


def _statements(tree: ast.Module) -> list[tuple[list, ast.stmt]]:
    """Return what may be left out, in its order, with the block in which it is."""
    blocks = [node.body for node in ast.walk(tree) if isinstance(node, (ast.ClassDef, ast.FunctionDef, ast.With))]
    found = [(block, one) for block in blocks for one in block
             if isinstance(one, (ast.AnnAssign, ast.Assign, ast.AugAssign, ast.With))]
    return sorted(found, key=lambda pair: pair[1].lineno)


def _without(text: str, first: int, end: int) -> str:
    """Return the program without some statements; a block that is left out leaves what is in it."""
    tree = ast.parse(text)
    for block, node in reversed(_statements(tree)[first:end]):
        at = block.index(node)
        block[at:at + 1] = node.body if isinstance(node, ast.With) else []
    for node in ast.walk(tree):
        if isinstance(node, ast.With):
            node.body = node.body or [ast.Pass()]
    return ast.unparse(tree)


def _simpler(text: str, number: int) -> list[str] | None:
    """Return programs that have an operand or an input in the place of one expression; None after the last one."""
    def places(tree: ast.AST) -> list[tuple[ast.AST, str, int | None, ast.expr]]:
        of_statements = [node.items[0] if isinstance(node, ast.With) else node for node in ast.walk(tree)
                         if isinstance(node, (ast.With, ast.AugAssign))]
        return [(node, name, at, one) for root in of_statements for node in ast.walk(root)
                for name, value in ast.iter_fields(node)
                for at, one in (enumerate(value) if isinstance(value, list) else [(None, value)])
                if isinstance(one, (ast.BinOp, ast.UnaryOp, ast.Compare, ast.Subscript, ast.Call))]

    found = places(ast.parse(text))
    if number >= len(found):
        return None
    one = found[number][3]
    names = sorted({node.target.id for node in ast.walk(ast.parse(text)) if isinstance(node, ast.AnnAssign)})
    instead = [child.value if isinstance(child, ast.Attribute) else child for child in ast.iter_child_nodes(one)
               if isinstance(child, ast.expr)] + [ast.Name(name) for name in names if name.startswith("i")]
    texts = []
    for new in instead:
        tree = ast.parse(text)
        node, name, at, _ = places(tree)[number]
        if at is None:
            setattr(node, name, new)
        else:
            getattr(node, name)[at] = new
        texts.append(ast.unparse(tree))
    return texts


@dataclass
class Tally:
    """Count of compared designs."""

    equal: int = 0
    refused: int = 0
    by_verilator: int = 0
    failed: int | None = None  #: seed

    def __str__(self) -> str:
        return (f"{self.equal} designs equal, {self.by_verilator} of them in Verilator as well; {self.refused} "
                f"refused" + (f", seed {self.failed} failed" if self.failed is not None else ""))


def fuzz(seeds: Iterable[int], tell: Callable[[str], None], verilator_every: int = VERILATOR_EVERY,
         until: float = float("inf")) -> Tally:
    """Compare designs until one fails or `time.monotonic()` is `until`; `tell` gets what is wrong."""
    tally = Tally()
    warnings.simplefilter("ignore", UnusedElaboratable)
    with tempfile.TemporaryDirectory() as cache, _environment("T3_CACHE", cache):  # nothing of this is needed again
        for seed in seeds:
            design, verilator, fault = draw(seed), verilator_every > 0 and seed % verilator_every == 0, None
            try:
                fault = fault_of(design, verilator)
            except UnsupportedDesign:
                tally.refused += 1
            else:
                tally.equal += fault is None
                tally.by_verilator += fault is None and verilator
            if fault is not None:
                tally.failed = seed
                tell(f"FAILED: seed {seed}: {fault.text}\nLooking for the smallest design that fails alike.")
                design, fault = smallest(design, fault, fault.kind == "Verilator")
                again = f"make fuzz SEED={seed} CASES=1" + " VERILATOR=1" * verilator
                tell(f"{design.text}\n{fault.text}\nRepeat with: {again}")
                break
            if time.monotonic() >= until:
                break
    return tally


@contextmanager
def _environment(name: str, value: str) -> Iterator[None]:
    before = os.environ.get(name)
    os.environ[name] = value
    try:
        yield
    finally:
        os.environ.pop(name)
        if before is not None:
            os.environ[name] = before


def main(
    minutes: Annotated[float, typer.Option(min=0.01, help="how long; the last design is finished")] = 10.0,
    cases: Annotated[int | None, typer.Option(min=1, help="at most this many designs")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="of the first design, the others count up; drawn without it")]
    = None,
    verilator: Annotated[int, typer.Option(min=0, help="compare one seed in this many with Verilator, 0: none")]
    = VERILATOR_EVERY,
) -> None:
    """Compile Amaranth designs drawn at random and compare every output with Amaranth's simulator and Verilator."""
    first = random.SystemRandom().randrange(1 << 40) if seed is None else seed
    start = time.monotonic()
    print(f"first seed {first}", flush=True)
    tally = fuzz(islice(count(first), cases), lambda line: print(line, flush=True), verilator, start + 60 * minutes)
    print(f"{tally}; {time.monotonic() - start:.0f} s")
    if tally.failed is not None:
        sys.exit(1)


if __name__ == "__main__":
    typer.run(main)
