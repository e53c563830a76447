"""An observer that records what happens in a window of a run, on RTL that shows its inner signals."""

import time
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.words import words_at
from t3sim.base.errors import Failure
from t3sim.cosim.traced import probes
from t3sim.gpu.engine.hardware import Hardware
from t3sim.gpu.engine.observers import Observer
from t3sim.gpu.state import Sim
from t3sim.rtlsim.simulator import Design
from t3sim.runs.programmed import ProgrammedGpus
from t3sim.trace import waves
from t3sim.trace.model_events import observe_models
from t3sim.trace.recorder import CAPACITY, Filter, Recorder, Subject, look, make_recorder
from t3sim.trace.rtl_events import observe_ports, observe_rtl, observe_switch
from t3sim.trace.schema import COMPLETE, EVENT, EXCEEDS, REFUSED, Kind
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
        most = devices * (_PER_CHANNEL * sim.m.channels + 6 * units + _OTHERS + merged)
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
        watched = sim.b, sim.m.channels, units, probes(design.ports, run.geometry), subject
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
