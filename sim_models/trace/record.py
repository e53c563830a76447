"""A fused run that records what happens in a window of it."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .. import lockstep, simulation
from ..cosim.library import Library
from ..cosim.traced import probes, traced_gpu_library
from ..errors import BadInput, Failure
from ..fused import BATCH_CYCLES, FusedRun, SimulationError
from ..kernels import rtl_library
from ..results import collect_versions
from . import store, waves
from .describe import describe_run, plan_of
from .model_events import recorded_lockstep
from .recorder import Recorder, look, make_recorder
from .schema import COMPLETE, EVENT, EXCEEDS, REFUSED, Kind
from .setup import Filter, Setup
from .waiting import waiting

Progress = Callable[[float], None]


@dataclass(frozen=True)
class Recorded:
    """How a recording went."""

    outcome: str  #: done; stuck; failed: a self-check; window: its end was reached; interrupted
    problem: str | None  #: one line, if it was stuck or failed
    cycles: int  #: that the run took
    events: int
    dropped: int  #: events beyond the limit
    cycles_recorded: int
    seconds_recorded: float  #: processor time, in which other programs of the host do not show, of the recording loop
    seconds_writing: float  #: and of the thread beside it, which writes
    seconds_untraced: float | None = None  #: the same cycles on the ordinary RTL without recording, if measured

    peak_memory_mb: float = 0.0  #: of the process, at the end of the recording

    @property
    def slowdown(self) -> float | None:
        """The loop's time over that without recording; None if it was not measured."""
        return self.seconds_recorded / self.seconds_untraced if self.seconds_untraced else None

    @property
    def slowdown_on_one_core(self) -> float | None:
        """The same with the writing added."""
        return (self.seconds_recorded + self.seconds_writing) / self.seconds_untraced if self.seconds_untraced else None


class RecordedRun(FusedRun):
    """A `FusedRun` on the RTL that shows its inner signals, writing events as it goes. Of what happens before the
    window the updates of tiles are kept that are open when it begins."""

    def record(self, library: Library, wanted: Filter, writer: store.TraceWriter, with_waves: bool) -> None:
        """What to do from now on."""
        offsets = {0, *(region.id_offset for space in self.spaces for region in space.regions)}
        sent = None if wanted.wgs is None else {wg + offset for wg in wanted.wgs for offset in offsets}
        devices, units = self.sim.gemm.state.shape
        self.wanted, self._writer = wanted, writer
        shape = self.sim.b, devices, self.sim.m.channels, units, probes(library.ports, self.geometry)
        self._recorder = make_recorder(*shape, wanted.kinds, wanted.channels, wanted.wgs, sent)
        updates = {Kind.UPDATE} if wanted.kinds is None else {Kind.UPDATE} & wanted.kinds
        self._earlier, self._open = make_recorder(*shape, updates, wgs=wanted.wgs), np.zeros(0, EVENT)
        self._other = self._recorder._replace(events=np.zeros_like(self._recorder.events))  # the writer reads one
        self.waves: list[waves.Waves] = []
        self._record(0)  # compiles, if need be
        if with_waves:
            self.waves = [waves.Waves(library.ports, self.geometry, d, space.device)
                          for d, space in enumerate(self.spaces)]
        self.seconds_recorded, self.cycles_recorded = 0.0, 0

    def advance(self, cycles: int) -> int:
        end, state = self.now + cycles, lockstep.RUNNING
        last = end if self.wanted.end is None else self.wanted.end
        while self.now < end and state == lockstep.RUNNING:
            if self.now < self.wanted.first:
                state = self._step(self._earlier, min(end, self.wanted.first) - self.now)
                self._open = _of_open_tiles(np.concatenate([self._open, self._taken(self._earlier)]))
            elif self.now >= last or self._writer.full:
                state = super().advance(end - self.now)
            else:
                if not self.cycles_recorded:
                    look(self.sim, self._recorder)
                    self._writer.write(self._open)
                started, before = time.thread_time(), self.now
                state = self._record(min(end, last) - self.now)
                self.seconds_recorded += time.thread_time() - started
                self.cycles_recorded += self.now - before
        return state

    def _record(self, cycles: int) -> int:
        if self.waves:
            cycles, before, cycle = min(1, cycles), [outputs.copy() for outputs in self._outputs], self.now
        state = self._step(self._recorder, cycles)
        self._writer.write(self._taken(self._recorder))
        self._recorder, self._other = self._other, self._recorder
        for d, device in enumerate(self.waves):
            device.sample(cycle, self._inputs[d], before[d], self._outputs[d], self.sim)
        return state

    def _step(self, recorder: Recorder, cycles: int) -> int:
        self.now, state = recorded_lockstep(
            self.sim, recorder, self.backends[0].library.step, tuple(backend.handle for backend in self.backends),
            self._inputs, self._outputs, self.now, cycles)
        return state

    def _taken(self, recorder: Recorder) -> np.ndarray:
        """The events in the buffer, which is empty then."""
        if recorder.count[1]:
            raise Failure(f"the recorder's buffer was too small for a cycle before {self.now}: {recorder.count[1]} "
                          "events are missing")
        events = recorder.events[:recorder.count[0]]
        recorder.count[0] = 0
        return events

    def to_the_end(self, progress: Progress) -> tuple[str, str | None]:
        """(outcome, problem) as in `Recorded`."""
        total, end = self.sim.shape.workgroups * len(self.backends), self.wanted.end
        while end is None or self.now < end:
            try:
                state = self.advance(BATCH_CYCLES if end is None else min(BATCH_CYCLES, end - self.now))
                progress(min(0.99, self.sim.gemm.finished.sum() / total))
            except KeyboardInterrupt:
                return "interrupted", None
            if state == lockstep.STUCK:
                return "stuck", f"nothing moved for {lockstep.IDLE_LIMIT} cycles: {self.diagnosis()}"
            if state == lockstep.DONE:
                try:
                    self.check()
                except SimulationError as error:
                    return "failed", str(error)
                return "done", None
        return "window", None

    def close(self) -> None:
        for backend in self.backends:
            backend.close()


