"""A run that records what happens in a window of it, on RTL that shows its inner signals."""

import resource
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.words import words_at
from t3sim.base.errors import BadInput, Failure
from t3sim.base.output import collect_versions
from t3sim.cosim.traced import probes, traced_gpu_design
from t3sim.gpu.engine.hardware import Hardware
from t3sim.gpu.engine.observers import Observer
from t3sim.gpu.state import Sim
from t3sim.rtlsim.simulator import Design
from t3sim.runs.failure import SimulationError
from t3sim.runs.kernel_results import Progress
from t3sim.runs.programmed import ProgrammedGpus
from t3sim.trace import store, waves
from t3sim.trace.model_events import observe_models, waiting
from t3sim.trace.recorder import CAPACITY, Filter, Recorder, Subject, look, make_recorder
from t3sim.trace.rtl_events import observe_ports, observe_rtl, observe_switch
from t3sim.trace.run_index import FirstArrivals
from t3sim.trace.schema import COMPLETE, EVENT, EXCEEDS, REFUSED, Kind
from t3sim.trace.setup import Recordable
from t3sim.trace.store import TraceWriter

_PER_CHANNEL = 72  #: events that one channel of a GPU causes in a cycle at most: a mirrored packet may become several
_OTHERS = 64  #: and what belongs to no channel and no compute unit


class Recording(NamedTuple):
    """A recorder as the loop calls it."""

    recorder: Recorder

    def before_edge(self, sim: Sim, kernel: tuple, hardware: Hardware | None, device: int, now: int) -> None:
        recorder, asks = self.recorder, kernel.state.next_group[device] - kernel.work.first_group[device]
        recorder.asking[device] = min(asks, recorder.names.shape[1] - 1)
        network = sim.network
        for i in range(network.first_out[device], network.first_out[device + 1]):
            port = network.ports_out[i]
            recorder.backlog[port] = max(0, int(network.free_time[port]) - now)
        observe_ports(hardware.ports, sim.b, self.recorder, device, words_at(hardware.inputs[device]),
                      words_at(hardware.outputs[device]), now)
        observe_models(sim, kernel, self.recorder, device, now)
        observe_switch(sim.b, hardware.switch, self.recorder, device, now)

    def after_edge(self, sim: Sim, kernel: tuple, hardware: Hardware | None, device: int, now: int) -> None:
        observe_rtl(sim.b, self.recorder, device, words_at(hardware.outputs[device]), hardware.ports.dram, now)
        devices, units = kernel.state.state.shape
        merged = hardware.switch.steps * len(hardware.switch.handle)
        most = devices * (_PER_CHANNEL * sim.mem.m.channels + 6 * units + _OTHERS + merged)
        if self.recorder.count[0] + most >= CAPACITY:
            sim.control.halt[0] = 1  # another cycle's might not fit


class TraceRecording(Observer):
    """An observer that writes a run's events as it goes.

    Of what happens before the window the updates of tiles are kept that are open when it begins.

    The run's hardware is instances of `design`, the top that shows its inner signals. Attach it with `observers`.
    """

    interleaved = True  # events are written in the order of cycles

    def __init__(self, run: ProgrammedGpus, subject: Subject, design: Design, selection: Filter, writer: TraceWriter,
                 with_waves: bool = False) -> None:
        self._run, self.selection, self._writer = run, selection, writer
        sim = run.sim
        devices, units = sim.kernel.state.state.shape
        watched = sim.b, sim.mem.m.channels, units, probes(design.ports, run.geometry), subject
        self._recorder = make_recorder(*watched, selection, sim.network)
        updates = frozenset([Kind.UPDATE])
        self._earlier = make_recorder(*watched, replace(
            selection, kinds=updates if selection.kinds is None else updates & selection.kinds, channels=None),
            sim.network)
        self._open = np.zeros(0, EVENT)
        self._other = self._recorder._replace(events=np.zeros_like(self._recorder.events))  # the writer reads one
        self.waves = [waves.Waves(design.ports, run.geometry, d, device)
                      for d, device in enumerate(run.devices)] if with_waves else []
        self._shown: list[np.ndarray] = []  #: of each GPU, with waves: the outputs before the clock edge
        self._using: Recorder | None = None
        self._from, self._started = 0, 0.0
        self.seconds_recorded, self.cycles_recorded = 0.0, 0

    def before(self, now: int, end: int) -> tuple[Recording | None, int]:
        last = end if self.selection.end is None else min(end, self.selection.end)
        self._using, self._from = self._recorder, now
        if now < self.selection.first:
            self._using, last = self._earlier, min(end, self.selection.first)
        elif now < end and (now >= last or self._writer.full):
            self._using = None
            return None, end
        elif now < end and not self.cycles_recorded:
            look(self._run.sim, self._recorder)
            self._writer.write(self._open)
        if self.waves and self._using is self._recorder:
            last = min(now + 1, last)
            self._shown = [backend.outputs.copy() for backend in self._run.backends]
        self._started = time.thread_time()
        return Recording(self._using), last

    def after(self, now: int) -> None:
        if self._using is self._earlier:
            self._open = _of_open_tiles(np.concatenate([self._open, self._taken()]))
        elif self._using is not None and now > self._from:
            self._writer.write(self._taken())
            self._recorder, self._other = self._other, self._recorder
            for device, shown, backend in zip(self.waves, self._shown, self._run.backends):
                device.sample(self._from, backend.inputs.view(np.int64), shown.view(np.int64),
                              backend.outputs.view(np.int64), self._run.sim)
            self.seconds_recorded += time.thread_time() - self._started
            self.cycles_recorded += now - self._from

    def _taken(self) -> np.ndarray:
        """Take the events out of the buffer, which is empty then."""
        recorder = self._using
        if recorder.count[1]:
            raise Failure(f"the recorder's buffer was too small for a cycle before {self._run.now}: "
                          f"{recorder.count[1]} events are missing")
        events = recorder.events[:recorder.count[0]]
        recorder.count[0] = 0
        return events


