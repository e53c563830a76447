"""GPUs with the RTL as a driver leaves them before a kernel starts; those of a fused run."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.collectives.schedule.sums import window_for_sums
from t3sim.cosim.driver.apb import ApbMaster, BusError
from t3sim.cosim.driver.driver import Driver, Write, error_in_words
from t3sim.cosim.ports import Ports
from t3sim.gpu.engine.end import DONE, IDLE_LIMIT, STUCK
from t3sim.gpu.engine.hardware import make_hardware, offer_request
from t3sim.gpu.engine.loop import BATCH_CYCLES, Lockstep
from t3sim.gpu.fabric.network import come_back, head_arrival, head_destination
from t3sim.gpu.state import Sim
from t3sim.machine import Machine
from t3sim.rtl.arbiter import POLICIES
from t3sim.rtl.geometry import Geometry
from t3sim.rtl.registers import KERNEL_INSIDE, NO_THRESHOLD
from t3sim.runs import build
from t3sim.runs.address_space import dispatch_requests
from t3sim.runs.failure import SimulationError
from t3sim.runs.gather_before import ready_asks
from t3sim.runs.plan import Plan, Policy
from t3sim.runs.sums import sums_in_memory
from t3sim.runs.switch_rtl import SwitchRtl

#: Levels of STATUS that are 0 when a kernel has ended well.
AT_WORK = (*KERNEL_INSIDE, "channels_busy", "window_open")
_PATIENCE_CYCLES = 1_000_000  #: for a reset, which clears memories row by row
_REQUEST_QUEUE = 2  #: entries of the dispatch window's (rtl/streams/two_entry_queue.py)


class ProgrammedGpus(Lockstep):
    """GPUs with an RTL instance each, or a representative GPU, which a driver programs through their buses."""

    switch: SwitchRtl | None = None  #: between the GPUs

    def __init__(self, sim: Sim, geometry: Geometry, backends: Sequence, devices: Sequence[int]) -> None:
        """Take the state at cycle 0; `devices`: the number of each GPU, for messages."""
        super().__init__(sim)
        self.geometry, self.backends, self.devices = geometry, backends, devices
        self.masters = [ApbMaster(backend) for backend in backends]
        self.drivers = [Driver(geometry) for _ in backends]

    def run(self, progress: Callable[[float], None] | None = None, batch_cycles: int = BATCH_CYCLES,
            until: int | None = None) -> bool:
        """Run the kernel to its end and check it, or up to cycle `until`; return whether it has ended.

        `progress` is called every `batch_cycles`. Raises SimulationError with a diagnosis.
        """
        def after_batch() -> None:
            if progress is not None:
                progress(min(0.99, self.share()))
            self.raise_errors()

        reached = self.to_end(after_batch, batch_cycles, until)
        if reached == STUCK:
            raise self.standstill()
        if reached == DONE:
            self.check()
        return reached == DONE

    def share(self) -> float:
        """Return the share of the kernel's workgroups that have ended."""
        return float(self.sim.kernel.state.finished.sum() / self.sim.kernel.work.workgroups.sum())

    def standstill(self) -> SimulationError:
        """Return the error of a run that is stuck."""
        return SimulationError(f"nothing moved for {IDLE_LIMIT} cycles")

    def check(self) -> None:
        """Check a run that has ended. Raises SimulationError."""
        for observer in self.observers:
            observer.check()

    def reset(self) -> None:
        """Soft-reset all GPUs, whose links are empty."""
        for driver, master in zip(self.drivers, self.masters):
            driver.check_identity(master.read)
            self.write(master, driver.soft_reset(quiet_cycles=1))
        self.wait("a soft reset", lambda status: "reset_done" in status)

    def restart(self, writes: Callable[[int], list[Write]], at_rest: Collection[str] = AT_WORK) -> None:
        """Program all GPUs and start a kernel on each; `writes`: by a GPU's place; `at_rest`: STATUS bits to be 0."""
        for place, (driver, master) in enumerate(zip(self.drivers, self.masters)):
            self.write(master, writes(place) + driver.clear_error() + driver.clear_counters() + driver.restart())
        self.wait("a restart", lambda status: not status & {"resetting", "reset_done", *at_rest})

    def write(self, master: ApbMaster, writes: list[Write]) -> None:
        """Write registers through one device's bus. Raises SimulationError with the hardware's reason for a refusal."""
        try:
            for offset, value in writes:
                master.write(offset, value)
        except BusError as refusal:
            place = self.masters.index(master)
            raise SimulationError(f"GPU {self.devices[place]}: {refusal}: the hardware reports "
                                  f"{error_in_words(self.drivers[place].first_error(master.read))}") from None

    def wait(self, what: str, is_over: Callable[[set[str]], bool]) -> None:
        """Read every device's STATUS until `is_over` accepts it. Raises SimulationError after a million cycles."""
        for device, driver, master in zip(self.devices, self.drivers, self.masters):
            first = master.cycles
            while not is_over(status := driver.status(master.read)):
                if master.cycles - first > _PATIENCE_CYCLES:
                    raise SimulationError(f"GPU {device}: {what} is not over after {_PATIENCE_CYCLES} cycles: "
                                          f"{', '.join(sorted(status))}")

    def raise_errors(self) -> None:
        """Raise SimulationError with the first error that any device's hardware reports."""
        for device, backend, driver, master in zip(self.devices, self.backends, self.drivers, self.masters):
            if backend.outputs[backend.ports.outputs["irq"].offset]:
                raise SimulationError(f"GPU {device}: the hardware reports "
                                      f"{error_in_words(driver.first_error(master.read))}")
        if self.switch:
            self.switch.raise_errors()

    def counters(self, device: int = 0) -> dict[str, int]:
        """Return the RTL's counters, read through its bus."""
        return {name.removeprefix("COUNT_").lower(): self.masters[device].read(register.offset)
                for register in self.drivers[device].registers.fixed if (name := register.name).startswith("COUNT_")}

    def close(self) -> None:
        """Free the RTL instances and the observers' resources."""
        for held in (*self.backends, *self.observers, *([self.switch] if self.switch else [])):
            held.close()


