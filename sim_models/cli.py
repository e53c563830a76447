"""The command line `t3`: the subcommands of `sim_models/commands`, and what ends a command early.

One file per subcommand lives there; this one only assembles them, and turns whatever ends a command early into one
line and an exit code:

0 done; 1 the work failed (no compiler, a self-check); 2 bad input; 70 a fault of t3 itself; 130 interrupted; 143 ended
by SIGTERM.
"""

import errno
import functools
import gc
import os
import shlex
import signal
import sys
import tempfile
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

import typer
from typer.core import TyperCommand, TyperGroup
from typer.exceptions import Abort, Exit, TyperException

from t3sim.commands.area import area
from t3sim.commands.bench import bench
from t3sim.commands.cache import cache
from t3sim.commands.collective import collective
from t3sim.commands.compare import compare
from t3sim.commands.dma import dma
from t3sim.commands.end_to_end import end_to_end
from t3sim.commands.explain import explain
from t3sim.commands.flags import in_dashes
from t3sim.commands.hbm_replay import hbm_replay
from t3sim.commands.kernel import kernel
from t3sim.commands.machines import machines
from t3sim.commands.options import check_outputs
from t3sim.commands.overlap import overlap
from t3sim.commands.registers import registers
from t3sim.commands.reproduce import reproduce
from t3sim.commands.run import run
from t3sim.commands.step import step
from t3sim.commands.sweep import sweep
from t3sim.commands.techniques import techniques
from t3sim.commands.trace import trace
from t3sim.commands.validate import validate
from t3sim.commands.verilog import verilog
from t3sim.errors import InScenario, is_ours, printable, shortened, shown
from t3sim.extras import install_line
from t3sim.streams import STANDARD_OUTPUT, discard_output, prepare_streams
from t3sim.trimmed import Trimmed

_COMMANDS = {"run": run, "kernel": kernel, "techniques": techniques, "trace": trace, "explain": explain, "step": step,
             "reproduce": reproduce, "sweep": sweep, "compare": compare, "collective": collective, "dma": dma,
             "end-to-end": end_to_end, "bench": bench, "overlap": overlap, "validate": validate,
             "hbm-replay": hbm_replay, "verilog": verilog, "registers": registers,
             "machines": machines, "area": area, "cache": cache}


def _quiet_flags(parameters: list) -> list:
    """Return the parameters, without the name of a value after a flag in the help."""
    for parameter in parameters:
        if getattr(parameter, "is_bool_flag", False):
            parameter.metavar = ""
    return parameters


class _Help:
    """Look of a command's help page."""

    def get_params(self, ctx):
        return _quiet_flags(super().get_params(ctx))

    def format_help(self, ctx, formatter):
        with redirect_stdout(sys.stdout if sys.stdout.isatty() else Trimmed(sys.stdout)):
            super().format_help(ctx, formatter)


class _Command(_Help, TyperCommand):
    def invoke(self, ctx):
        given = {parameter.opts[0]: str(value) for parameter in self.params
                 if isinstance(value := ctx.params.get(parameter.name), str | Path)}
        check_outputs(given)
        return super().invoke(ctx)


class _Group(_Help, TyperGroup):
    pass


app = typer.Typer(
    name="t3", cls=_Group, pretty_exceptions_enable=False, rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
    help="T3's Track & Trigger hardware as real RTL, co-simulated with models of the GPUs around it.")
for _name, _function in _COMMANDS.items():
    app.command(_name, cls=_Command)(_function)

INTERRUPTED = 130  #: what shells give for SIGINT
FAULT = 70  #: EX_SOFTWARE of sysexits.h
#: Objects made between looks for garbage. Python's own 700 cost a fifth of a small run: imports make, and keep, most.
_ALLOCATIONS = 50_000

_SOURCES = str(Path(__file__).parent)  #: of the package: where a fault is looked for

#: What the system answers to a name that cannot be a file's: bad input, where a full disk is not.
_NO_PATH = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS}


def _print_version(wanted: bool) -> None:
    if wanted:
        from t3sim.support.output import collect_versions

        print(f"t3sim {collect_versions()['t3sim']}")
        raise Exit


@app.callback()
def _options(
    version: bool = typer.Option(False, "--version", is_eager=True, callback=_print_version, help="Show the version."),
) -> None:
    pass


def _complain(message: str) -> None:
    """Print one line, whatever the message was, in which no value pushes out what is allowed."""
    print(f"t3: error: {printable(shortened(' '.join(message.split()).rstrip('.')))}", file=sys.stderr)


def _usage_message(error: TyperException) -> str:
    message = error.format_message().rstrip(".")
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "t3"
    return f"{message} (see {path} --help)"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line, as the console script's entry point; returns the exit code."""
    prepare_streams()
    gc.set_threshold(_ALLOCATIONS)
    arguments = list(sys.argv[1:] if arguments is None else arguments) or ["--help"]
    with _told_to_end() as (told, dropped):
        return _run(arguments, told, dropped)


