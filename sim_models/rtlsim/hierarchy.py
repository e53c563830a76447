"""A component as a set of modules, each written once however often it is instantiated.

Amaranth writes a module per instance, named by its place and with whatever ports its nets suggest. Here every component
of the hierarchy becomes a module of its own, with the ports of its signature and the name of its class; equal ones
are one module. A top of 32 channels is then a fourteenth of the text, and is written in a third of the time: what is
elaborated alike is written once.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from enum import Enum
from functools import reduce
from operator import or_
from pathlib import Path

from amaranth import ClockSignal, Elaboratable, Fragment, Instance, ResetSignal, Signal, Value
from amaranth.back import rtlil
from amaranth.hdl._ast import SignalSet
from amaranth.hdl._ir import Design, PortDirection, build_netlist
from amaranth.hdl._mem import MemoryInstance
from amaranth.hdl._nir import Netlist
from amaranth.lib import wiring
from amaranth.lib.memory import Memory

from t3sim.base.errors import Failure
from t3sim.rtlsim.signature import signature_ports

_PLACEHOLDER = "\0"  #: stands for a module's name until its text is known to be new


@dataclass(frozen=True)
class Hierarchy:
    """A tree of modules: which one instantiates which."""

    top: str
    instances: dict[str, dict[str, str]]  #: module: {name of the instance: its module}

    def count(self, module: str | None = None) -> Counter[str]:
        """Count how often each module exists below `module` (the top), itself included."""
        module = module or self.top
        total = Counter([module])
        for child in self.instances[module].values():
            total += self.count(child)
        return total

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=1)

    @classmethod
    def load(cls, path: Path) -> "Hierarchy":
        return cls(**json.loads(path.read_text()))


def module_name(component: wiring.Component) -> str:
    """Write a component's class in the style of Verilog: `LineRouter` is `line_router`."""
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", type(component).__name__).lower()


def rtlil_modules(component: wiring.Component, name: str) -> tuple[str, Hierarchy]:
    """Write RTLIL of a fresh component and of all below it; `name` becomes its module's."""
    writer = _Writer(name)
    writer.add_top(component, name)
    return "\n".join(writer.texts), Hierarchy(name, writer.instances)


class _Platform:
    """Leaves a soft reset to the instance's reset pin.

    An elaboratable that holds a `component` and a signal `by`, which resets it, may elaborate to
    `platform.get_soft_reset(self)`.
    """

    def __init__(self) -> None:
        self.soft_resets: dict[int, Value] = {}  #: by the elaboratable's identity

    def get_soft_reset(self, reset) -> wiring.Component:
        self.soft_resets[id(reset)] = reset.by
        return reset.component


