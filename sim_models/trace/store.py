"""A trace on disk: `events.parquet` (schema.EVENT), `plan.npz` (what each workgroup does), `trace.json` (the run)."""

import json
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from ..errors import BadInput
from .schema import EVENT, MEANINGS

EVENTS, PLAN, RUN = "events.parquet", "plan.npz", "trace.json"
VERSION = 1
_ARROW = pa.schema([(name, pa.from_numpy_dtype(EVENT[name])) for name in EVENT.names],
                   metadata={"t3.kinds": json.dumps({int(kind): kind.name.lower() for kind in MEANINGS})})


class EventWriter:
    """Appends events to a Parquet file until `limit`, after which they are counted only."""

    def __init__(self, folder: Path, limit: int) -> None:
        self._writer = pq.ParquetWriter(folder / EVENTS, _ARROW, compression="zstd")
        self._limit = limit
        self.written = self.dropped = 0
        self.complete_until: int | None = None  #: first cycle of which events may be missing

    def write(self, events: np.ndarray) -> None:
        """EVENT[n], later than all before."""
        kept = events[:self._limit - self.written]
        if len(kept) < len(events) and self.complete_until is None:
            self.complete_until = int(events["cycle"][len(kept)])
        self.dropped += len(events) - len(kept)
        if len(kept):
            self._writer.write_table(pa.table({name: np.ascontiguousarray(kept[name]) for name in EVENT.names},
                                              schema=_ARROW))
            self.written += len(kept)

    @property
    def full(self) -> bool:
        return self.written >= self._limit

    def close(self) -> None:
        self._writer.close()


def write_run(folder: Path, run: dict, plan: dict[str, np.ndarray]) -> None:
    np.savez_compressed(folder / PLAN, **plan)
    (folder / RUN).write_text(json.dumps({"version": VERSION, **run}, indent=1) + "\n")


@dataclass(frozen=True)
class Trace:
    """A recorded run."""

    folder: Path
    run: dict  #: trace.json

    @classmethod
    def load(cls, folder: Path) -> "Trace":
        try:
            run = json.loads((folder / RUN).read_text())
            version = run["version"]
        except FileNotFoundError:
            raise BadInput(f"{folder} holds no trace: `t3 trace --out {folder}` writes one") from None
        except (ValueError, KeyError, TypeError):
            raise BadInput(f"{folder / RUN} is no description of a trace") from None
        if version != VERSION:
            raise BadInput(f"{folder / RUN} has version {version}; this program reads version {VERSION}")
        return cls(folder, run)

    @cached_property
    def events(self) -> np.ndarray:
        """EVENT[n] in the order in which they happened."""
        try:
            table = pq.read_table(self.folder / EVENTS)
            events = np.zeros(table.num_rows, EVENT)
            for name in EVENT.names:
                events[name] = table[name].to_numpy()
        except (OSError, KeyError, pa.ArrowException) as error:
            raise BadInput(f"{self.folder / EVENTS} cannot be read: {error}") from None
        return events

    @cached_property
    def plan(self) -> dict[str, np.ndarray]:
        """[device, workgroup]: kind, position, slice, tile, m0, n0, rows, columns, tiles, and region [.., .., 2]."""
        try:
            with np.load(self.folder / PLAN) as arrays:
                return dict(arrays)
        except (OSError, ValueError) as error:
            raise BadInput(f"{self.folder / PLAN} cannot be read: {error}") from None

    @property
    def devices(self) -> int:
        """Devices that were simulated; one in mirrored mode."""
        return self.run["simulated_devices"]

    def regions(self, device: int) -> list[dict]:
        """Regions of a simulated device; number n is entry n - 1."""
        return self.run["regions"][device]

    @property
    def window(self) -> tuple[int, int]:
        """First cycle recorded, and first cycle of which events may be missing."""
        recorded = self.run["recorded"]
        return recorded["from"], recorded["complete_until"]
