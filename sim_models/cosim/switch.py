"""The switch, compiled: an instance that stands beside GPUs' RTL in the loop."""

from functools import partial

import numpy as np

from t3sim.cosim.component import build_component
from t3sim.cosim.driver.apb import ApbMaster
from t3sim.cosim.ports import KERNEL, SwitchPorts
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import SWITCH_COUNTERS, switch_registers
from t3sim.rtl.switch.switch import Switch
from t3sim.rtlsim.port_map import PortMap
from t3sim.rtlsim.simulator import Simulator


def compiled_switch(geometry: Geometry, whole: int, timeout: int) -> Simulator:
    """Make a fresh instance for sums of `whole` parts, if there are any. Raises ToolchainError and BusError."""
    simulator = Simulator(build_component(partial(Switch, geometry), "switch", geometry))
    simulator.reset()
    registers, bus = switch_registers(geometry), ApbMaster(simulator)

    def is_busy() -> bool:  # it clears its tables, or looks for what is of kernels before the first
        return bool(registers["STATUS"].field("busy").decode(bus.read(registers["STATUS"].offset)))

    while is_busy():
        pass
    for name, value in (("WHOLE", max(1, whole)), ("TIMEOUT", timeout), ("EPOCH", KERNEL)):
        bus.write(registers[name].offset, value)
    while is_busy():
        pass
    return simulator


def switch_ports(ports: PortMap, geometry: Geometry) -> SwitchPorts:
    """Return where the loop finds what."""
    def each(name: str) -> np.ndarray:
        return np.array([ports.port(f"{name}[{number}]").offset for number in range(geometry.switch.ports)])
    arriving, leaving, happened = (ports.port(f"{name}[0]") for name in ("arriving", "leaving", "happened"))
    packet = "payload.packet"
    return SwitchPorts(
        arriving=each("arriving"), words=arriving.words, leaving=each("leaving"), returned=each("returned"),
        taken=each("taken"), happened=each("happened"), holds=each("holds"),
        request=arriving.fields[f"{packet}.request"].lsb, epoch=arriving.fields[f"{packet}.epoch"].lsb,
        dtype=arriving.fields[f"{packet}.dtype"].lsb,
        parts=arriving.fields[f"{packet}.parts"].lsb, column=arriving.fields[f"{packet}.column"].lsb,
        to=arriving.fields["payload.to"].lsb, whole=leaving.fields["payload.request"].lsb,
        data=leaving.fields["payload.column"].lsb, source=happened.fields["source"].lsb,
        source_bits=happened.fields["source"].width, address=happened.fields["address"].lsb)


def switch_counters(backend: Simulator) -> dict[str, int]:
    """Return the events that an instance has counted."""
    return {name: int(backend.outputs[backend.ports.port(f"counters[{number}]").offset])
            for number, (name, _) in enumerate(SWITCH_COUNTERS)}


def switch_error(backend: Simulator, geometry: Geometry) -> dict[str, int] | None:
    """Return an instance's first error, by the fields of its registers; reading it moves the clock."""
    if not backend.outputs[backend.ports.port("error").offset]:
        return None
    for number in range(geometry.switch.ports):
        backend.inputs[backend.ports.port(f"arriving[{number}]").offset] = 0
        backend.inputs[backend.ports.port(f"taken[{number}]").offset] = 0
    registers, bus = switch_registers(geometry), ApbMaster(backend)
    words = {name: bus.read(registers[name].offset) for name in ("ERROR", "ERROR_ADDRESS_LO", "ERROR_ADDRESS_HI")}
    return {field.name.removeprefix("error_"): field.decode(word) for name, word in words.items()
            for field in registers[name].fields}
