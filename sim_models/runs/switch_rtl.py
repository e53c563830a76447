"""The switch's RTL around which a run's GPUs are."""

from dataclasses import replace
from math import ceil

import numpy as np

from t3sim.rtl.geometry import Geometry

from ..cosim.compiled import CompiledBackend
from ..cosim.switch import compiled_switch, switch_counters, switch_error, switch_ports
from ..engine.hardware import Hardware
from ..engine.state import Sim
from ..engine.switch_hardware import EVENTS, NO_NUMBERS, SwitchHardware
from ..fabric import queues
from ..line import LINE_BYTES
from ..machine import Machine
from ..machine.hardware import Switch as SwitchSection
from .failure import SimulationError

_LONGEST_TIMEOUT = (1 << 16) - 1  #: as `t3sim.rtl.switch.merge_table.TIMEOUT_BITS`
_EXPIRED = 3  #: of `t3sim.rtl.switch.packets.SwitchError`: a sum that was late, but nothing was lost


class SwitchRtl:
    """One instance, and how the loop steps it."""

    def __init__(self, machine: Machine, section: SwitchSection, sim: Sim) -> None:
        gpus = len(sim.switch.base)
        geometry: Geometry = machine.geometry()
        geometry = replace(geometry, switch=replace(section.hardware(), ports=gpus))
        self._backend: CompiledBackend = compiled_switch(geometry)
        self._ports = switch_ports(self._backend.ports, geometry)
        network, places = sim.network, geometry.switch.buffer_packets
        steps = max(1, ceil(network.bytes_per_cycle.max() / geometry.switch.packet_bytes))
        cycles = section.timeout_ns * machine.memory_clock_ghz * steps
        for name, value in (("whole", sim.switch.parts), ("timeout", min(_LONGEST_TIMEOUT, max(1, round(
                cycles / geometry.switch.merge_sets))))):
            self._backend.inputs[self._backend.ports.port(name).offset] = value

        def link(source: int, target: int) -> int:
            out = network.ports_out[network.first_out[source]:network.first_out[source + 1]]
            return int(out[network.target[out] == target][0])
        self.hardware = SwitchHardware(
            self._ports, np.array([self._backend.handle], np.int64), self._backend.inputs.ctypes.data,
            self._backend.outputs.ctypes.data, steps, np.array([link(gpu, gpus) for gpu in range(gpus)]),
            np.array([link(gpus, gpu) for gpu in range(gpus)]), np.full(gpus, places), np.zeros(gpus, np.int64),
            queues.timed_queue(gpus, places), np.zeros((gpus, EVENTS, 2), np.int64), np.zeros(gpus, np.int64),
            np.zeros(1, np.int64), NO_NUMBERS)

    def beside(self, hardware: Hardware) -> Hardware:
        """Return GPUs' hardware with it."""
        return hardware._replace(switch_step=self._backend.library.step, switch=self.hardware)

    @property
    def counters(self) -> dict[str, int]:
        return switch_counters(self._backend)

    def raise_errors(self) -> None:
        """Raise SimulationError with what the RTL reports; that sums waited for too long is none here."""
        error = switch_error(self._backend)
        if error["code"] not in (0, _EXPIRED):
            raise SimulationError(f"switch: error {error['code']} at port {error['port']}, address "
                                  f"{error['address']:#x}")

    def check(self, sim: Sim) -> None:
        """Check it after a run. Raises SimulationError."""
        self.raise_errors()
        if sim.switch.held.any() or self.hardware.leaving.count.any():
            raise SimulationError(f"switch: {sim.switch.held.tolist()} sums are in its tables at the end, "
                                  f"{self.hardware.leaving.count.tolist()} packets have not left")

    def columns(self, sim: Sim) -> np.ndarray:
        """Make room for the data of all packets with sums that it may send, as in `switch_hardware.Numbers`."""
        return np.zeros((sim.switch.came.size * max(1, sim.switch.parts), LINE_BYTES // 8), np.int64)

    def close(self) -> None:
        self._backend.close()
