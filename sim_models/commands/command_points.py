"""Points of a study of another command than `t3 run`: its command line, run in a worker's process."""

import contextlib
import hashlib
import io
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption
from typer.exceptions import TyperException

from t3sim.base.cache import digest
from t3sim.base.errors import BadInput, Failure, choices, shown
from t3sim.commands.area import area
from t3sim.commands.collective import collective
from t3sim.commands.dma import dma
from t3sim.commands.end_to_end import end_to_end
from t3sim.commands.explain import explain
from t3sim.commands.hbm_replay import hbm_replay
from t3sim.study.sweeps.point import MACHINE_KEY, Scalar, WholeAnswer, digest_of_files, flat
from t3sim.study.tasks.sources import source_digest

if TYPE_CHECKING:
    from t3sim.machine import Machine
    from t3sim.study.tasks.task import BuildTask, Task, WarmUpTask

#: Those that a study can run: `study.COMMANDS` but for run, which is a scenario.
FUNCTIONS = {"dma": dma, "collective": collective, "end-to-end": end_to_end, "area": area, "hbm-replay": hbm_replay,
             "explain": explain}
#: Those whose machine is that of the cycle level; a study can change its numbers.
CHANGEABLE = ("area", "hbm-replay")
#: Options that a study sets itself, or that write files of their own.
_OWN = ("json", "out", "help", "timeline", "plot", "markdown", "record", "compare", "write-plan", "jobs")
_DEFAULT_MACHINE = "t3-table1"
_PACKAGE = Path(__file__).resolve().parents[1]


class CommandPoint:
    """A point that is a command with its options."""

    def __init__(self, command: str, values: dict[str, Scalar]) -> None:
        self.values = values
        task = CommandTask(command, values)
        task.check()
        self.tasks: tuple[Task, ...] = (task,)

    def answer(self, results: Mapping[str, Any]) -> dict[str, Scalar | None]:
        """Return what the command answered."""
        return results[self.tasks[0].key].values

    def warm_up(self) -> "WarmUpTask | None":
        """Compile nothing."""
        return None