class _Writer:
    def __init__(self, reserved: str) -> None:
        self._reserved = reserved
        self._platform = _Platform()
        self.texts: list[str] = []  #: children before their parents
        self.instances: dict[str, dict[str, str]] = {}
        self._names: dict[str, str] = {}  #: text with a placeholder: module
        self._text_of: dict[tuple, str] = {}  #: what a module was elaborated to: its text
        self._clocks: dict[str, list[str]] = {}  #: module: those of clk and rst that it has
        self._driven_signals = SignalSet()  #: by any component, or as a port of the top
        self._foreign: list[tuple[str, SignalSet]] = []  #: component, signals that it uses and neither drives nor has

    def add(self, fragment: Fragment, component: wiring.Component, name: str | None = None) -> str:
        """Return the module of an elaborated component; it is written if it is new."""
        children = self._replace_components(fragment)
        ports = signature_ports(component)
        contents = _contents((fragment, ports))
        text = self._text_of.get(contents)
        driven_signals = _driven_signals(fragment)
        if text is None:
            text, signals = self._convert(fragment, ports)
            self._text_of[contents] = text
            port_signals = SignalSet(signal for value, _ in ports.values() for signal in value._rhs_signals())
            self._foreign.append((module_name(component), SignalSet(
                signal for signal in signals if signal not in driven_signals and signal not in port_signals)))
        self._driven_signals |= driven_signals
        if text in self._names and name is None:
            return self._names[text]
        name = name or self._free_name(module_name(component))
        self._names[text] = name
        self.instances[name] = children
        self._clocks[name] = self._keep(text, name)
        return name

    def add_top(self, component: wiring.Component, name: str) -> None:
        """Add all modules. Raises Failure if one uses a signal of another that is no port: it would be constant."""
        self.add(Fragment.get(component, self._platform), component, name)
        for value, _ in signature_ports(component).values():
            self._driven_signals |= value._rhs_signals()
        for module, signals in self._foreign:
            for signal in signals:
                if signal in self._driven_signals:
                    raise Failure(f"{module}: signal {signal.name} is driven outside it and is not one of its ports")

    def _convert(self, fragment: Fragment, ports: dict) -> tuple[str, Iterable[Signal]]:
        """Return a text that is the same for equal modules, and the signals in it."""
        return rtlil.convert_fragment(fragment, ports, _PLACEHOLDER, emit_src=False)

    def _keep(self, text: str, name: str) -> list[str]:
        """Keep a new module; return which of clk and rst it has."""
        clocks = re.findall(r"^  wire width 1 input \d+ +\\(clk|rst)$", text, re.MULTILINE)
        # What is no component (a queue of Amaranth's library) is a module behind a dot.
        text = re.sub(rf"\\{_PLACEHOLDER}[.\w]*", lambda match: match[0].replace(".", "__"), text)
        self.texts.append(text.replace(_PLACEHOLDER, name))
        return clocks

    def _free_name(self, base: str) -> str:
        name, number = base, 1
        while name in self.instances or name == self._reserved:
            number += 1
            name = f"{base}_{number}"
        return name

    def _replace_components(self, fragment: Fragment) -> dict[str, str]:
        """Put an instance in the place of every component directly below; gives their modules."""
        children = {}
        for index, (inner, name, location) in enumerate(fragment.subfragments):
            component = next((origin for origin in inner.origins or ()
                              if isinstance(origin, wiring.Component) and not isinstance(origin, Memory)), None)
            if component is None:
                children |= {f"{name}.{child}": module for child, module in self._replace_components(inner).items()}
                continue
            module = self.add(inner, component)
            connections = [("i" if direction is PortDirection.Input else "o", port, value)
                           for port, (value, direction) in signature_ports(component).items()]
            soft_resets = self._platform.soft_resets
            soft = (soft_resets[id(origin)] for origin in inner.origins if id(origin) in soft_resets)
            pins = {"clk": ClockSignal(), "rst": reduce(or_, soft, ResetSignal())}
            connections += [("i", port, pins[port]) for port in self._clocks[module]]
            fragment.subfragments[index] = (Instance(module, *connections), name, location)
            children[name or f"U{index}"] = module
        return children


def _driven_signals(fragment: Fragment) -> SignalSet:
    """Return what a component drives, with outputs of the components in it."""
    signals = SignalSet()
    for statements in fragment.statements.values():
        signals |= statements._lhs_signals()
    if isinstance(fragment, MemoryInstance):
        for port in fragment._read_ports:
            signals |= port._data._lhs_signals()
    elif isinstance(fragment, Instance):
        for value, kind in fragment.ports.values():
            if kind == "o":
                signals |= value._lhs_signals()
    for inner, _, _ in fragment.subfragments:
        signals |= _driven_signals(inner)
    return signals


class _Netlists(_Writer):
    """Keeps netlists instead of texts."""

    def __init__(self, reserved: str) -> None:
        super().__init__(reserved)
        self.netlists: dict[str, Netlist] = {}
        self._netlist_of: dict[str, Netlist] = {}

    def _convert(self, fragment: Fragment, ports: dict) -> tuple[str, Iterable[Signal]]:
        netlist = build_netlist(fragment, ports, name=_PLACEHOLDER)
        text = repr(netlist)
        self._netlist_of[text] = netlist
        return text, netlist.signals

    def _keep(self, text: str, name: str) -> list[str]:
        self.netlists[name] = netlist = self._netlist_of.pop(text)
        return [pin for pin in ("clk", "rst") if pin in netlist.top.ports_i]