class ProgrammedRun(ProgrammedGpus):
    """N GPUs in a ring (or one, mirrored), programmed through their buses, at cycle 0.

    `backends` are the RTL instances, all compiled or all on Amaranth's simulator.
    """

    def __init__(self, plan: Plan, backends: list, ports: Ports, policy: Policy, mirrored: bool = True,
                 device: int = 0) -> None:
        machine, workload = plan.machine, plan.workload
        self.machine, self.workload, self.policy, self.schedule = machine, workload, policy, plan.schedule
        self.tiling = self.schedule.tiling
        if not mirrored and len(backends) != workload.tp:
            raise ValueError(f"{len(backends)} RTL instances for {workload.tp} GPUs")
        self.spaces = plan.spaces(device if mirrored else None)
        self.gathers, payloads = plan.gathers, backends[0].ports
        #: Of the workgroups that ask the window.
        self.workgroup_tiling = self.tiling if plan.gathers else build.make_tiling(machine, workload)
        hardware, python = make_hardware(
            backends, ports,
            dispatch_requests(self.spaces, payloads.port("dispatch.payload").fields, self.workgroup_tiling),
            ready_asks(self.spaces, payloads.port("asks.payload").fields) if self.gathers else None)
        super().__init__(build.make_sim(plan, spaces=self.spaces, mirrored=mirrored, hardware=hardware),
                         machine.geometry(), backends, [space.device for space in self.spaces])
        if python:
            self.observers.append(python)
        self.switch = self._switch(machine, mirrored)
        self._program()

    def _switch(self, machine: Machine, mirrored: bool) -> SwitchRtl | None:
        """Make the switch's RTL, if the machine has it and every GPU is there."""
        if mirrored or not self.schedule.program.in_switch or machine.switch is None or not machine.switch.rtl:
            return None
        if self.backends[0].design is None or sums_in_memory(self.workload):
            raise BadInput("[switch] rtl = true: it is stepped compiled, and adds fp16, bf16 and fp32")
        switch_rtl = SwitchRtl(machine, machine.switch, self.sim)
        self.sim = self.sim._replace(hardware=switch_rtl.beside(self.sim.hardware))
        return switch_rtl

    def _program(self) -> None:
        """Reset and program all GPUs as a driver does before a kernel."""
        self.reset()
        self.restart(self._settings)
        self._tell_heads()
        for device, backend in enumerate(self.backends):  # a dispatcher fills the queue before its kernel starts
            for _ in range(_REQUEST_QUEUE):
                offer_request.py_func(self.sim.hardware, device, backend.inputs.view(np.int64),
                                      backend.outputs.view(np.int64))
                backend.step()

    def _settings(self, place: int) -> list[Write]:
        """Return the register writes of a GPU's driver for this kernel."""
        arbiter, tiling, space, driver = self.machine.arbiter, self.tiling, self.spaces[place], self.drivers[place]
        writes = space.program(driver)
        limit = self.machine.starvation_limit_cycles if POLICIES[self.policy.name].ends_starvation else 0
        writes += driver.policy(self.policy.name, self.policy.threshold, limit or None)
        units = int(self.sim.kernel.state.working[place]) * self.sim.kernel.rates.places
        workgroups = (self.workgroup_tiling.tiles * self.schedule.policy.parts if self.schedule.placement is None
                      else max(1, int(self.sim.kernel.work.workgroups[place])))
        writes += driver.stage(min(units, workgroups))
        writes += driver.monitor(*(quarters / 4 for quarters in arbiter.monitor_breakpoints))
        tiles, waits_for = min(tiling.wavefronts, self.geometry.tracker.ways), self.schedule.waits_for(space.device)
        writes += driver.window(
            tiles, slack=self.schedule.slack_of(space.device), waits_for=waits_for,
            workgroups=self._window(driver.largest_window(tiles, waits_for)))
        return writes + (driver.ready_table(tiling.tile_rows, tiles) if self.gathers else [])

    def _tell_heads(self) -> None:
        """Deliver the heads of the new kernel to the peers; the kernel starts when all GPUs have restarted."""
        ports, network, b = self.sim.hardware.ports, self.sim.network, self.sim.b
        hardware = {space.device: backend for space, backend in zip(self.spaces, self.backends)}
        heads = []
        for backend in self.backends:
            inputs, outputs = backend.inputs.view(np.int64), backend.outputs.view(np.int64)
            inputs[ports.head_ready] = 1
            while outputs[ports.head_valid]:
                heads.append(outputs[ports.head_packet])
                backend.step()
            inputs[ports.head_ready] = 0
        for head in heads:
            if network.one_for_all:
                head, backend = come_back.py_func(head, network.gpus, b), self.backends[0]
            else:
                backend = hardware[head_destination.py_func(head, b)]
            inputs = backend.inputs.view(np.int64)
            inputs[ports.heard], inputs[ports.heard_valid] = head_arrival.py_func(head, b), 1
            backend.step()
            inputs[ports.heard_valid] = 0

    def _window(self, largest: int) -> int:
        """Return the dispatch window's size: the largest, unless the model of a switch could not hold all sums."""
        if not self.schedule.program.in_switch or self.switch:
            return largest
        shape = build.switch_shape(self.machine, self.sim.network.planes)
        return window_for_sums(self.schedule, largest, shape.most_bytes, shape.planes)

    def chosen_threshold(self, device: int = 0) -> tuple[int, float]:
        """Return the intensity monitor's threshold (`NO_THRESHOLD`: none) and its mean occupancy, in entries."""
        read, registers = self.masters[device].read, self.drivers[device].registers
        return (read(registers["CHOSEN_THRESHOLD"].offset) & NO_THRESHOLD, read(registers["MONITOR_MEAN"].offset) / 4)
