"""The settings of one point of a study: a command's options and what differs from its machine."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from t3sim.errors import BadInput, choices, shown

Scalar = bool | int | float | str
MACHINE_KEY = "machine"  #: `machine` is its name or file, `machine.SECTION.KEY` what differs from it
_OWN = ("json", "out", "help", "timeline")  #: options that a study sets itself, or that write files of their own
_DEFAULT_MACHINE = "t3-table1"
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Settings:
    """Of one point."""

    command: str
    values: dict[str, Scalar]

    @property
    def changes(self) -> dict[str, Scalar]:
        """What differs from the machine, by SECTION.KEY."""
        return {name.removeprefix(f"{MACHINE_KEY}."): value for name, value in self.values.items()
                if name.startswith(f"{MACHINE_KEY}.")}

    @property
    def options(self) -> dict[str, Scalar]:
        return {name: value for name, value in self.values.items() if not name.startswith(f"{MACHINE_KEY}.")}

    @contextmanager
    def arguments(self) -> Iterator[list[str]]:
        """The command line of this point; the machine file that it may name is there meanwhile."""
        with TemporaryDirectory(prefix="t3-point-") as folder:
            options = dict(self.options)
            if self.changes:
                file = Path(folder) / "machine.toml"
                file.write_text(self._machine_file(str(options.get(MACHINE_KEY, _DEFAULT_MACHINE))), encoding="utf-8")
                options[MACHINE_KEY] = str(file)
            yield [self.command, *(f"--{name}" if value is True else f"--{name}={value}"
                                   for name, value in options.items() if value is not False)]

    def _machine_file(self, base: str) -> str:
        from t3sim.machine import PRESETS

        extended = base if base in PRESETS else str(Path(base).resolve())
        lines = [f"extends = {json.dumps(extended)}"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in self.changes.items()]
        return "\n".join(lines) + "\n"

    def check(self) -> None:
        """Refuse what cannot be run, before anything is. Raises BadInput."""
        allowed = options_of(self.command)
        for name, value in self.options.items():
            if name not in allowed:
                raise BadInput(f"{shown(name)} is no option of `t3 {self.command}`: allowed are "
                               f"{choices(name, allowed)}")
            if isinstance(value, bool) != allowed[name]:
                raise BadInput(f"{name} = {shown(value)}: " + ("true or false is allowed" if allowed[name] else
                                                               "a number or a word is allowed"))
        if self.changes and self.command != "run":
            raise BadInput(f"{MACHINE_KEY}.{next(iter(self.changes))} goes with the command run only: "
                           f"for {self.command} give the machine as a file")
        if self.command == "run":
            with self.arguments() as words:
                _check_run(words)

    def state(self) -> str:
        """Everything outside the program that the result depends on, for a key: the settings, the machine with all of
        its numbers, and the content of files that options name."""
        content: dict[str, Any] = {"command": self.command, "settings": self.values}
        if self.command == "run":
            from t3sim.machine import load_machine

            with self.arguments() as words:
                content["machine"] = load_machine(_option(words, MACHINE_KEY, _DEFAULT_MACHINE)).model_dump(mode="json")
        else:
            content["data"] = _data_digest()
        content["files"] = {name: hashlib.sha256(Path(value).read_bytes()).hexdigest()
                            for name, value in self.options.items() if isinstance(value, str) and Path(value).is_file()}
        return json.dumps(content, sort_keys=True)


@cache
def options_of(command: str) -> dict[str, bool]:
    """The options of a command that a study may set, without dashes, and whether each is a flag."""
    from typer.main import get_command

    from t3sim.cli import app

    parameters = get_command(app).commands[command].params
    return {word.removeprefix("--"): bool(getattr(parameter, "is_bool_flag", False))
            for parameter in parameters for word in parameter.opts
            if word.startswith("--") and word.removeprefix("--") not in _OWN}


def _option(words: list[str], name: str, default: str) -> str:
    start = f"--{name}="
    return next((word.removeprefix(start) for word in words if word.startswith(start)), default)


def _check_run(words: list[str]) -> None:
    """As `t3 run` checks its options."""
    from t3sim.commands.run import asked_workload
    from t3sim.machine import load_machine
    from t3sim.study.results import check_policy, check_techniques

    def given(name: str) -> str | None:
        return _option(words, name, "") or None

    def number(name: str) -> int | None:
        text = given(name)
        if text is not None and not text.isdecimal():
            raise BadInput(f"--{name} {text!r} is not a whole number")
        return None if text is None else int(text)
    asked_workload(given("model"), given("sublayer"), number("tp"), given("gemm"), number("devices"))
    if technique := given("technique"):
        check_techniques(name.strip() for name in technique.split(","))
    check_policy(given("policy"))
    load_machine(_option(words, MACHINE_KEY, _DEFAULT_MACHINE))


@cache
def _data_digest() -> str:
    """Of the numbers that come with the package."""
    state = hashlib.sha256()
    for path in sorted(path for kind in ("toml", "csv", "json") for path in _PACKAGE.rglob(f"*.{kind}")):
        state.update(f"{path.relative_to(_PACKAGE)}\n".encode() + path.read_bytes())
    return state.hexdigest()