def _of_open_tiles(updates: np.ndarray) -> np.ndarray:
    """Return the UPDATE events since each tile was last complete."""
    key = updates["device"].astype(np.int64) << 40 | updates["wg"].astype(np.int64) << 8 | updates["wf"]
    _, tile = np.unique(key, return_inverse=True)
    closed = np.flatnonzero(updates["flags"] & (COMPLETE | EXCEEDS | REFUSED))
    last = np.full(len(updates), -1)
    np.maximum.at(last, tile[closed], closed)
    return updates[np.arange(len(updates)) > last[tile]]


@dataclass(frozen=True)
class Recorded:
    """Outcome of a recording."""

    outcome: str  #: done; stuck; failed: a self-check; window: its end was reached; interrupted
    problem: str | None  #: one line, if it was stuck or failed
    gpus: list[dict[str, str]]  #: what waits where, by GPU, if it was stuck
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
        """The slowdown with the writing added."""
        return (self.seconds_recorded + self.seconds_writing) / self.seconds_untraced if self.seconds_untraced else None


def _to_the_end(run: ProgrammedGpus, end: int | None, progress: Progress) -> tuple[str, str | None, list]:
    """Run to the end, or to that of the window; return (outcome, problem, gpus) as in `Recorded`."""
    try:
        return "done" if run.run(progress, until=end) else "window", None, []
    except KeyboardInterrupt:
        return "interrupted", None, []
    except SimulationError as error:
        return "stuck" if error.gpus else "failed", str(error), list(error.gpus)


def record(setup: Recordable, folder: Path, selection: Filter = Filter(), *, compare: bool = False,
           with_waves: bool = False, progress: Progress = lambda fraction: None) -> Recorded:
    """Run what is set up to its end, or to that of the window, and write the trace into `folder`.

    With `compare`, the same cycles run again on the ordinary RTL without recording; a difference is a Failure. A run
    that gets stuck or fails its self-checks is recorded too: that is what traces are for; one that Ctrl-C ends is
    recorded until then. Raises BadInput, Failure and OSError, which leave the folder as it was.
    """
    geometry = setup.machine.geometry()
    selection.check(geometry.channel.channels, setup.names)  # refuses what cannot run
    if with_waves:
        waves.check_window(selection.first, selection.end)
    if compare and setup.bug:
        raise BadInput(f"a run with bug {setup.bug} has no ordinary one to be compared with")
    design = traced_gpu_design(geometry)
    run = setup.programmed(design)
    subject = setup.subject(run, selection)
    with store.TraceWriter(folder, selection.limit) as writer:
        recording = TraceRecording(run, subject, design, selection, writer, with_waves)
        arrivals = FirstArrivals(len(run.backends))
        run.observers += [recording, arrivals]
        run.advance(0)  # compiles, if need be
        outcome, problem, gpus = _to_the_end(run, selection.end, progress)
        if not recording.cycles_recorded and outcome != "interrupted":
            raise BadInput(f"cycle {selection.first} is past the end of the run: {outcome} at cycle {run.now}"
                           + (f", {problem}" if problem else ""))
        if outcome == "done":
            setup.ended(run)
        writer.write(waiting(run.sim, run.now, subject.senders))
        result = Recorded(outcome, problem, gpus, run.now, writer.written, writer.dropped, recording.cycles_recorded,
                          recording.seconds_recorded, writer.seconds,
                          peak_memory_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                          seconds_untraced=(_compare(run, recording, setup) if compare and outcome != "interrupted"
                                            else None))
        end = selection.first + recording.cycles_recorded
        complete = end if writer.complete_until is None else writer.complete_until
        window = {"from": selection.first, "until": end, "complete_until": complete, "cycles_of_run": result.cycles} | {
            name: getattr(result, name) for name in ("outcome", "problem", "gpus", "events", "dropped",
                                                     "seconds_recorded", "seconds_writing", "seconds_untraced")}
        writer.commit(setup.described(run) | {"bug": setup.bug, "filter": selection.to_json(), "recorded": window,
                                   "first_arrivals": arrivals.cycles.tolist(),
                                   "versions": collect_versions()}, setup.output_plan(run))
    if with_waves:
        waves.write_waves(folder, recording.waves, setup.machine.memory_clock_ghz)
    run.close()
    return result


def _compare(run: ProgrammedGpus, recording: TraceRecording, setup: Recordable) -> float:
    """Return the seconds that the recorded cycles take without recording; refuses to accept other results."""
    plain = setup.programmed()
    plain.advance(0)  # compiles, if need be
    plain.to_end(until=recording.selection.first)
    started = time.thread_time()
    plain.to_end(until=recording.selection.first + recording.cycles_recorded)
    seconds = time.thread_time() - started
    plain.to_end(until=run.now)
    pairs = [
        (plain.now, run.now),
        *((list(plain.counters(d).items()), list(run.counters(d).items())) for d in range(len(plain.backends))),
        *((getattr(plain.sim.mem, name), getattr(run.sim.mem, name)) for name in ("total_bytes", "served", "waited")),
        (plain.sim.kernel.state.accounted, run.sim.kernel.state.accounted),
        (plain.sim.control.events, run.sim.control.events),
    ]
    plain.close()
    if not all(np.array_equal(a, b) for a, b in pairs):
        raise Failure("the recorded run and the ordinary one differ")
    return seconds
