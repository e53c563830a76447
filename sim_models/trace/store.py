"""A trace on disk: `events.parquet` (schema.EVENT), `plan.npz` (what each workgroup does), `trace.json` (the run)."""

import json
import time
from collections.abc import Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from t3sim.base.arrays import LARGEST_ARRAYS, read_arrays
from t3sim.base.bounded import TooLarge, check_regular, read_json, reading
from t3sim.base.errors import BadInput, shown
from t3sim.base.output import naming, part_of
from t3sim.trace.header import fault
from t3sim.trace.output_map import OutputMap
from t3sim.trace.passes import Passes, Span, TracedCollective
from t3sim.trace.schema import (
    CHANNEL_QUEUES,
    DRAM_OPS,
    EVENT,
    MEANINGS,
    NO_STREAM,
    OPS,
    POLICIES,
    POLICY_AT,
    QUEUES,
    REASONS,
    SOURCES,
    STREAMS,
    Kind,
    give_reasons,
)

EVENTS, PLAN, RUN = "events.parquet", "plan.npz", "trace.json"
TIMELINE = "timeline.pftrace"
WAVES, WAVES_FST, GTKWAVE, SURFER = "waves.vcd", "waves.fst", "waves.gtkw", "waves.sucl"
DERIVED = (TIMELINE, WAVES, WAVES_FST, GTKWAVE, SURFER)
VERSION = 5
#: What the codes of policies and reasons stand for.
_REASONS = {policy.name: [reason.text for reason in policy.reasons] for policy in POLICIES}
_CHANNEL_QUEUES = [QUEUES.index(name) for name in CHANNEL_QUEUES]
_ARROW = pa.schema([(name, pa.from_numpy_dtype(EVENT[name])) for name in EVENT.names],
                   metadata={"t3.kinds": json.dumps({int(kind): kind.name.lower() for kind in MEANINGS})})


class TraceWriter:
    """A writer of a trace into a folder, in a thread of its own.

    With `commit` all of it is there, and what an older trace left is not; without, the folder is as it was.
    """

    def __init__(self, folder: Path, limit: int) -> None:
        """Open a folder; `limit`: events beyond it are only counted."""
        self._folder, self._limit = folder, limit
        self._made = [path for path in (folder, *folder.parents) if not path.exists()]  #: the innermost first
        self.written = self.dropped = 0
        self.seconds = 0.0  #: processor time of the thread
        self._thread = ThreadPoolExecutor(1)
        self._pending: Future | None = None
        self.complete_until: int | None = None  #: first cycle of which events may be missing

    def __enter__(self) -> "TraceWriter":
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            with naming(part_of(self._folder / EVENTS)):
                self._events = pq.ParquetWriter(part_of(self._folder / EVENTS), _ARROW, compression="lz4",
                                                use_dictionary=False,
                                                write_statistics=False)  # a third of the usual settings' time
        except BaseException:
            self._clear()
            raise
        return self

    def write(self, events: np.ndarray) -> None:
        """Write EVENT[n], later than all before; they may be read until the next call."""
        events_kept = events[:self._limit - self.written]
        if len(events_kept) < len(events) and self.complete_until is None:
            self.complete_until = int(events["cycle"][len(events_kept)])
        self.dropped += len(events) - len(events_kept)
        self._finish()  # although there may be nothing to write: the caller fills the last events' place anew
        if len(events_kept):
            self._pending = self._thread.submit(self._append, events_kept)
            self.written += len(events_kept)

    def _append(self, events: np.ndarray) -> None:
        started = time.thread_time()
        give_reasons(events)
        with naming(part_of(self._folder / EVENTS)):
            self._events.write_table(pa.table({name: np.ascontiguousarray(events[name]) for name in EVENT.names},
                                              schema=_ARROW))
        self.seconds += time.thread_time() - started

    def _finish(self) -> None:
        """Wait for the thread. Raises what it met."""
        pending, self._pending = self._pending, None
        if pending:
            pending.result()

    @property
    def full(self) -> bool:
        return self.written >= self._limit

    def commit(self, run: dict, plan: dict[str, np.ndarray] | None = None) -> None:
        self._finish()
        with naming(part_of(self._folder / EVENTS)):
            self._events.close()
        if plan is not None:
            with naming(part_of(self._folder / PLAN)), part_of(self._folder / PLAN).open("wb") as file:
                np.savez_compressed(file, **plan)
        described = {"version": VERSION, "policies": _REASONS, "has_plan": plan is not None, **run}
        with naming(part_of(self._folder / RUN)):
            part_of(self._folder / RUN).write_text(json.dumps(described, indent=1) + "\n")
        for name in (RUN, PLAN, *DERIVED):
            (self._folder / name).unlink(missing_ok=True)
        for path in self._parts():  # the last makes it a trace
            path.replace(path.with_suffix(""))

    def __exit__(self, kind, error, traceback) -> None:
        self._thread.shutdown()
        if kind is None:
            return
        with suppress(Exception):  # a full disk does not take the end of the file either
            self._events.close()
        self._clear()

    def _clear(self) -> None:
        """Leave the disk as it was."""
        for path in self._parts():
            path.unlink()
        with suppress(OSError):
            for folder in self._made:
                folder.rmdir()

    def _parts(self) -> list[Path]:
        parts = [part_of(self._folder / name) for name in (EVENTS, PLAN, RUN)]
        return [path for path in parts if path.exists()]


