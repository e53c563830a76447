"""A fused GEMM and reduce-scatter on real RTL: one instance per simulated GPU, in lockstep with the models."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rtl.registers import STATUS_BITS, WAITS, WATCHDOG_PERIOD

from ..driver.apb import ApbMaster
from ..driver.driver import Driver, Write
from ..engine.end import DONE, IDLE_LIMIT, RUNNING, STUCK
from ..engine.hardware import make_hardware, offer_request
from ..engine.loop import Lockstep
from ..engine.ports import Ports
from ..errors import Failure
from ..fabric.network import make_link
from ..machine import Machine
from ..mechanisms.track_trigger import dispatch_requests, map_output
from ..schedule import Action
from ..workloads import Workload
from . import build

#: Levels of STATUS that are 0 when a kernel has ended well.
_AT_WORK = ("tracker_busy", "tracker_occupied", "dma_table_busy", "engines_busy", "egress_busy", "channels_busy",
            "merge_busy", "events_busy", "window_open", "reads_outstanding")
_PATIENCE_CYCLES = 1_000_000  #: for a reset, which clears memories row by row
_REQUEST_QUEUE = 2  #: entries of the dispatch window's (rtl/two_entry_queue.py)
BATCH_CYCLES = 50_000  #: between looks at progress and at Ctrl-C
_ALL_GATHER = 1  #: range of memory that is open to peers in it
_TOLD_TILES = 3  #: missing tiles that a diagnosis names, per device
_BASE_SKEW = 1 << 20  #: outputs of neighbours lie at different addresses, so that address offsets are exercised


class SimulationError(Failure):
    """A run that broke a rule or came to a stop; the message says which and where. `gpus`: what waits where, by GPU, if
    it stands still (`FusedRun.waits`)."""

    def __init__(self, message: str, gpus: Sequence[Mapping[str, str]] = ()) -> None:
        super().__init__(message)
        self.gpus = gpus


@dataclass
class Policy:
    """Arbitration settings (T3 paper, section 4.5)."""

    name: str = "round_robin"
    threshold: str | int | None = "auto"  #: "auto", a number, or None: communication is never held back

    @classmethod
    def of(cls, name: str, machine: Machine) -> "Policy":
        """Policy `name` with the machine's threshold."""
        threshold = machine.arbiter.threshold
        return cls(name, None if threshold == "none" else threshold)


