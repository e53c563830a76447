"""The settings of one point of a study: a command's options and what differs from its machine."""

import hashlib
import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum, auto
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from t3sim.errors import BadInput, choices, shown

if TYPE_CHECKING:
    from t3sim.machine import Machine
    from t3sim.machine.tiles import Node

Scalar = bool | int | float | str
MACHINE_KEY = "machine"  #: `machine` is its name or file, `machine.SECTION.KEY` what differs from it
#: Commands whose answer is a result, and the same each time: not those that record, keep, show, or measure this host.
COMMANDS = ("run", "dma", "collective", "end-to-end", "area", "hbm-replay", "explain")
#: Those whose machine is that of the cycle level; a study can change its numbers.
CHANGEABLE = ("run", "area", "hbm-replay")
#: Options that a study sets itself, or that write files of their own.
_OWN = ("json", "out", "help", "timeline", "plot", "markdown", "record", "compare", "write-plan", "jobs",
        "set", "scenario")
_DEFAULT_MACHINE = "t3-table1"
_PACKAGE = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Settings:
    """The settings of one point."""

    command: str
    values: dict[str, Scalar]

    @property
    def changes(self) -> dict[str, Scalar]:
        """The differences from the machine, by SECTION.KEY."""
        return {name.removeprefix(f"{MACHINE_KEY}."): value for name, value in self.values.items()
                if name.startswith(f"{MACHINE_KEY}.")}

    @property
    def options(self) -> dict[str, Scalar]:
        return {name: value for name, value in self.values.items() if not name.startswith(f"{MACHINE_KEY}.")}

    @property
    def event_level(self) -> bool:
        """Say whether it is `t3 run --level event`, whose machines are others."""
        return self.command == "run" and self.values.get("level") == "event"

    @contextmanager
    def arguments(self) -> Iterator[list[str]]:
        """Give the command line of this point; the machine file that it may name is there meanwhile."""
        with TemporaryDirectory(prefix="t3-point-") as folder:
            options = dict(self.options)
            if self.changes:
                file = Path(folder) / "machine.toml"
                file.write_text(self._machine_file(str(options.get(MACHINE_KEY, _DEFAULT_MACHINE))), encoding="utf-8")
                options[MACHINE_KEY] = str(file)
            known = options_of(self.command)
            words = [word for name, value in options.items() if (word := known[name].word(name, value))]
            arguments = [str(options[name]) for name, kind in known.items()
                         if kind is Kind.ARGUMENT and name in options]
            yield [self.command, *words, *(["--", *arguments] if arguments else ())]

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
            flag = allowed[name] in (Kind.FLAG, Kind.SWITCH)
            if isinstance(value, bool) != flag:
                allowed_kind = "true or false" if flag else "a number or a word"
                raise BadInput(f"{name} = {shown(value)}: {allowed_kind} is allowed")
        if self.changes and self.command not in CHANGEABLE:
            raise BadInput(f"{MACHINE_KEY}.{next(iter(self.changes))} goes with {', '.join(CHANGEABLE)} only: "
                           f"for {self.command} give the machine as a file")
        if self.command == "run":
            _check_run(self.options, self._node().gpus if self.event_level else None)
        if not self.event_level and (self.changes or self.command == "run"):
            self._machine()

    def _machine(self) -> "Machine":
        """Load the point's machine, with its changes. Raises BadInput."""
        from t3sim.machine import load_machine

        return self._loaded(load_machine)

    def _node(self) -> "Node":
        """Load the point's machine on the event level, with its changes. Raises BadInput."""
        from t3sim.machine.levels import load_tiles

        return self._loaded(load_tiles)

    def _loaded(self, load: Callable[[str], Any]) -> Any:
        with self.arguments() as words:
            named = _option(words, MACHINE_KEY, _DEFAULT_MACHINE)
            try:
                return load(named)
            except ValueError as error:
                if not self.changes:
                    raise
                # The file is gone when this is read.
                raise BadInput(str(error).replace(named, "the point's machine")) from None

    def state(self) -> str:
        """Write everything outside the program that the result depends on, for a key.

        That is the settings, the machine with all of its numbers, and the content of files that options name.
        """
        content: dict[str, Any] = {"command": self.command, "settings": self.values}
        if self.command in CHANGEABLE:
            content["machine"] = (self._node() if self.event_level else self._machine()).model_dump(mode="json")
        else:
            content["data"] = _data_digest()
        content["files"] = {name: _digest(Path(value)) for name, value in self.options.items()
                            if isinstance(value, str) and Path(value).exists()}
        return json.dumps(content, sort_keys=True)


