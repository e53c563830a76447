"""Means to write a specification: free inputs, claims about ports, invariants about the inside."""

import sys

from amaranth.asserts import AnyConst, AnySeq, Initial
from amaranth.back import rtlil
from amaranth.hdl import Assert, Assume, ClockDomain, Const, Elaboratable, Fragment, Module, Signal, Value
from amaranth.lib import data, stream, wiring
from amaranth.lib.wiring import In, Out
from amaranth.utils import ceil_log2

from t3sim.testbenches.formal.macros import Elaborated, forget_while_written, memories


class Spec:
    """A design under proof, and statements about it. `m` is the module that holds what the statements need.

    Every input of the design is free in every cycle, unless the specification assumes something or connects it. A
    clocked read of a memory gives anything for a row that is being written, as an SRAM macro may. The
    first cycle is one of reset, from any content of registers and memories; reset does not come back (a reset in
    flight is a first cycle), and no statement counts in that cycle.

    A *claim* is what the property promises; it reads the design's ports only. An *invariant* may read anything that
    `inside` and `peek` show; it is asserted too, to make the claims inductive, but a broken design must violate a
    claim: with `only`, the claim of that name is the only thing asserted.
    """

    def __init__(self, design: wiring.Component, *, only: str | None = None) -> None:
        self.m = Module()
        self.m.domains.sync = self._sync = ClockDomain()
        self.design = design
        self.claims: set[str] = set()
        self._only = only
        self._locals = {}
        self._connected = set()
        self._elaborate()

    def _elaborate(self) -> None:
        """Elaborate the design and keep the local variables of every `elaborate` in it."""
        def on_return(frame, event, _):
            if event == "return" and frame.f_code.co_name == "elaborate" and "self" in frame.f_locals:
                self._locals[id(frame.f_locals["self"])] = dict(frame.f_locals)

        previous = sys.getprofile()
        sys.setprofile(on_return)
        try:
            self._fragment = Fragment.get(self.design, None)
        finally:
            sys.setprofile(previous)
        forget_while_written(self._fragment, self.m, self.any_sequence)
        self.m.submodules.dut = self._hardware()

    def _hardware(self) -> Elaboratable:
        """Build what drives the design's outputs."""
        return Elaborated(self._fragment)

    # What a specification reads.

    def inside(self, name: str, block: wiring.Component | None = None):
        """Return the local variable `name` of `block.elaborate`, the design's own without a block."""
        return self._locals[id(block or self.design)][name]

    def submodules(self) -> dict:
        """Return name -> component, one level below the design."""
        found = {name: fragment.origins[0] for fragment, name, _ in self._fragment.subfragments if fragment.origins}
        return {name: getattr(part, "component", part) for name, part in found.items()}  # a SoftReset's own

    def submodule(self, name: str):
        return self.submodules()[name]

    def peek(self, memory, address):
        """Return what a memory of the design holds at `address` at the start of a cycle.

        `memory` is an `amaranth.lib.memory.Memory`.
        """
        content = Signal(memory.shape)
        at = Signal(ceil_log2(memory.depth))
        self.m.d.comb += at.eq(address)
        instance = next(one for one in memories(self._fragment) if one._data is memory.data)
        instance.read_port(domain="comb", addr=at, data=Value.cast(content), en=Const(1),
                                         transparent_for=())
        return content

    def inputs(self) -> list:
        """Return the design's input signals and views."""
        return [port for _, member, port in self.design.signature.flatten(self.design) if member.flow == In]

    # What a specification says.

    def any_constant(self, shape):
        """Make an arbitrary value that stays."""
        value = Signal(shape)
        self.m.d.comb += Value.cast(value).eq(AnyConst(Value.cast(value).shape()))
        return value

    def any_sequence(self, shape):
        """Make an arbitrary value in every cycle."""
        value = Signal(shape)
        self.m.d.comb += Value.cast(value).eq(AnySeq(Value.cast(value).shape()))
        return value

    def connect(self, port, value) -> None:
        """Drive an input of the design."""
        port = Value.cast(port)
        self._connected.add(id(port))
        self.m.d.comb += port.eq(value)

    def hold(self, port) -> None:
        """Let an input keep an arbitrary value."""
        self.connect(port, Value.cast(self.any_constant(Value.cast(port).shape())))

    def past(self, value, *, init: int = 0):
        """Return the value of the cycle before; `init` in the first cycle after reset."""
        value = value if isinstance(value, (data.View, Signal)) else Value.cast(value)
        before = Signal(value.shape(), init=None if isinstance(value, data.View) else init)
        self.m.d.sync += Value.cast(before).eq(Value.cast(value))
        return before

    def assume(self, condition) -> None:
        self.m.d.comb += Assume(self._sync.rst | Value.cast(condition).any(), src_loc_at=1)

    def claim(self, name: str, condition) -> None:
        """Claim that `condition` holds in every cycle after the first.

        Several conditions of one name make one claim.
        """
        self.claims.add(name)
        if self._only in (None, name):
            self._assert(condition)

    def invariant(self, condition) -> None:
        if self._only is None:
            self._assert(condition)

    def _assert(self, condition) -> None:
        """Assert a condition; the solver names a failing one by the line that made the claim."""
        self.m.d.comb += Assert(self._sync.rst | Value.cast(condition).any(), src_loc_at=2)

    def rtlil(self) -> str:
        """Return the design with its statements, in RTLIL; the top module is `top`."""
        rst = self._sync.rst
        self.m.d.comb += Assume(rst == Initial())
        ports = [port for port in map(Value.cast, self.inputs()) if id(port) not in self._connected]
        return rtlil.convert(Elaborated(Fragment.get(self.m, None)), ports=[self._sync.clk, rst, *ports])


def streams(design: wiring.Component, *, output: bool = True) -> list:
    """Return (path, stream) of every output stream in a design's signature, or of every input stream."""
    found = []

    def visit(value, member, path, flow):
        if isinstance(value, (list, tuple)):
            for index, item in enumerate(value):
                visit(item, member, f"{path}[{index}]", flow)
        elif member.is_signature and isinstance(member.signature, stream.Signature):
            if flow == (Out if output else In):
                found.append((path, value))
        elif member.is_signature:
            walk(value, member.signature, f"{path}.", flow)

    def walk(value, signature, path, flow):
        for name, member in signature.members.items():
            visit(getattr(value, name), member, path + name, member.flow if flow == Out else member.flow.flip())

    walk(design, design.signature, "", Out)
    return found


def implies(condition, consequence) -> Value:
    return ~Value.cast(condition).any() | Value.cast(consequence).any()


def is_value(field, member) -> Value:
    """Return whether a field holds the number of an enumeration's member, be it one of a broken copy of rtl/."""
    return Value.cast(field) == member.value


def entry_of(m: Module, table, index) -> data.View:
    """Return the entry of a table of layouts at `index`; after the last there are zeros, as Amaranth's Array reads."""
    entry = Signal(table[0].shape())
    with m.Switch(index):
        for number, content in enumerate(table):
            with m.Case(number):
                m.d.comb += Value.cast(entry).eq(Value.cast(content))
    return entry


def at_most_one(bits) -> Value:
    return (bits & (bits - 1)) == 0
