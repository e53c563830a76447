"""A fused run that records what happens in a window of it."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import bits, lockstep, simulation
from ..address_space import UPDATES_PER_ELEMENT, AddressSpace, Region
from ..cosim.compiled import CompiledBackend
from ..cosim.gpu import model_ports
from ..cosim.traced import probes, traced_gpu_library
from ..errors import BadInput, Failure
from ..fused import BATCH_CYCLES, FusedRun, Policy, SimulationError
from ..kernels import rtl_library, staging_pays
from ..machine import Machine
from ..results import collect_versions
from ..techniques import FUSIONS
from ..tiling import DMA, EVENT, REMOTE, STAGED
from ..workloads import Workload
from . import bugs, store, waves
from .recorder import look, make_recorder, recorded_lockstep
from .schema import EVENT as EVENT_DTYPE
from .schema import NO_STREAM, Kind

Progress = Callable[[float], None]

REGION_KINDS = {REMOTE: "remote", DMA: "dma", EVENT: "event", STAGED: "dma"}
DEFAULT_LIMIT = 5_000_000


@dataclass(frozen=True)
class Filter:
    """What is recorded; None: all."""

    first: int = 0  #: cycles
    end: int | None = None
    kinds: frozenset[Kind] | None = None
    channels: frozenset[int] | None = None
    wgs: frozenset[int] | None = None
    limit: int = DEFAULT_LIMIT  #: events

    def check(self, channels: int, workgroups: int) -> None:
        if self.end is not None and self.end <= self.first:
            raise BadInput(f"--until {self.end} is not after --from {self.first}")
        for option, chosen, size in (("--channel", self.channels, channels), ("--wg", self.wgs, workgroups)):
            for value in chosen or ():
                if not 0 <= value < size:
                    raise BadInput(f"{option} {value} does not exist: this run has 0 to {size - 1}")


@dataclass(frozen=True)
class Recorded:
    """How a recording went."""

    outcome: str  #: done; stuck; failed: a self-check; window: its end was reached and the run not continued
    problem: str | None  #: one line, if it was stuck or failed
    cycles: int  #: that the run took
    events: int
    dropped: int  #: events beyond the limit
    cycles_recorded: int
    seconds_recorded: float  #: processor time, in which other programs of the host do not show
    seconds_untraced: float | None = None  #: the same cycles on the ordinary RTL without recording, if measured

    @property
    def slowdown(self) -> float | None:
        """Recording's time over that without; None if it was not measured."""
        return self.seconds_recorded / self.seconds_untraced if self.seconds_untraced else None