@contextmanager
def _told_to_end() -> Iterator[tuple[list[int], list[int]]]:
    """Take SIGTERM and SIGHUP as Ctrl-C, so that nothing stays half-written.

    Gives the signals that came, and those that foreign code dropped, which come again.

    A terminal that is gone sends SIGHUP. What comes after the first signal is too late: it does not disturb the tidying
    up, in which half-made objects and compilers' callbacks say nothing.
    """
    told: list[int] = []
    dropped: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        told.append(number)
        if len(told) == 1:
            warnings.simplefilter("ignore")
            raise KeyboardInterrupt

    def in_a_callback(what) -> None:
        """Take what an exception was that met foreign code, which drops it: an interrupt comes again."""
        if not told:
            hook(what)
        elif issubclass(what.exc_type, KeyboardInterrupt):
            number = told[0]
            told.clear()
            dropped.append(number)
            threading.Timer(0.05, os.kill, (os.getpid(), number)).start()

    before, hook = {}, sys.unraisablehook
    if threading.current_thread() is threading.main_thread():
        for number, default in ((signal.SIGTERM, signal.SIG_DFL), (signal.SIGHUP, signal.SIG_DFL),
                                (signal.SIGINT, signal.default_int_handler)):
            if signal.getsignal(number) is default:  # a handler of others, and what nohup ignores, stay
                before[number] = signal.signal(number, interrupt)
        sys.unraisablehook = in_a_callback
    try:
        with warnings.catch_warnings():
            yield told, dropped
    finally:
        sys.unraisablehook = hook
        for number, handler in before.items():
            signal.signal(number, handler)


@functools.cache
def _command() -> TyperCommand:
    """Return the whole of `t3`, built once for all calls of a process."""
    return typer.main.get_command(app)


def _called(arguments: list[str], dropped: list[int]) -> object:
    """Run a command; what fails since foreign code dropped an interrupt waits until that comes again."""
    try:
        return _command().main(args=arguments, prog_name="t3", standalone_mode=False)
    except RuntimeError:
        if dropped:
            time.sleep(1)
        raise


def _run(arguments: list[str], told: list[int], dropped: list[int]) -> int:
    """Run a command; returns the exit code. `told`, `dropped`: as in `_told_to_end`."""
    try:
        code = _called(arguments, dropped)
        sys.stdout.flush()
        if code == INTERRUPTED:  # typer's reading of KeyboardInterrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except (KeyboardInterrupt, Abort):
        code = 128 + told[0] if told else INTERRUPTED
        print(f"t3: {'interrupted' if code == INTERRUPTED else 'terminated'}", file=sys.stderr)
        return code
    except TyperException as error:
        _complain(_usage_message(error))
        return 2
    except BrokenPipeError:  # the reader of our output left
        discard_output()
        return 1
    except (ValueError, RuntimeError) as error:
        if not is_ours(error):
            if isinstance(links := error.__context__, OSError) and links.errno == errno.ELOOP:  # Path.resolve's
                return _ended_by(links)
            return _report_fault(error, arguments)
        gpus = getattr(error, "gpus", ())
        told = str(error).partition(":")[0] if gpus else str(error)
        _complain(told if isinstance(error, InScenario) else in_dashes(told))
        if gpus:
            from t3sim.study.report import print_gpus

            print_gpus(gpus)
        return 2 if isinstance(error, ValueError) else 1
    except ModuleNotFoundError as error:
        if (install := install_line(error.name or "")) is None:
            return _report_fault(error, arguments)
        _complain(f"this needs {error.name}, which is not installed: {install}")
        return 1
    except OSError as error:
        return _ended_by(error)
    except MemoryError:
        _complain("the memory that this process may have is used up")
        return 1
    except Exception as error:
        return _report_fault(error, arguments)


def _ended_by(error: OSError) -> int:
    """Print what the system answered, and to which file; returns the exit code."""
    if error.filename == STANDARD_OUTPUT:
        discard_output()
    _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return 2 if error.errno in _NO_PATH else 1


def _report_fault(error: Exception, arguments: list[str]) -> int:
    """Print one line for an exception that is no message, and name the file that holds all of it."""
    where = [frame for frame in traceback.extract_tb(error.__traceback__) if _SOURCES in frame.filename]
    told = f"{type(error).__name__} {shown(str(error))}" + (
        f" in {Path(where[-1].filename).name}, line {where[-1].lineno}" if where else "")
    text = f"t3 {shlex.join(arguments)}\n{''.join(traceback.format_exception(error))}"
    try:
        with tempfile.NamedTemporaryFile("w", prefix="t3-fault-", suffix=".txt", delete=False,
                                         errors="backslashreplace") as file:
            file.write(text)
    except OSError:
        print(text, file=sys.stderr)
        return FAULT
    _complain(f"a fault of t3 itself, please report it: {told}; all about it is in {file.name}")
    return FAULT


if __name__ == "__main__":
    sys.exit(main())