def inside(events: np.ndarray, spans: Iterable[Span]) -> np.ndarray:
    """Return those events that have an address in one of the spans."""
    address, chosen = events["address"].astype(np.int64), np.zeros(len(events), bool)
    for span in spans:
        chosen |= (address >= span.first) & (address < span.end)
    return events[chosen]


@dataclass(frozen=True)
class Trace:
    """A recorded run."""

    folder: Path
    run: dict  #: trace.json

    @classmethod
    def load(cls, folder: Path) -> "Trace":
        with reading(str(folder / RUN), "the description of a trace"):
            try:
                run = read_json(folder / RUN)
            except (FileNotFoundError, NotADirectoryError):
                what = "a recording that did not finish" if part_of(folder / EVENTS).exists() else "no trace"
                raise BadInput(f"{folder} holds {what}: `t3 trace` writes one into a folder") from None
            version = run["version"]
        if version != VERSION:
            versions = run.get("versions")
            by = shown(versions["t3sim"]).strip("'") if isinstance(versions, dict) and "t3sim" in versions else (
                "another version")
            raise BadInput(f"{folder} was recorded by t3sim {by} as a trace of version {shown(version)}, and this "
                           f"program reads version {VERSION}: record it again, or read it with the t3sim that wrote it")
        if not isinstance(run.get("policies"), dict):
            raise BadInput(f"{folder / RUN} is damaged: policies is missing; record it again")
        recorded = run["policies"]
        others = [name for name in {**recorded, **_REASONS} if recorded.get(name) != _REASONS.get(name)]
        if others:
            raise BadInput(f"{folder} was recorded with another set of arbitration policies than this program's "
                           f"({', '.join(others)}): record it again, or read it with the t3sim that wrote it")
        if wrong := fault(run):
            raise BadInput(f"{folder / RUN} is damaged: {wrong}; record it again")
        if not run["has_plan"] and (folder / PLAN).exists():
            raise BadInput(f"{folder / RUN} is damaged: has_plan is false, and there is a {PLAN}; record it again")
        trace = cls(folder, run)
        trace.check_plan()
        return trace

    @cached_property
    def events(self) -> np.ndarray:
        """EVENT[n] in the order in which they happened."""
        path = self.folder / EVENTS
        with reading(str(path), "the events of a trace"):
            check_regular(path)
            described = pq.read_metadata(path)
            if described.num_rows * EVENT.itemsize > LARGEST_ARRAYS * 8:
                raise TooLarge(f"it has {described.num_rows:,} events")
            table = pq.read_table(path)
            events = np.zeros(table.num_rows, EVENT)
            for name in EVENT.names:
                events[name] = table[name].to_numpy()
        if wrong := self._fault(events):
            raise BadInput(f"{path} is damaged: {wrong}; record it again")
        return events

    def _fault(self, events: np.ndarray) -> str | None:
        """Say which events this run cannot have had, in words; None: none."""
        geometry = self.run["geometry"]
        at_channels = np.isin(events["kind"], [kind for kind, meaning in MEANINGS.items()
                                               if meaning.unit == "channel"])
        at_channels &= (events["kind"] != Kind.WAITING) | np.isin(events["b"], _CHANNEL_QUEUES)
        decided = events["kind"] == Kind.DECIDE
        for name, wrong in (
                ("kind", ~np.isin(events["kind"], list(MEANINGS))), ("device", events["device"] >= self.devices),
                ("source", events["source"] >= len(SOURCES)), ("cycle", events["cycle"] < 0),
                ("unit", at_channels & (events["unit"] >= geometry["channels"])),
                ("op", events["op"] >= np.where(events["kind"] == Kind.DRAM, len(DRAM_OPS), len(OPS))),
                ("stream", decided & (events["stream"] >= len(STREAMS)) & (events["stream"] != NO_STREAM)),
                ("reason", decided & ~np.isin(events["reason"], list(REASONS))),
                ("flags", decided & (events["flags"] >> POLICY_AT >= len(POLICIES))),
                ("cycle", np.append(False, np.diff(events["cycle"]) < 0))):
            if wrong.any():
                index = int(np.flatnonzero(wrong)[0])
                return f"event {index} has {name} {events[name][index]}"
        return None

    def of(self, kind: Kind | None, device: int | None = None, spans: Iterable[Span] | None = None) -> np.ndarray:
        """Return the events of a kind, of a device, and with an address in one of the spans; None: of all."""
        e = self.events
        chosen = np.ones(len(e), bool) if kind is None else e["kind"] == kind
        e = e[chosen if device is None else chosen & (e["device"] == device)]
        return e if spans is None else inside(e, spans)

    @cached_property
    def map(self) -> OutputMap | None:
        """The plan of what each workgroup computes; None for what has no output: a testbench, a collective alone."""
        if not self.run["has_plan"]:
            return None
        with reading(str(self.folder / PLAN), "the plan of a trace"):
            return OutputMap(self.run, read_arrays(self.folder / PLAN))

    @cached_property
    def passes(self) -> Passes | None:
        """Passes of a collective alone, and what its workgroups move; None for other runs."""
        described = self.run.get("collective")
        return Passes(TracedCollective.model_validate(described), self.run["mirrored"]) if described else None

    def check_plan(self) -> None:
        """Check that the plan is there, and of this run. Raises BadInput."""
        if not self.run["has_plan"]:
            return
        if not (self.folder / PLAN).is_file():
            raise BadInput(f"{self.folder / PLAN} is missing: without it the trace does not say what a workgroup "
                           "computes; record it again")
        if wrong := self.map.fault():
            raise BadInput(f"{self.folder / PLAN} is damaged: {wrong}; record it again")

    @property
    def title(self) -> str:
        return self.run["title"]

    @property
    def devices(self) -> int:
        """Devices that were simulated; one in mirrored mode."""
        return self.run["simulated_devices"]

    def check_device(self, device: int) -> None:
        """Check that a device was simulated. Raises BadInput."""
        if not 0 <= device < self.devices:
            why = " (a representative GPU; gpus.every = true records all)" if self.run["mirrored"] else ""
            raise BadInput(f"GPU {device} is not in this trace: it has 0 to {self.devices - 1}{why}")

    @property
    def window(self) -> tuple[int, int]:
        """First cycle recorded, and first cycle of which events may be missing."""
        recorded = self.run["recorded"]
        return recorded["from"], recorded["complete_until"]