def _of_open_tiles(updates: np.ndarray) -> np.ndarray:
    """The UPDATE events since each tile was last complete."""
    key = updates["device"].astype(np.int64) << 40 | updates["wg"].astype(np.int64) << 8 | updates["wf"]
    _, tile = np.unique(key, return_inverse=True)
    closed = np.flatnonzero(updates["flags"] & (COMPLETE | EXCEEDS | REFUSED))
    last = np.full(len(updates), -1)
    np.maximum.at(last, tile[closed], closed)
    return updates[np.arange(len(updates)) > last[tile]]


def record(setup: Setup, folder: Path, wanted: Filter = Filter(), *, compare: bool = False, with_waves: bool = False,
           progress: Progress = lambda fraction: None) -> Recorded:
    """Run a technique's fused kernel to its end, or to that of the window, and write the trace into `folder`.

    With `compare`, the same cycles run again on the ordinary RTL without recording; a difference is a Failure. A run
    that gets stuck or fails its self-checks is recorded too: that is what traces are for; one that Ctrl-C ends is
    recorded until then. Raises BadInput, Failure and OSError, which leave the folder as it was.
    """
    tiling = simulation.make_schedule(setup.machine, setup.workload).tiling  # refuses what cannot run
    geometry = setup.machine.geometry()
    wanted.check(geometry.channel.channels, tiling.tiles)
    if with_waves:
        waves.check_window(wanted.first, wanted.end)
    if compare and setup.bug:
        raise BadInput(f"--compare does not go with --bug {setup.bug}: the ordinary run has none")
    library = traced_gpu_library(geometry)
    run = setup.fused_run(RecordedRun, library)
    with store.TraceWriter(folder, wanted.limit) as writer:
        run.record(library, wanted, writer, with_waves)
        outcome, problem = run.to_the_end(progress)
        writer.write(waiting(run.sim, run.now))
        result = Recorded(outcome, problem, run.now, writer.written, writer.dropped, run.cycles_recorded,
                          run.seconds_recorded, writer.seconds,
                          peak_memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                          seconds_untraced=_compare(run, setup) if compare and outcome != "interrupted" else None)
        end = wanted.first + run.cycles_recorded
        complete = end if writer.complete_until is None else writer.complete_until
        window = {"from": wanted.first, "until": end, "complete_until": complete,
                  "cycles_of_run": result.cycles, "outcome": outcome, "problem": problem, "events": result.events,
                  "dropped": result.dropped, "seconds_recorded": result.seconds_recorded,
                  "seconds_writing": result.seconds_writing, "seconds_untraced": result.seconds_untraced}
        described = describe_run(run, setup.technique, setup.seed)
        writer.commit(described | {"bug": setup.bug, "filter": wanted.to_json(), "recorded": window,
                                   "versions": collect_versions()}, plan_of(run))
    if with_waves:
        waves.write_waves(folder, run.waves, setup.machine.memory_clock_ghz)
    run.close()
    return result


def _compare(run: RecordedRun, setup: Setup) -> float:
    """Seconds that the recorded cycles take without recording; refuses to accept other results."""
    library = rtl_library(setup.machine.geometry())
    plain = setup.fused_run(FusedRun, library)
    lockstep.lockstep(plain.sim, library.step, tuple(backend.handle for backend in plain.backends), plain._inputs,
                      plain._outputs, 0, 0)  # compiles, if need be

    def advance_to(cycle: int) -> None:
        while plain.now < cycle and plain.advance(cycle - plain.now) == lockstep.RUNNING:
            pass
    advance_to(run.wanted.first)
    started = time.thread_time()
    advance_to(run.wanted.first + run.cycles_recorded)
    seconds = time.thread_time() - started
    advance_to(run.now)
    pairs = [
        (plain.now, run.now),
        *((list(plain.counters(d).items()), list(run.counters(d).items())) for d in range(len(plain.backends))),
        *((getattr(plain.sim.mem, name), getattr(run.sim.mem, name)) for name in ("total_bytes", "served", "waited")),
        (plain.sim.gemm.accounted, run.sim.gemm.accounted),
        (plain.sim.control.events, run.sim.control.events),
    ]
    for backend in plain.backends:
        backend.close()
    if not all(np.array_equal(a, b) for a, b in pairs):
        raise Failure("the recorded run and the ordinary one differ")
    return seconds