class RecordedRun(FusedRun):
    """A `FusedRun` on the RTL that shows its inner signals, writing events as it goes."""

    def __init__(
        self,
        machine: Machine,
        workload: Workload,
        technique: str,
        wanted: Filter,
        writer: store.EventWriter,
        mirrored: bool = True,
        seed: int = 0,
        bug: str | None = None,
        with_waves: bool = False,
    ) -> None:
        geometry = machine.geometry()
        library = traced_gpu_library(geometry)
        super().__init__(
            machine,
            workload,
            _instances(library, workload, mirrored),
            model_ports(library.ports, geometry),
            Policy.of(FUSIONS[technique].policy, machine),
            mirrored,
            _options(technique, machine, workload, seed),
        )
        self.bug = bug
        if bug:
            bugs.plant(bug, self)
        offsets = {self.tiling.wg_offset(space.device, s) for space in self.spaces for s in range(self.tiling.slices)}
        sent = None if wanted.wgs is None else {wg + offset for wg in wanted.wgs for offset in {0, *offsets}}
        self._wanted, self._writer = wanted, writer
        self._recorder = make_recorder(
            self.sim, probes(library.ports, geometry), wanted.kinds, wanted.channels, wanted.wgs, sent
        )
        self.waves: list[waves.Waves] = []
        self._record(0)  # compiles, if need be
        if with_waves:
            self.waves = [waves.Waves(library.ports, geometry, d, space.device) for d, space in enumerate(self.spaces)]
        self.seconds_recorded, self.cycles_recorded = 0.0, 0

    def advance(self, cycles: int) -> int:
        end, state = self.now + cycles, lockstep.RUNNING
        last = end if self._wanted.end is None else self._wanted.end
        while self.now < end and state == lockstep.RUNNING:
            if self.now < self._wanted.first:
                state = super().advance(min(end, self._wanted.first) - self.now)
            elif self.now >= last or self._writer.full:
                state = super().advance(end - self.now)
            else:
                if not self.cycles_recorded:
                    look(self.sim, self._recorder)
                started, before = time.process_time(), self.now
                state = self._record(min(end, last) - self.now)
                self.seconds_recorded += time.process_time() - started
                self.cycles_recorded += self.now - before
        return state

    def _record(self, cycles: int) -> int:
        recorder = self._recorder
        if self.waves:
            cycles, before, cycle = min(1, cycles), [outputs.copy() for outputs in self._outputs], self.now
        self.now, state = recorded_lockstep(
            self.sim,
            recorder,
            self.backends[0].library.step,
            tuple(backend.handle for backend in self.backends),
            self._inputs,
            self._outputs,
            self.now,
            cycles,
        )
        if recorder.count[1]:
            raise Failure(
                f"the recorder's buffer was too small for a cycle before {self.now}: {recorder.count[1]} "
                "events are missing"
            )
        self._writer.write(recorder.events[: recorder.count[0]])
        recorder.count[0] = 0
        for d, device in enumerate(self.waves):
            device.sample(cycle, self._inputs[d], before[d], self._outputs[d], self.sim)
        return state

    def to_the_end(self, progress: Progress) -> tuple[str, str | None]:
        """(outcome, problem) as in `Recorded`."""
        total = self.sim.shape.workgroups * len(self.backends)
        while True:
            end = self._wanted.end
            if end is not None and self.now >= end:
                return "window", None
            state = self.advance(BATCH_CYCLES if end is None else min(BATCH_CYCLES, end - self.now))
            progress(min(0.99, self.sim.gemm.finished.sum() / total))
            if state == lockstep.STUCK:
                return "stuck", f"nothing moved for {lockstep.IDLE_LIMIT} cycles: {self.diagnosis()}"
            if state == lockstep.DONE:
                try:
                    self.check()
                except SimulationError as error:
                    return "failed", str(error)
                return "done", None

    def waiting(self) -> np.ndarray:
        """EVENT[n] of kind WAITING: every request that is in a model's queue now, oldest first per queue."""
        sim, found = self.sim, []
        channels = sim.m.channels

        def add(queue, device, unit, position, lo, hi):
            found.append(_waiting(sim.b, self.now, queue, device, unit, position, int(lo), int(hi)))

        for code, queue in enumerate((sim.compute, sim.inbound)):
            for row in np.flatnonzero(queue.count):
                for i in range(queue.count[row]):
                    at = (queue.head[row] + i) % queue.lo.shape[1]
                    add(code, row // channels, row % channels, i, queue.lo[row, at], queue.hi[row, at])
        for code, queue in enumerate((sim.link.flight, sim.stores_out, sim.mem.dma_returns), start=2):
            for d in np.flatnonzero(queue.count):
                for i in range(queue.count[d]):
                    at = (queue.head[d] + i) % queue.lo.shape[1]
                    add(code, d, 0, i, queue.lo[d, at], queue.hi[d, at])
        for row in range(len(sim.mem.free)):
            held = set(range(sim.mem.free.shape[1])) - set(sim.mem.free[row, : sim.mem.free_count[row]].tolist())
            for i, entry in enumerate(sorted(held)):
                add(5, row // channels, row % channels, i, sim.mem.lo[row, entry], sim.mem.hi[row, entry])
        return np.array(found, EVENT_DTYPE)

    def close(self) -> None:
        for backend in self.backends:
            backend.close()


def _waiting(
    b: bits.RequestBits, now: int, queue: int, device: int, unit: int, position: int, lo: int, hi: int
) -> tuple:
    value = (hi & (1 << 64) - 1) << 64 | lo & (1 << 64) - 1

    def field(lsb, width):
        return value >> lsb & (1 << width) - 1

    region = field(b.region, b.region_bits)
    event = {
        "cycle": now,
        "address": field(0, b.address_bits),
        "wg": field(b.wg, b.wg_bits) if region else -1,
        "amount": field(b.bytes, b.op - b.bytes),
        "a": position,
        "b": queue,
        "c": -1,
        "flags": 0,
        "unit": unit,
        "kind": Kind.WAITING,
        "device": device,
        "wf": field(b.wf, b.wf_bits) if region else 255,
        "region": region,
        "source": field(b.source, 2),
        "op": field(b.op, 2),
        "stream": NO_STREAM,
        "reason": 0,
    }
    return tuple(event[name] for name in EVENT_DTYPE.names)


def _instances(library, workload: Workload, mirrored: bool) -> list[CompiledBackend]:
    backends = [CompiledBackend(library) for _ in range(1 if mirrored else workload.tp)]
    for backend in backends:
        backend.reset()
    return backends


def _options(technique: str, machine: Machine, workload: Workload, seed: int) -> simulation.Options:
    return simulation.Options(seed, FUSIONS[technique].staged and staging_pays(machine, workload))


def record(
    machine: Machine,
    workload: Workload,
    technique: str,
    folder: Path,
    wanted: Filter = Filter(),
    *,
    mirrored: bool = True,
    seed: int = 0,
    bug: str | None = None,
    compare: bool = False,
    with_waves: bool = False,
    progress: Progress = lambda fraction: None,
) -> Recorded:
    """Run a technique's fused kernel to its end, or to that of the window, and write the trace into `folder`.

    With `compare`, the same cycles run again on the ordinary RTL without recording; a difference is a Failure. A run
    that gets stuck or fails its self-checks is recorded too: that is what traces are for. Raises BadInput, Failure.
    """
    tiling = simulation.make_tiling(machine, workload)
    wanted.check(machine.geometry().channel.channels, tiling.tiles)
    if with_waves:
        waves.check_window(wanted.first, wanted.end)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / store.RUN).unlink(missing_ok=True)  # an interrupted recording is no trace
    writer = store.EventWriter(folder, wanted.limit)
    try:
        run = RecordedRun(machine, workload, technique, wanted, writer, mirrored, seed, bug, with_waves)
        outcome, problem = run.to_the_end(progress)
        writer.write(run.waiting())
    finally:
        writer.close()
    seconds = _compare(run, technique, seed) if compare else None
    result = Recorded(
        outcome, problem, run.now, writer.written, writer.dropped, run.cycles_recorded, run.seconds_recorded, seconds
    )
    store.write_run(folder, _describe(run, technique, seed, bug, result), _plan(run))
    if with_waves:
        waves.write_waves(folder, run.waves, machine.memory_clock_ghz)
    run.close()
    return result


def _compare(run: RecordedRun, technique: str, seed: int) -> float:
    """Seconds that the recorded cycles take without recording; refuses to accept other results."""
    if run.bug:
        raise BadInput(f"--compare does not go with --bug {run.bug}: the ordinary run has none")
    library = rtl_library(run.machine.geometry())
    backends = _instances(library, run.workload, run.sim.mirrored)
    plain = FusedRun(
        run.machine,
        run.workload,
        backends,
        model_ports(library.ports, run.geometry),
        run.policy,
        run.sim.mirrored,
        _options(technique, run.machine, run.workload, seed),
    )
    lockstep.lockstep(plain.sim, library.step, tuple(b.handle for b in backends), plain._inputs, plain._outputs, 0, 0)
    while plain.now < run._wanted.first and plain.advance(run._wanted.first - plain.now) == lockstep.RUNNING:
        pass
    started, end = time.process_time(), run._wanted.first + run.cycles_recorded
    while plain.now < end and plain.advance(end - plain.now) == lockstep.RUNNING:
        pass
    seconds = time.process_time() - started
    while plain.now < run.now and plain.advance(run.now - plain.now) == lockstep.RUNNING:
        pass
    both = range(len(backends))
    pairs = [
        (plain.now, run.now),
        *((list(plain.counters(d).items()), list(run.counters(d).items())) for d in both),
        *((getattr(plain.sim.mem, name), getattr(run.sim.mem, name)) for name in ("total_bytes", "served", "waited")),
        (plain.sim.gemm.accounted, run.sim.gemm.accounted),
        (plain.sim.control.events, run.sim.control.events),
    ]
    for backend in backends:
        backend.close()
    if not all(np.array_equal(a, b) for a, b in pairs):
        raise Failure("the recorded run and the ordinary one differ")
    return seconds


def _plan(run: RecordedRun) -> dict[str, np.ndarray]:
    """What each workgroup does, [device, workgroup], as `store.Trace.plan` says."""
    orders = [run.tiling.order(space.device) for space in run.spaces]
    tables = {name: np.stack([order[i] for order in orders]) for i, name in enumerate(("tile", "position", "slice"))}
    return tables | {
        name: getattr(run.sim.plan, name)
        for name in ("m0", "n0", "rows", "columns", "kind", "tiles", "region", "c_base")
    }


def _describe(run: RecordedRun, technique: str, seed: int, bug: str | None, result: Recorded) -> dict:
    sim, g, wanted = run.sim, run.geometry, run._wanted
    errors = [run.driver.first_error(master.read) for master in run.masters]
    until = run._wanted.first + run.cycles_recorded
    writer = run._writer
    return {
        "machine": run.machine.name,
        "workload": _workload(run.workload),
        "technique": technique,
        "seed": seed,
        "bug": bug,
        "devices": run.workload.tp,
        "simulated_devices": len(run.spaces),
        "mirrored": sim.mirrored,
        "policy": run.policy.name,
        "threshold": run.policy.threshold,
        "starvation_limit": run.machine.arbiter.starvation_limit_cycles,
        "clock_ghz": run.machine.memory_clock_ghz,
        "link_latency_cycles": sim.link_shape.latency_cycles,
        "link_bytes_per_cycle": sim.link_shape.bytes_per_cycle,
        "geometry": {
            "channels": g.channel.channels,
            "interleave_bytes": g.channel.interleave_bytes,
            "queue_entries": g.channel.queue_entries,
            "sets": g.tracker.sets,
            "ways": g.tracker.ways,
            "banks": g.tracker.banks,
            "wf_bits": g.tracker.wf_bits,
            "engines": g.dma.engines,
            "egress_lanes": g.dma.egress_lanes,
            "compute_units": sim.gemm.state.shape[1],
        },
        "workgroups": sim.shape.workgroups,
        "wavefronts": run.tiling.wavefronts,
        "wf_columns": run.tiling.wf_columns,
        "pitch_bytes": run.tiling.pitch_bytes,
        "ring_devices": [space.device for space in run.spaces],
        "downstream": [int(d) for d in sim.control.downstream],
        "bases": [{"own": space.base, "downstream": space.downstream_base} for space in run.spaces],
        "regions": [[_region(run, space, region) for region in space.regions] for space in run.spaces],
        "window_head": [int(out[sim.ports.head]) for out in run._outputs],
        "final_tiles": {"come": sim.control.event_count.tolist(), "expected": sim.expected_events.tolist()},
        "errors": errors,
        "counters": [run.counters(d) for d in range(len(run.spaces))],
        "filter": {
            "kinds": sorted(k.name.lower() for k in wanted.kinds) if wanted.kinds else None,
            "channels": sorted(wanted.channels) if wanted.channels is not None else None,
            "wgs": sorted(wanted.wgs) if wanted.wgs is not None else None,
        },
        "recorded": {
            "from": wanted.first,
            "until": until,
            "complete_until": until if writer.complete_until is None else writer.complete_until,
            "cycles_of_run": run.now,
            "outcome": result.outcome,
            "problem": result.problem,
            "events": result.events,
            "dropped": result.dropped,
            "seconds_recorded": result.seconds_recorded,
            "seconds_untraced": result.seconds_untraced,
        },
        "versions": collect_versions(),
    }


def _region(run: RecordedRun, space: AddressSpace, region: Region) -> dict:
    """A region as the driver programmed it."""
    tile = region.rows * region.columns * run.tiling.element_bytes
    updates = {REMOTE: 0, STAGED: 1}.get(region.kind, UPDATES_PER_ELEMENT)
    return {
        "kind": REGION_KINDS[region.kind],
        "rows": region.rows,
        "columns": region.columns,
        "tile_bytes": tile,
        "updates_per_element": updates,
        "wg_offset": region.wg_offset,
        "tiles_per_block": region.tiles_per_block,
        "to_device": None if region.kind == EVENT else space.downstream,
    }


def _workload(workload: Workload) -> dict:
    return {"title": workload.title, "m": workload.m, "n": workload.n, "k": workload.k, "tp": workload.tp}
