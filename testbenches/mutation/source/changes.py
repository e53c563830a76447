"""Mistakes at a place of the source, as hardware that an input switches on.

Every method is called, while the hardware is elaborated, in the place of what stands in the source, and gives the same
with a multiplexer for each mistake that is looked at. What is not hardware (a width, a range) stays as it is.
"""

import operator
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from amaranth.hdl import Cat, Const, Module, Mux, Signal, Value
from amaranth.hdl._ast import Assign, Slice, ValueCastable
from amaranth.lib import data, wiring

Place = tuple[str, int, int]  #: file, line, column

_OPERATIONS = {"+": operator.add, "-": operator.sub, "&": operator.and_, "|": operator.or_, "^": operator.xor,
               "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
               "!=": operator.ne, ">>": operator.rshift}
_MISTAKEN = {"+": "-", "-": "+", "&": "|", "|": "&", "^": "|", "<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": ">=",
             "!=": ">"}
SELECT_BITS = 16
EXCHANGED = "exchanged"  #: and the mistake's number: how the signal of an exchange is called


@dataclass(frozen=True)
class Change:
    """One mistake: where, and what it is, in words."""

    file: str
    line: int
    column: int
    what: str


@dataclass
class _Loop:
    over: str
    length: int
    index: int = 0


@dataclass
class _Extra:
    """Statements that come with an assignment until it is added to its module."""

    left_out: list[Value] = field(default_factory=list)  #: if any is 1
    #: (conduit, its value): a value of this module that is known only later, or older by a cycle
    late: list[tuple[Signal, Value]] = field(default_factory=list)
    other: list[tuple[Signal, Value]] = field(default_factory=list)


def _is_hardware(*values) -> bool:
    return any(isinstance(value, (Value, ValueCastable)) for value in values)


def _fit(value, like: Value) -> Value:
    """Return a value with the width and sign of another."""
    value, width = Value.cast(value), len(like)
    value = value[:width] if len(value) >= width else Cat(value, Const(0, width - len(value)))
    return value.as_signed() if like.shape().signed else value