@dataclass(frozen=True, eq=False)
class CommandTask:
    """A command, its options, and what differs from its machine."""

    command: str
    values: dict[str, Scalar]

    result_type = WholeAnswer
    needs_rtl = False
    requires: "tuple[BuildTask, ...]" = ()
    seconds = 10.0  #: a guess, alike for all: which is the longest is not known before

    @cached_property
    def key(self) -> str:
        module = f"t3sim.commands.{self.command.replace('-', '_')}"
        return f"{self.command}-{digest(self.state(), source_digest(module, rtl=self.command == 'area'))}"

    @property
    def label(self) -> str:
        return ", ".join(f"{name} = {value}" for name, value in self.values.items()) or self.command

    @property
    def description(self) -> dict[str, Any]:
        return {"command": self.command, "settings": self.values}

    @property
    def _changes(self) -> dict[str, Scalar]:
        """The differences from the machine, by SECTION.KEY."""
        return {name.removeprefix(f"{MACHINE_KEY}."): value for name, value in self.values.items()
                if name.startswith(f"{MACHINE_KEY}.")}

    @property
    def _options(self) -> dict[str, Scalar]:
        return {name: value for name, value in self.values.items() if not name.startswith(f"{MACHINE_KEY}.")}

    def run(self, progress: Callable[[float], None]) -> WholeAnswer:
        """Run the command and return its answer. Raises Failure with its error line."""
        errors = io.StringIO()
        with TemporaryDirectory(prefix="t3-point-") as folder, self.arguments() as words:
            answer = Path(folder) / "answer.json"
            with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(errors):
                code = _called(self.command, [f"--json={answer}", *words[1:]])  # an argument is the last
            if code:
                raise Failure((errors.getvalue().strip().splitlines() or [f"exit code {code}"])[-1])
            content = json.loads(answer.read_text(encoding="utf-8"))
        return WholeAnswer(flat(content))

    @contextmanager
    def arguments(self) -> Iterator[list[str]]:
        """Give the command line; the machine file that it may name is there meanwhile."""
        with TemporaryDirectory(prefix="t3-point-") as folder:
            options = dict(self._options)
            if self._changes:
                file = Path(folder) / "machine.toml"
                file.write_text(self._machine_file(str(options.get(MACHINE_KEY, _DEFAULT_MACHINE))), encoding="utf-8")
                options[MACHINE_KEY] = str(file)
            known = options_of(self.command)
            named = [name for name in known if isinstance(known[name], TyperArgument)]
            words = [_word(known[name], name, value) for name, value in options.items() if name not in named]
            arguments = [str(options[name]) for name in named if name in options]
            yield [self.command, *filter(None, words), *(["--", *arguments] if arguments else ())]

    def _machine_file(self, base: str) -> str:
        from t3sim.machine.files import PRESETS, preset

        extended = base if preset(base) in PRESETS else str(Path(base).resolve())
        lines = [f"extends = {json.dumps(extended)}"]
        lines += [f"{name} = {json.dumps(value)}" for name, value in self._changes.items()]
        return "\n".join(lines) + "\n"

    def check(self) -> None:
        """Refuse what cannot be run, before anything is. Raises BadInput."""
        allowed = options_of(self.command)
        for name, value in self._options.items():
            if name not in allowed:
                raise BadInput(f"{shown(name)} is no option of `t3 {self.command}`: allowed are "
                               f"{choices(name, allowed)}")
            flag = getattr(allowed[name], "is_bool_flag", False)
            if isinstance(value, bool) != flag:
                allowed_kind = "true or false" if flag else "a number or a word"
                raise BadInput(f"{name} = {shown(value)}: {allowed_kind} is allowed")
        if self._changes:
            if self.command not in CHANGEABLE:
                raise BadInput(f"{MACHINE_KEY}.{next(iter(self._changes))} goes with run, {', '.join(CHANGEABLE)} "
                               f"only: for {self.command} give the machine as a file")
            self._machine()

    def _machine(self) -> "Machine":
        """Load the machine, with its changes. Raises MachineError."""
        from t3sim.study.scenario.files import scenario_of
        from t3sim.study.scenario.request import machine_of

        named = {MACHINE_KEY: self.values.get(MACHINE_KEY, _DEFAULT_MACHINE)}
        return machine_of(scenario_of({}, named | {f"{MACHINE_KEY}.{name}": value
                                                   for name, value in self._changes.items()}))

    def state(self) -> str:
        """Write everything outside the program that the result depends on, for a key.

        That is the settings, the machine with all of its numbers, and the content of files that options name.
        """
        content: dict[str, Any] = dict(self.description)
        if self.command in CHANGEABLE:
            content["machine"] = self._machine().model_dump(mode="json")
        else:
            content["data"] = _data_digest()
        content["files"] = {name: digest_of_files(Path(value)) for name, value in self._options.items()
                            if isinstance(value, str) and Path(value).exists()}
        return json.dumps(content, sort_keys=True)


@cache
def _command(name: str) -> TyperCommand:
    """Make a command that stands alone, of its function."""
    app = typer.Typer(add_completion=False)
    app.command(name)(FUNCTIONS[name])
    return typer.main.get_command(app)  # type: ignore[return-value]


def _called(command: str, words: list[str]) -> int:
    """Run a command; returns its exit code. Raises Failure, and what the command refuses."""
    try:
        return _command(command).main(args=words, standalone_mode=False) or 0
    except TyperException as error:
        raise Failure(error.format_message()) from None
    except OSError as error:
        raise Failure(f"{error.filename}: {error.strerror}" if error.filename else str(error)) from None


@cache
def options_of(command: str) -> dict[str, TyperArgument | TyperOption]:
    """Return the arguments and options of a command that a study may set, without dashes."""
    parameters = {}
    for one in _command(command).params:
        words = [one.name] if isinstance(one, TyperArgument) else one.opts
        parameters |= {word.removeprefix("--"): one for word in words if word.startswith("--") or word == one.name}
    return {name: one for name, one in parameters.items() if name not in _OWN}


def _word(option: TyperArgument | TyperOption, name: str, value: Scalar) -> str:
    """Write an option of the command line; nothing for a flag that is off, `--no-fpga` for a switch that is."""
    if not getattr(option, "is_bool_flag", False):
        return f"--{name}={value}"
    return f"--{name}" if value else f"--no-{name}" if option.secondary_opts else ""


@cache
def _data_digest() -> str:
    """Return the digest of the numbers that come with the package."""
    state = hashlib.sha256()
    for path in sorted(path for kind in ("toml", "csv", "json") for path in _PACKAGE.rglob(f"*.{kind}")):
        state.update(f"{path.relative_to(_PACKAGE)}\n".encode() + path.read_bytes())
    return state.hexdigest()