class FusedRun(Lockstep):
    """N GPUs in a ring (or one, mirrored), programmed through their buses and run to the end.

    `backends` are the RTL instances, all compiled or all on Amaranth's simulator.
    """

    def __init__(self, machine: Machine, workload: Workload, backends: list, ports: Ports, policy: Policy,
                 mirrored: bool = True, options: build.Options = build.Options(), device: int = 0) -> None:
        self.machine, self.workload, self.policy, self.backends = machine, workload, policy, backends
        self.geometry = machine.geometry()
        self.schedule = build.make_schedule(machine, workload, options)
        self.tiling = self.schedule.tiling
        if not mirrored and len(backends) != workload.tp:
            raise ValueError(f"{len(backends)} RTL instances for {workload.tp} devices")
        first = build.Addresses.of(workload, self.tiling).c
        bases = [first + (0 if mirrored else d * _BASE_SKEW) for d in range(workload.tp)]
        self.spaces = [map_output(self.schedule, d, bases, self.geometry, machine.dma.tiles_per_block)
                       for d in ([device] if mirrored else range(workload.tp))]
        hardware, python = make_hardware(backends, ports, dispatch_requests(
            self.spaces, backends[0].ports.port("dispatch.payload").fields))
        super().__init__(build.make_sim(machine, workload, spaces=self.spaces, mirrored=mirrored,
                                             hardware=hardware, options=options))
        if python:
            self.observers.append(python)
        self.masters = [ApbMaster(backend) for backend in backends]
        self.driver = Driver(self.geometry)
        self._program()

    def _program(self) -> None:
        """What a driver does before the kernel starts."""
        arbiter, tiling = self.machine.arbiter, self.tiling
        for master in self.masters:
            self.driver.check_identity(master.read)
            self._write(master, self.driver.soft_reset(quiet_cycles=1))  # the links are empty
        self._wait("a soft reset", lambda status: "reset_done" in status)
        for space, master in zip(self.spaces, self.masters):
            writes = space.program(self.driver)
            writes += self.driver.policy(self.policy.name, self.policy.threshold,
                                         arbiter.starvation_limit_cycles or None)
            units = self.machine.gpu.compute_units * self.machine.gpu.workgroups_per_cu
            writes += self.driver.stage(min(units, tiling.tiles))
            writes += self.driver.monitor(*(quarters / 4 for quarters in arbiter.monitor_breakpoints))
            writes += self.driver.window(min(tiling.wavefronts, self.geometry.tracker.ways),
                                         slack=self.schedule.slack_of(space.device))
            writes += self.driver.clear_error() + self.driver.clear_counters() + self.driver.restart()
            self._write(master, writes)
        self._wait("a restart", lambda status: not status & {"resetting", "reset_done", *_AT_WORK})
        for device, backend in enumerate(self.backends):  # a dispatcher fills the queue before its kernel starts
            for _ in range(_REQUEST_QUEUE):
                offer_request.py_func(self.sim.hardware, device, backend.inputs.view(np.int64),
                                      backend.outputs.view(np.int64))
                backend.step()

    @staticmethod
    def _write(master: ApbMaster, writes: list[Write]) -> None:
        for offset, value in writes:
            master.write(offset, value)

    def _wait(self, what: str, done: Callable[[set[str]], bool]) -> None:
        """Look at every device's STATUS until it is as `done` says."""
        for space, master in zip(self.spaces, self.masters):
            first = master.cycles
            while not done(status := self.driver.status(master.read)):
                if master.cycles - first > _PATIENCE_CYCLES:
                    raise SimulationError(f"device {space.device}: {what} is not over after {_PATIENCE_CYCLES} cycles: "
                                          f"{', '.join(sorted(status))}")

    def run(self, progress: Callable[[float], None] = lambda fraction: None, batch_cycles: int = BATCH_CYCLES) -> None:
        """Run the fused kernel to its end; `progress` is called every `batch_cycles`. Raises SimulationError with a
        diagnosis."""
        total = self.sim.kernel.work.workgroups.sum()
        while True:
            state = self.advance(batch_cycles)
            progress(min(0.99, self.sim.kernel.state.finished.sum() / total))
            if state == DONE:
                break
            self._raise_errors()
            if state == STUCK:
                raise SimulationError(f"nothing moved for {IDLE_LIMIT} cycles: {self.diagnosis()}", self.waits())
        self.check()

    def all_gather(self, progress: Callable[[float], None] = lambda fraction: None) -> int:
        """The all-gather that follows, through the same arbiters; returns its cycles."""
        before, first = [self.counters(d) for d in range(len(self.backends))], self.now
        launch = round(self.machine.collective.kernel_launch_ns * self.machine.memory_clock_ghz)
        kernel = build.all_gather(self.machine, self.workload, self.tiling)
        self.sim.control.start[:] = first + launch
        at = build.Addresses.of(self.workload, self.tiling).c
        chunk_bytes = -(-self.workload.output_bytes // self.workload.tp)
        chunk_lines = -(-chunk_bytes // 64)
        for master in self.masters:
            self._write(master, self.driver.open_memory(
                _ALL_GATHER, base=at, limit=at + self.workload.tp * chunk_lines * 64))
            self._write(master, self.driver.plain_arrivals([_ALL_GATHER]))
        self.sim = self.sim._replace(kernel=kernel, link=make_link(len(self.backends), self.sim.link_shape),
                                     expected_events=np.zeros_like(self.sim.expected_events))
        while (state := self.advance(BATCH_CYCLES)) == RUNNING:
            progress(min(0.99, float(kernel.state.phase[0]) / self.workload.tp))
        if state == STUCK:
            raise SimulationError(f"the all-gather did not move for {IDLE_LIMIT} cycles")
        self._raise_errors()
        for d, space in enumerate(self.spaces):
            counted = self.counters(d)
            changed = [f"{name} {before[d][name]:,} to {counted[name]:,}" for name in counted
                       if counted[name] != before[d][name]]
            if changed:
                raise SimulationError(f"device {space.device}: an all-gather is not tracked, but the hardware counted "
                                      f"during it: {', '.join(changed)}")
        return self.now - first

    def counters(self, device: int = 0) -> dict[str, int]:
        """The RTL's counters, read through its bus."""
        return {name.removeprefix("COUNT_").lower(): self.masters[device].read(register.offset)
                for register in self.driver.registers.fixed if (name := register.name).startswith("COUNT_")}

    def chosen_threshold(self, device: int = 0) -> tuple[int, float]:
        """What the intensity monitor chose (127: none) and the mean occupancy that it saw, in entries."""
        read, registers = self.masters[device].read, self.driver.registers
        return (read(registers["CHOSEN_THRESHOLD"].offset) & 127, read(registers["MONITOR_MEAN"].offset) / 4)

    def check(self) -> None:
        """Self-checks at the end of the fused kernel; see docs/models.md."""
        control = self.sim.control
        for d, space in enumerate(self.spaces):
            if self._lost_packets(d):
                raise SimulationError(f"device {space.device}: {self.sim.link.flight.count[d]} packets on the link"
                                      f"{self._lost_packets(d)}")
        self._raise_errors()
        for d, space in enumerate(self.spaces):
            busy = self._at_rest(d)
            if busy:  # a tile that fired got bytes twice, or bytes of another
                raise SimulationError(f"device {space.device}: not idle at the end: {busy}")
            final = self._final_tiles(d)
            if (control.events[d] != final).any():
                q, wf = np.argwhere(control.events[d] != final)[0]
                raise SimulationError(f"device {space.device}: tile of workgroup {q}, wavefront {wf} completed "
                                      f"{control.events[d, q, wf]} times instead of {int(final[q, wf])}")
            tracked = self.schedule.tracked_wf_tiles(space.device)
            counted = self.counters(d)
            if counted["triggers"] != tracked:
                raise SimulationError(f"device {space.device}: {counted['triggers']} triggers for {tracked} tiles")
            if counted["packets"] != self.sim.link.sent_packets[d] and not self.sim.mirrored:
                raise SimulationError(f"device {space.device}: {counted['packets']} packets left, "
                                      f"{self.sim.link.sent_packets[d]} were sent")

        for observer in self.observers:
            observer.check()

    def close(self) -> None:
        """Free the hardware and what observers hold."""
        for held in (*self.backends, *self.observers):
            held.close()

    def _raise_errors(self) -> None:
        for space, backend, master in zip(self.spaces, self.backends, self.masters):
            if backend.outputs[backend.ports.outputs["irq"].offset]:
                raise SimulationError(f"device {space.device}: the hardware reports "
                                      f"{self.driver.first_error(master.read)}")

    def waits(self) -> list[dict[str, str]]:
        """What waits where, by GPU: heading and value."""
        rows = []
        for d, space in enumerate(self.spaces):
            sim, channels = self.sim, self.sim.m.channels
            error = str(self.driver.first_error(self.masters[d].read))
            of = slice(d * channels, (d + 1) * channels)
            rows.append({
                "device": str(space.device),
                "workgroups finished": f"{sim.kernel.state.finished[d]} of {sim.kernel.work.workgroups[d]}",
                "final tiles": f"{sim.control.event_count[d]} of {sim.expected_events[d]}",
                "missing": self._missing_tiles(d).strip(" ()").removeprefix("missing ") or "none",
                "window head": str(self.backends[d].outputs[sim.hardware.ports.head]),
                "compute": str(sim.compute.count[of].sum()), "arriving": str(sim.inbound.count[of].sum()),
                "in DRAM": str(sim.hbm.occupancy[of].sum()),
                "leaving": str(sim.stores_out.count[d] + sim.mem.dma_returns.count[d]),
                "on the link": str(sim.link.flight.count[d]),
                "lost": self._lost_packets(d).removeprefix(" and ") or "none",
                "hardware": self._busy(d) or "hardware idle",
                "watchdog": self._watchdog(d),
                "error": error})
        return rows

    def diagnosis(self) -> str:
        """The same in one line."""
        parts = []
        for d, row in enumerate(self.waits()):
            queued = ", ".join(f"{row[name]} {name}"
                               for name in ("compute", "arriving", "in DRAM", "leaving", "on the link"))
            parts.append(f"device {row['device']}: {row['workgroups finished']} workgroups finished, "
                         f"{row['final tiles']} final tiles{self._missing_tiles(d)}, "
                         f"window head {row['window head']}, queued: {queued}"
                         f"{self._lost_packets(d)}, {row['hardware']}, watchdog: {row['watchdog']}, "
                         f"error {row['error']}")
        return "; ".join(parts)

    def _watchdog(self, d: int) -> str:
        """What the watchdog of device d says of a run that stands still; only the hardware goes on meanwhile.

        It is off before: a limit would take units that compute for long for a hang, which `end.stuck` does not.
        """
        master, driver = self.masters[d], self.driver
        failed = driver.first_error(master.read) is not None
        self._write(master, driver.watchdog(driver.least_watchdog_cycles))
        self.backends[d].step(driver.least_watchdog_cycles + 2 * WATCHDOG_PERIOD)
        names = driver.waiting(master.read)
        self._write(master, driver.watchdog(None) + ([] if failed else driver.clear_error()))
        return "; ".join(text for name, text in WAITS if name in names) or "nothing waits"

    def _at_rest(self, d: int) -> str:
        """What device d still has inside after the cycles in which the window's head passes all of its ids; "" if
        nothing."""
        for _ in range(self.geometry.tracker.window_slots):
            if not (busy := self._busy(d)):
                break
        return busy

    def _busy(self, d: int) -> str:
        """What device d's hardware still has inside, in the words of its STATUS register; "" if nothing."""
        status = self.driver.status(self.masters[d].read)
        return ", ".join(text for name, text in STATUS_BITS if name in _AT_WORK and name in status)

    def _final_tiles(self, d: int) -> np.ndarray:
        """bool[workgroup, wavefront]: tiles whose reduction ends on simulated device d."""
        rows = self.schedule.rows(self.spaces[d].device)
        final = np.zeros(self.sim.control.events[d].shape, bool)
        ends = rows.actions & Action.EVENT != 0
        final[rows.id[ends]] = self.tiling.wf_widths[rows.tile[ends]] > 0
        return final

    def _missing_tiles(self, d: int) -> str:
        missing = np.argwhere(self._final_tiles(d) & (self.sim.control.events[d] == 0))
        told = ", ".join(f"workgroup {wg} wavefront {wf}" for wg, wf in missing[:_TOLD_TILES])
        more = f" and {len(missing) - _TOLD_TILES} more" if len(missing) > _TOLD_TILES else ""
        return f" (missing {told}{more})" if told else ""

    def _lost_packets(self, d: int) -> str:
        """What the link of device d lost or made up; every device has its own unless mirrored."""
        link, to = self.sim.link, self.sim.control.downstream[d]
        lost = 0 if self.sim.mirrored else link.sent_packets[d] - link.flight.count[d] - link.arrived[to]
        what = f"{lost} lost" if lost > 0 else f"{-lost} more than were sent"
        return f" and {what} on it to device {self.spaces[to].device}" if lost else ""
