"""The command line `t3`: it turns whatever ends a command early into one line and an exit code.

The commands are in `sim_models/commands`, imported once signals are handled; whatever is imported before that is light.

0 done; 1 the work failed (no compiler, a self-check); 2 bad input; 70 a fault of t3 itself; 130 interrupted; 143 ended
by SIGTERM.
"""

import errno
import gc
import os
import shlex
import signal
import sys
import threading
import time
import traceback
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from t3sim.base.errors import Failure, InFile, is_ours, printable, said_by, shortened, shown
from t3sim.base.streams import STANDARD_OUTPUT, discard_output, prepare_streams

if TYPE_CHECKING:
    from typer.exceptions import TyperException

INTERRUPTED = 130  #: what shells give for SIGINT
FAULT = 70  #: EX_SOFTWARE of sysexits.h
#: Objects made between looks for garbage. Python's own 700 cost a fifth of a small run: imports make, and keep, most.
_ALLOCATIONS = 50_000

_LEAST_BYTES = 1_000_000_000  #: that a process must be allowed: LLVM, OpenBLAS and Verilator's code abort without

_SOURCES = str(Path(__file__).parent)  #: of the package: where a fault is looked for

#: What the system answers to a name that cannot be a file's: bad input, where a full disk is not.
_NO_PATH = {errno.ENAMETOOLONG, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.EACCES, errno.EPERM, errno.EROFS}


def _complain(message: str) -> None:
    """Print one line, whatever the message was, in which no value pushes out what is allowed."""
    print(f"t3: error: {printable(shortened(' '.join(message.split()).rstrip('.')))}", file=sys.stderr)


def _usage_message(error: "TyperException") -> str:
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


def _check_memory() -> None:
    """Refuse a process that may have less than the compilers and libraries take, which then abort. Raises Failure."""
    from t3sim.base.cores import memory_bytes

    if (allowed := memory_bytes()) < _LEAST_BYTES:
        raise Failure(f"this process may have {allowed / 1e9:.1f} GB of memory (ulimit): {_LEAST_BYTES / 1e9:.0f} "
                      "GB are needed")


def _called(arguments: list[str], dropped: list[int]) -> object:
    """Run a command; what fails since foreign code dropped an interrupt waits until that comes again."""
    from typer.exceptions import Abort, TyperException

    from t3sim.commands.app import group

    try:
        return group().main(args=arguments, prog_name="t3", standalone_mode=False)
    except Abort:
        raise KeyboardInterrupt from None
    except TyperException as error:
        _complain(_usage_message(error))
        return 2
    except RuntimeError:
        if dropped:
            time.sleep(1)
        raise


def _run(arguments: list[str], told: list[int], dropped: list[int]) -> int:
    """Run a command; returns the exit code. `told`, `dropped`: as in `_told_to_end`."""
    try:
        _check_memory()
        code = _called(arguments, dropped)
        sys.stdout.flush()
        if code == INTERRUPTED:  # typer's reading of KeyboardInterrupt
            raise KeyboardInterrupt
        return code if isinstance(code, int) else 0
    except KeyboardInterrupt:
        code = 128 + told[0] if told else INTERRUPTED
        print(f"t3: {'interrupted' if code == INTERRUPTED else 'terminated'}", file=sys.stderr)
        return code
    except BrokenPipeError:  # the reader of our output left
        discard_output()
        return 1
    except (ValueError, RuntimeError) as error:
        if not is_ours(error):
            if isinstance(links := error.__context__, OSError) and links.errno == errno.ELOOP:  # Path.resolve's
                return _ended_by(links)
            return _report_fault(error, arguments)
        gpus = getattr(error, "gpus", ())
        _complain(str(error).partition(":")[0] if gpus else _in_options(error, arguments[0]))
        if gpus:
            from t3sim.base.console import print_gpus

            print_gpus(gpus)
        return 2 if isinstance(error, ValueError) else 1
    except ModuleNotFoundError as error:
        from t3sim.base.extras import install_line

        if (install := install_line(error.name or "")) is None:
            return _report_fault(error, arguments)
        _complain(f"this needs {error.name}, which is not installed: {install}")
        return 1
    except OSError as error:
        return _ended_by(error)
    except MemoryError:
        _complain("the memory that this process may have is used up")
        return 1
    except BaseException as error:  # whoever calls sys.exit has not done what was asked, but for typer's completion
        if isinstance(error.__context__, BrokenPipeError):  # the same, as rich tells typer's help
            discard_output()
            return 1
        last = traceback.extract_tb(error.__traceback__)[-1]
        if isinstance(error, SystemExit) and "typer" in Path(last.filename).parts:
            raise
        return _report_fault(error, arguments)


def _in_options(error: Exception, command: str) -> str:
    """Return an error's message with keys as options, but for those of a file."""
    if not isinstance(error, ValueError) or isinstance(error, InFile):
        return str(error)
    try:
        from t3sim.commands.app import in_options_of

        return in_options_of(command, str(error))
    except ValueError:  # it is of a part of another distribution, without which there are no commands
        return str(error)


def _ended_by(error: OSError) -> int:
    """Print what the system answered, and to which file; returns the exit code."""
    if error.filename == STANDARD_OUTPUT:
        discard_output()
    if error.errno == errno.ENOENT and not error.filename and not _in_a_folder():
        _complain("the current folder is not there any more: go to one that is")
        return 2
    _complain(f"{error.filename}: {error.strerror}" if error.filename else str(error))
    return 2 if error.errno in _NO_PATH else 1


def _in_a_folder() -> bool:
    try:
        return bool(os.getcwd())
    except OSError:
        return False


def _report_fault(error: BaseException, arguments: list[str]) -> int:
    """Print one line for an exception that is no message, and name the file that holds all of it.

    One that a user's part met is that part's.
    """
    import tempfile

    from t3sim.base.custom import fault_of_a_part

    if (fault := fault_of_a_part(error)) is not None:
        _complain(fault)
        return 2
    where = [frame for frame in traceback.extract_tb(error.__traceback__) if _SOURCES in frame.filename]
    told = f"{type(error).__name__} {shown(said_by(error))}" + (
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
