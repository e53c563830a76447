"""The switch's RTL around which a run's GPUs are."""

from collections.abc import Iterable
from dataclasses import replace
from math import ceil

import numpy as np

from t3sim.base.line import LINE_BYTES
from t3sim.cosim.switch import compiled_switch, switch_counters, switch_error, switch_ports
from t3sim.gpu.engine.hardware import Hardware
from t3sim.gpu.engine.switch_hardware import NO_NUMBERS, SwitchHardware, SwitchNumbers, address_at
from t3sim.gpu.fabric import queues
from t3sim.gpu.state import Sim
from t3sim.machine import Machine
from t3sim.machine.hardware import SwitchSection
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import SWITCH_ERRORS, SWITCH_TIMEOUT_BITS
from t3sim.rtlsim.simulator import Simulator
from t3sim.runs.failure import SimulationError

_CYCLES_PER_PART = 2  #: in which an input hands on one that is added: it leaves when its row has been looked at
_EVENTS = 256  #: of a GPU's tables that are remembered, more than come between two looks


class SwitchRtl:
    """An instance for each of the switches side by side, and how the loop steps them."""

    def __init__(self, machine: Machine, section: SwitchSection, sim: Sim) -> None:
        gpus, network = len(sim.switch.base), sim.network
        planes = self._planes = network.planes
        geometry: Geometry = machine.geometry()
        geometry = replace(geometry, switch=replace(section.hardware(), ports=gpus))
        places = geometry.switch.buffer_packets
        steps = max(1, ceil(_CYCLES_PER_PART * network.bytes_per_cycle.max() / geometry.switch.packet_bytes))
        cycles = section.timeout_ns * machine.memory_clock_ghz * steps
        timeout = min((1 << SWITCH_TIMEOUT_BITS) - 1, max(1, round(cycles / geometry.switch.merge_sets)))
        self._geometry = geometry
        self._backends: list[Simulator] = [
            compiled_switch(geometry, sim.switch.parts, timeout) for _ in range(planes)]
        self._ports = switch_ports(self._backends[0].ports, geometry)

        def link(source: int, target: int) -> int:
            out = network.ports_out[network.first_out[source]:network.first_out[source + 1]]
            return int(out[network.target[out] == target][0])

        def each(values: Iterable[int]) -> np.ndarray:
            return np.array(list(values), np.int64)
        self.hardware = SwitchHardware(
            self._ports, each(backend.handle for backend in self._backends),
            each(backend.inputs.ctypes.data for backend in self._backends),
            each(backend.outputs.ctypes.data for backend in self._backends), steps,
            each(link(gpu, gpus) for gpu in range(gpus)), each(link(gpus, gpu) for gpu in range(gpus)),
            np.full((gpus, planes), places), np.zeros((gpus, planes), np.int64),
            queues.timed_queue(gpus * planes, places), np.zeros((gpus, _EVENTS, 2), np.int64), np.zeros(gpus, np.int64),
            np.zeros(1, np.int64), NO_NUMBERS)

    def with_numbers(self, sim: Sim, numbers: SwitchNumbers) -> Sim:
        """Return a run's state whose switch adds these."""
        self.hardware = self.hardware._replace(numbers=numbers)
        return sim._replace(hardware=sim.hardware._replace(switch=self.hardware))

    def beside(self, hardware: Hardware) -> Hardware:
        """Return GPUs' hardware with it."""
        return hardware._replace(switch_step=self._backends[0].design.step, switch=self.hardware)

    @property
    def counters(self) -> dict[str, int]:
        """Events of all of them together."""
        counted = [switch_counters(backend) for backend in self._backends]
        return {name: sum(one[name] for one in counted) for name in counted[0]}

    def raise_errors(self) -> None:
        """Raise SimulationError with what the RTL reports."""
        for plane, backend in enumerate(self._backends):
            if error := switch_error(backend, self._geometry):
                name = next(name for name, code in SWITCH_ERRORS.items() if code == error["code"])
                address = error["address_hi"] << 32 | error["address_lo"]
                raise SimulationError(f"switch {plane}: {name} at port {error['port']}, from GPU {error['source']}, "
                                      f"address {address_at.py_func(address, plane, self._planes):#x}")

    def check(self, sim: Sim) -> None:
        """Check it after a run. Raises SimulationError."""
        self.raise_errors()
        if sim.switch.held_lines.any() or self.hardware.leaving.count.any():
            raise SimulationError(f"switch: {sim.switch.held_lines.tolist()} sums are in its tables at the end, "
                                  f"{self.hardware.leaving.count.tolist()} packets have not left")

    def columns(self, sim: Sim) -> np.ndarray:
        """Make room for the data of all packets with sums that it may send, as in `switch_hardware.SwitchNumbers`."""
        return np.zeros((sim.switch.parts_taken.size * max(1, sim.switch.parts), LINE_BYTES // 8), np.int64)

    def close(self) -> None:
        for backend in self._backends:
            backend.close()
