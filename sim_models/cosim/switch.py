"""The switch, compiled: an instance that stands beside GPUs' RTL in the loop."""

from functools import partial

import numpy as np

from t3sim.rtl.geometry import Geometry
from t3sim.rtl.switch.switch import SWITCH_COUNTERS, Switch

from ..engine.port_map import PortMap
from ..engine.switch_hardware import SwitchPorts
from .compiled import CompiledBackend
from .component import build_component


def compiled_switch(geometry: Geometry) -> CompiledBackend:
    """Make a fresh instance. Raises ToolchainError."""
    made = CompiledBackend(build_component(partial(Switch, geometry), "switch", geometry))
    made.reset()
    return made


def switch_ports(ports: PortMap, geometry: Geometry) -> SwitchPorts:
    """Return where the loop finds what."""
    def each(name: str) -> np.ndarray:
        return np.array([ports.port(f"{name}[{number}]").offset for number in range(geometry.switch.ports)])
    arriving, leaving, happened = (ports.port(f"{name}[0]") for name in ("arriving", "leaving", "happened"))
    packet = "payload.packet"
    return SwitchPorts(
        arriving=each("arriving"), words=arriving.words, leaving=each("leaving"), returned=each("returned"),
        taken=each("taken"), happened=each("happened"), holds=each("holds"),
        request=arriving.fields[f"{packet}.request"].lsb, dtype=arriving.fields[f"{packet}.dtype"].lsb,
        parts=arriving.fields[f"{packet}.parts"].lsb, column=arriving.fields[f"{packet}.column"].lsb,
        to=arriving.fields["payload.to"].lsb, whole=leaving.fields["payload.request"].lsb,
        data=leaving.fields["payload.column"].lsb, source=happened.fields["source"].lsb,
        source_bits=happened.fields["source"].width, address=happened.fields["address"].lsb)


def switch_counters(backend: CompiledBackend) -> dict[str, int]:
    """Return the events that an instance has counted."""
    return {name: int(backend.outputs[backend.ports.port(f"counters[{number}]").offset])
            for number, name in enumerate(SWITCH_COUNTERS)}


def switch_error(backend: CompiledBackend) -> dict[str, int]:
    """Return an instance's first error, by the fields of `t3sim.rtl.switch.packets.switch_error`."""
    port = backend.ports.port("error")
    word = int(backend.outputs[port.offset])
    return {name: word >> field.lsb & (1 << field.width) - 1 for name, field in port.fields.items()}