class Kind(Enum):
    """How a setting is given on the command line."""

    ARGUMENT = auto()
    FLAG = auto()  #: `--every-gpu`, or nothing
    SWITCH = auto()  #: `--fpga` or `--no-fpga`
    VALUE = auto()

    def word(self, name: str, value: Scalar) -> str:
        """Write an option; nothing for a flag that is off, and for an argument, which stands after the options."""
        if self is Kind.VALUE:
            return f"--{name}={value}"
        if self is Kind.ARGUMENT or self is Kind.FLAG and not value:
            return ""
        return f"--{name}" if value else f"--no-{name}"


@cache
def options_of(command: str) -> dict[str, Kind]:
    """Return the arguments and options of a command that a study may set, without dashes."""
    from typer.main import get_command

    from t3sim.cli import app

    found: dict[str, Kind] = {}
    for parameter in get_command(app).commands[command].params:
        if parameter.param_type_name == "argument":
            found[parameter.name] = Kind.ARGUMENT
            continue
        kind = Kind.VALUE
        if getattr(parameter, "is_bool_flag", False):
            kind = Kind.SWITCH if parameter.secondary_opts else Kind.FLAG
        found |= {word.removeprefix("--"): kind for word in parameter.opts if word.startswith("--")}
    return {name: kind for name, kind in found.items() if name not in _OWN}


def _option(words: list[str], name: str, default: str) -> str:
    start = f"--{name}="
    return next((word.removeprefix(start) for word in words if word.startswith(start)), default)


def _check_run(options: dict[str, Scalar], gpus: int | None) -> None:
    """Check what `t3 run` computes, by which techniques, under which policy; `gpus`: of the event level's machine."""
    from t3sim.commands.flags import keys_of
    from t3sim.scenario.collective import CollectiveAlone
    from t3sim.scenario.files import scenario_of
    from t3sim.scenario.layers import is_alone, is_collective, workloads_of
    from t3sim.scenario.request import check_level, check_policy, check_techniques
    from t3sim.workloads import gemm_workload

    scenario = scenario_of({}, keys_of(options))
    check_level(scenario)
    layer = scenario.layer
    if is_collective(layer):
        CollectiveAlone(scenario)
        return
    if gpus is not None:
        if layer.gemm is not None:
            gemm_workload(layer.gemm, gpus if layer.devices is None else layer.devices)
        return
    if not is_alone(layer):
        workloads_of(layer, scenario.seed)
    check_techniques(scenario.techniques or ())
    check_policy(scenario.t3.policy)


def _digest(path: Path) -> str:
    """Return the digest of a file, or of all in a folder."""
    state = hashlib.sha256()
    for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
        if file.is_file():
            state.update(f"{file.relative_to(path)}\n".encode() + file.read_bytes())
    return state.hexdigest()


@cache
def _data_digest() -> str:
    """Return the digest of the numbers that come with the package."""
    state = hashlib.sha256()
    for path in sorted(path for kind in ("toml", "csv", "json") for path in _PACKAGE.rglob(f"*.{kind}")):
        state.update(f"{path.relative_to(_PACKAGE)}\n".encode() + path.read_bytes())
    return state.hexdigest()
