"""A run that records what happens in a window of it."""

import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from t3sim.base.errors import BadInput, Failure
from t3sim.base.output import collect_versions
from t3sim.cosim.traced import traced_gpu_design
from t3sim.runs.failure import SimulationError
from t3sim.runs.programmed import ProgrammedGpus
from t3sim.trace import store, waves
from t3sim.trace.model_events import waiting
from t3sim.trace.recorder import Filter
from t3sim.trace.recording import TraceRecording
from t3sim.trace.run_index import FirstArrivals
from t3sim.trace.setup import Recordable

Progress = Callable[[float], None]


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
                                   "versions": collect_versions()}, setup.plan(run))
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
