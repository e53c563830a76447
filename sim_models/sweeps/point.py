"""One point of a study as a task of the runner: the command itself, run in the worker's process."""

import contextlib
import hashlib
import io
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from t3sim.errors import Failure
from t3sim.sweeps.settings import MACHINE_KEY, Scalar, Settings
from t3sim.tasks.sources import source_digest
from t3sim.tasks.task import BuildTask

#: Of a command's JSON: what says how it was run rather than what came out.
_LEFT_OUT = {"host_seconds", "versions", "machine", "seed"}
#: Commands whose answer is that of the hardware.
_ON_RTL = ("run", "area")


@dataclass(frozen=True)
class PointResult:
    """Every number and word of a command's JSON, by its path in it: `techniques.t3.total_ns`."""

    values: dict[str, Scalar | None]
    host_seconds: float = field(default=0.0, compare=False)


@dataclass(frozen=True, eq=False)
class PointTask:
    """One point."""

    settings: Settings
    varied: tuple[str, ...]  #: for people: what tells it from the others

    result_type = PointResult

    @cached_property
    def key(self) -> str:
        module = f"t3sim.commands.{self.settings.command.replace('-', '_')}"
        state = self.settings.state() + source_digest(module, rtl=self.settings.command in _ON_RTL)
        return f"{self.settings.command}-{hashlib.sha256(state.encode()).hexdigest()[:20]}"

    @property
    def label(self) -> str:
        values = self.settings.values
        return ", ".join(f"{name} = {values[name]}" for name in self.varied if name in values) or self.settings.command

    @cached_property
    def seconds(self) -> float:
        """The guess of its time, alike for all: which is the longest is not known before."""
        return 10.0

    @property
    def needs_rtl(self) -> bool:
        techniques = str(self.settings.values.get("technique", "t3"))
        return self.settings.command == "run" and not self.settings.event_level and "t3" in techniques

    @cached_property
    def requires(self) -> tuple[BuildTask, ...]:
        if not self.needs_rtl:
            return ()
        from t3sim.machine import load_machine

        with self.settings.arguments() as words:
            named = [word.partition("=")[2] for word in words if word.startswith(f"--{MACHINE_KEY}=")]
            return (BuildTask(load_machine(*named).geometry()),)

    @property
    def description(self) -> dict[str, Any]:
        return {"command": self.settings.command, "settings": self.settings.values}

    def run(self, progress: Callable[[float], None]) -> PointResult:
        """Run the command and return its answer. Raises Failure with its error line."""
        from t3sim import cli

        said = io.StringIO()
        with TemporaryDirectory(prefix="t3-point-") as folder, self.settings.arguments() as words:
            answer = Path(folder) / "answer.json"
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(said):
                code = cli.main([words[0], f"--json={answer}", *words[1:]])  # an argument is the last
            if code:
                lines = said.getvalue().strip().splitlines() or [f"exit code {code}"]
                raise Failure(lines[-1].removeprefix("t3: error: "))
            content = json.loads(answer.read_text(encoding="utf-8"))
        return PointResult(flat(content))


def flat(content: Any, path: str = "") -> dict[str, Scalar | None]:
    """Return the leaves of a JSON value by their paths."""
    if isinstance(content, dict):
        items = [(key, value) for key, value in content.items() if key not in _LEFT_OUT]
    elif isinstance(content, list):
        items = list(enumerate(content))
    else:
        return {path: content}
    found: dict[str, Scalar | None] = {}
    for key, value in items:
        found |= flat(value, f"{path}.{key}" if path else str(key))
    return found