class Changes:
    """The mistakes in a source that an input switches on.

    `wanted(change)`: the number of a mistake, from 1, or None if it is not looked at. `select`: the input, or the
    number itself, for hardware with this one mistake.
    """

    def __init__(self, wanted: Callable[[Change], int | None], select: Value, clocked: bool = True) -> None:
        self._wanted, self._select, self._clocked = wanted, select, clocked
        self._loops: list[_Loop] = []
        self._extras: dict[int, tuple[Assign, _Extra]] = {}
        self._plain: dict[int, tuple[Value, Value]] = {}
        self._exchanged: dict[tuple, tuple[Signal, Value]] = {}

    def forget(self) -> None:
        """Forget the design: what is elaborated next is another one."""
        self._extras, self._plain, self._exchanged = {}, {}, {}

    def _on(self, place: Place, what: str) -> Value | None:
        number = self._wanted(Change(*place, what))
        return None if number is None else self._select == number

    def _changed(self, place: Place, value, changes: Iterable[tuple[str, Callable[[], Value]]]):
        """Switch between a value and mistaken ones; `changes`: what is mistaken, and the value it gives."""
        plain = result = Value.cast(value)
        for what, mistaken in changes:
            on = self._on(place, what)
            if on is not None:
                result = Mux(on, _fit(mistaken(), plain), result)
        if result is plain:
            return value
        if plain.shape().signed:
            result = result.as_signed()
        self._plain[id(result)] = result, plain
        return result

    # Values

    def operation(self, place: Place, sign: str, left, right):
        result = _OPERATIONS[sign](left, right)
        if not _is_hardware(result):
            return result
        if sign == ">>":
            shorter = _is_hardware(right) and len(Value.cast(right)) > 1
            return self._changed(place, result, [
                ("without the upper bit right of >>", lambda: left >> Value.cast(right)[:-1])] if shorter else [])
        wrong = _MISTAKEN[sign]
        changes = [(f"{wrong} for {sign}", lambda: _OPERATIONS[wrong](Value.cast(left), Value.cast(right)))]
        if sign in "&|":
            changes += [(f"without what stands right of {sign}", lambda: left),
                        (f"without what stands left of {sign}", lambda: right)]
        for number, other, given in ((left, right, lambda n: (n, right)), (right, left, lambda n: (left, n))):
            if type(number) is int and sign not in "&|^" and _is_hardware(other):
                changes.append((f"one more than {number} at {sign}",
                                lambda given=given, n=number: _OPERATIONS[sign](*given(n + 1))))
        if sign in ("==", "!=", "<", "<=", ">", ">="):
            for side, number, fewer in (("left", left, lambda bits: (bits, right)),
                                        ("right", right, lambda bits: (left, bits))):
                if _is_hardware(number) and len(Value.cast(number)) > 1:
                    changes.append((f"without the upper bit {side} of {sign}", lambda fewer=fewer, number=number: (
                        _OPERATIONS[sign](*map(Value.cast, fewer(Value.cast(number)[:-1]))))))
        return self._changed(place, result, changes)

    def inversion(self, place: Place, value):
        return self._changed(place, ~value, [("without ~", lambda: value)]) if _is_hardware(value) else ~value

    def choice(self, place: Place, condition, first, second):
        return self._changed(place, Mux(condition, first, second),
                             [("always the first", lambda: first), ("always the second", lambda: second)])

    def reduction(self, place: Place, name: str, value):
        result = getattr(value, name)()
        if not isinstance(value, Value) or len(value) < 2:
            return result
        other = {"any": "all", "all": "any"}[name]
        return self._changed(place, result, [(f"{other} for {name}", lambda: getattr(value, other)())])

    def each(self, place: Place, over: str, items: Iterable) -> list:
        """Change what `Cat` or `ones` is given, one for each of something."""
        items = list(items)
        if not _is_hardware(*items):
            return items
        last = len(items) - 1
        return [self._changed(place, item, [
            (what, lambda: Const(0)) for what, missing in ((f"only the first of {over}", index > 0),
                                                           (f"without the last of {over}", index == last > 1))
            if missing]) for index, item in enumerate(items)]

    def count(self, place: Place, ones: Callable[[Iterable], Value], bits: Iterable) -> Value:
        """Change `ones(bits)`."""
        bits = list(bits)
        return self._changed(place, ones(bits), [("several at once are one", lambda: Cat(bits).any())])

    def condition(self, place: Place, value):
        return self._changed(place, value, [("always", lambda: Const(1)), ("never", lambda: Const(0))])

    def part(self, place: Place, whole, key):
        result = whole[key]
        if not isinstance(whole, Value):
            return result
        if isinstance(key, slice) and len(result) > 1:
            return self._changed(place, result, [("without the upper bit", lambda: result[:-1])])
        if type(key) is int and len(whole) > 1:
            return self._changed(place, result, [("another bit", lambda: whole[(key + 1) % len(whole)])])
        return result

    # Statements

    def loop(self, place: Place, over: str, iterable: Iterable) -> Iterator:
        """Go through an iterable and know how far it is."""
        items = list(iterable)
        frame = _Loop(over, len(items))
        self._loops.append(frame)
        try:
            for frame.index, item in enumerate(items):
                yield item
        finally:
            self._loops = [other for other in self._loops if other is not frame]

    def assign(self, place: Place, target, value) -> Assign:
        target = self._as_written(target)
        return self._assign(place, Value.cast(target), value, "", keep=target.eq(value))

    def _as_written(self, target):
        """Return what is assigned to, if the value that it was read from has mistakes."""
        if id(target) in self._plain:
            return self._plain[id(target)][1]
        return self._as_written(target.value)[target.start:target.stop] if isinstance(target, Slice) else target

    def _assign(self, place: Place, target: Value, value, name: str, keep: Assign) -> Assign:
        plain, extra = Value.cast(value), _Extra()
        changes: list[tuple[str, Callable[[], Value]]] = []

        def old() -> Value:
            before = Signal(plain.shape(), name="before", reset_less=True)
            extra.late.append((before, plain))
            return before

        if isinstance(plain, Const):
            changes.append((f"{name}another constant", lambda: Const(plain.value ^ 1, max(1, len(plain)))))
        else:
            for part, bits in _fields(value):
                bits = range(bits.start, min(bits.stop, len(target)))  # what is above is cut off anyway
                if len(bits) > 1:
                    changes.append((f"{name}{part}without the upper bit",
                                    lambda bits=bits: plain & ~_upper_bits(plain, bits[-1:])))
                if len(bits) > 3:
                    changes.append((f"{name}{part}only the lower half",
                                    lambda bits=bits: plain & ~_upper_bits(plain, bits[len(bits) // 2:])))
            if self._clocked and not name:
                changes.append(("a cycle late", old))
        for level, loop in enumerate(self._loops):
            if loop.length < 2:
                continue
            where = self._indices()
            key = (place, name, level, *(index for at, index in enumerate(where) if at != level))
            if loop.index == 0 and not isinstance(plain, Const):
                number = self._wanted(Change(*place, _exchange(loop)))
                conduit = Signal(plain.shape(), name=f"{EXCHANGED}{number}")
                self._exchanged[key] = conduit, plain
                changes.append((_exchange(loop), lambda conduit=conduit: conduit))
            elif loop.index == 1 and key in self._exchanged:
                conduit, first = self._exchanged.pop(key)
                extra.other.append((conduit, plain))
                changes.append((_exchange(loop), lambda first=first: first))
            only, without = (f"only with the first of {loop.over}", f"without the last of {loop.over}")
            for what, missing in ((only, loop.index > 0), (without, loop.index == loop.length - 1)):
                on = self._on(place, what)
                if on is not None and missing:
                    extra.left_out.append(on)
        on = self._on(place, "left out")
        if on is not None:
            extra.left_out.append(on)
        wide = plain
        if isinstance(plain, Const):  # a constant is as wide as what it is given to
            wide = Const(plain.value, len(target)) if len(target) else plain
        changed = self._changed(place, wide, changes)
        statement = keep if changed is wide else target.eq(changed)
        self._extras[id(statement)] = statement, extra
        return statement

    def _indices(self) -> list[int]:
        return [loop.index for loop in self._loops]

    def add(self, place: Place, m: Module, domain: str, statements) -> None:
        """Change `m.d[domain] += statements`."""
        for statement in _flat(statements):
            _, extra = self._extras.pop(id(statement), (None, _Extra()))
            self._carry(m, extra)
            here = m.d[domain]
            if extra.left_out:
                with m.If(~Cat(extra.left_out).any()):
                    here = m.d[domain]
                    here += statement
            else:
                here += statement

    @staticmethod
    def _carry(m: Module, extra: _Extra) -> None:
        """Carry values in a module of its own, so that no `m.If` around the statement holds for it."""
        for domain, conduits in (("sync", extra.late), ("comb", extra.other)):
            for conduit, value in conduits:
                carrier = Module()
                carrier.d[domain] += conduit.eq(value)
                m.submodules += carrier

    def reset(self, place: Place, m: Module, inserter: Callable, component: wiring.Component, by: Value):
        """Change `SoftReset(component, by)`, added to `m`."""
        name = type(component).__name__
        kept = [on for what, missing in [(f"no {name} is reset", True), *(
            row for loop in self._loops if loop.length > 1
            for row in ((f"of {name} only the first of {loop.over} is reset", loop.index > 0),
                        (f"of {name} the last of {loop.over} is not reset", loop.index == loop.length - 1)))]
            if (on := self._on(place, what)) is not None and missing]
        if not kept:
            return inserter(component, by)
        changed = Signal(name="reset")
        self._carry(m, _Extra(other=[(changed, by & ~Cat(kept).any())]))
        return inserter(component, changed)

    def connect(self, place: Place, m: Module, first, second) -> None:
        """Change `wiring.connect(m, first, second)`: one mistake concerns all its signals."""
        wires, collected = Module(), []
        wires._MustUse__used = True
        wires._add_statement = lambda statements, domain, depth: collected.extend(_flat(statements))
        wiring.connect(wires, first, second)
        for wire in collected:
            name = getattr(wire.lhs, "name", "").rpartition("__")[2]
            self.add(place, m, "comb", self._assign(place, wire.lhs, wire.rhs, f"{name}: ", keep=wire))


def _exchange(loop: _Loop) -> str:
    return f"the first two of {loop.over} exchanged"


def _flat(statements) -> list:
    return [statements] if isinstance(statements, Assign) or not isinstance(statements, Iterable) else [
        inner for statement in statements for inner in _flat(statement)]


def _fields(value) -> list[tuple[str, range]]:
    """Return a struct's fields, and the bits that each has."""
    layout = value.shape() if isinstance(value, data.View) else None
    if not isinstance(layout, data.StructLayout):
        return [("", range(len(Value.cast(value))))]
    return [(f"{name}: ", range(part.offset, part.offset + part.width)) for name, part in layout]


def _upper_bits(value: Value, bits: range) -> Const:
    return Const(sum(1 << bit for bit in bits), len(value))