#: What the text does not depend on: where in Python something was written, and what it was elaborated from.
_NOT_WRITTEN = {"src_loc", "_src_loc", "origins", "_MustUse__used", "_MustUse__context"}
_SERIAL_NUMBER = "duid"


def _contents(root: object) -> tuple:
    """List all that can be reached from what was elaborated: equal for what is written as the same text.

    Which objects are one and the same is part of it, and the order in which signals were made, by which Amaranth sorts.
    An object that is not Amaranth's is like no other.
    """
    contents: list = []
    places: dict[int, int] = {}  #: by identity
    alive = []  #: else another object could get the identity of one that was made on the way
    serial_numbers = []

    def add(value: object) -> None:
        kind = type(value)
        if kind in (int, str, bool, type(None)):
            contents.append(value)
            return
        if id(value) in places:
            contents.append((places[id(value)],))
            return
        places[id(value)] = len(places)
        alive.append(value)
        if isinstance(value, (type, Enum)):
            contents.append(value)
            return
        contents.append(kind)
        attributes = getattr(value, "__dict__", {})
        if isinstance(value, (tuple, list)):
            contents.append(len(value))
            for part in value:
                add(part)
        elif isinstance(value, dict):
            contents.append(len(value))
            for key, part in value.items():
                add(key)
                add(part)
        elif not attributes or not kind.__module__.startswith("amaranth."):
            contents.append(object())
            return
        for name, attribute in attributes.items():
            if name == _SERIAL_NUMBER:
                serial_numbers.append(attribute)
            elif name not in _NOT_WRITTEN:
                contents.append(name)
                add(attribute)

    add(root)
    ranks = {number: rank for rank, number in enumerate(sorted(serial_numbers))}
    return *contents, *(ranks[number] for number in serial_numbers)


@dataclass(frozen=True)
class Elaborated:
    """A tree of modules as netlists."""

    top: str
    netlists: dict[str, Netlist]  #: children before their parents
    instances: dict[str, dict[str, str]]  #: module: {name of the instance: its module}
    open: bool = False  #: the top has no signature: what it uses is shown
    signals: dict[str, Signal] = field(default_factory=dict)  #: further ports, by path


def elaborate_flat(top: Elaboratable | Design, name: str) -> Elaborated:
    """Elaborate to one netlist.

    Signals of what is no component, and clocks and resets of a component's own domains, are ports: what nothing drives
    is an input.
    """
    signals, open_ = {}, not isinstance(top, wiring.Component)
    ports = () if open_ else signature_ports(top)
    design = top if isinstance(top, Design) else Fragment.get(top, None).prepare(ports, hierarchy=(name,))
    port_names = {port for port, _, _ in design.ports}
    port_signals = SignalSet(signal for _, signal, _ in design.ports)
    pins = SignalSet(pin for domain in design.fragment.domains.values() for pin in (domain.clk, domain.rst)
                     if pin is not None)
    for signal, fragment in design.signal_lca.items():
        if signal not in port_signals and len(signal) and (open_ or signal in pins):
            where = design.fragments[fragment]
            path = ".".join((*where.name[1:], where.signal_names.get(signal, f"signal${len(signals)}")))
            if path in port_names:  # a port of the signature has this name, as the clock of a domain
                path += f"${len(signals)}"
            signals[path] = signal
            design.ports.append((path, signal, None))
    return Elaborated(name, {name: build_netlist(design)}, {name: {}}, open_, signals)


def elaborate(component: wiring.Component, name: str) -> Elaborated:
    """Elaborate a fresh component and all below it; `name` becomes its module's."""
    writer = _Netlists(name)
    writer.add_top(component, name)
    return Elaborated(name, writer.netlists, writer.instances)
