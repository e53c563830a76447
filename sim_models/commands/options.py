"""Options that several commands share."""

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from t3sim.base.cores import cores
from t3sim.base.errors import BadInput, printable
from t3sim.base.numerals import decimal, whole
from t3sim.base.streams import discard_output, output_is_closed
from t3sim.base.user_cache import may_be_written

if TYPE_CHECKING:
    from t3sim.study.tasks.estimate import Estimate, Sized
    from t3sim.workload.transformer import Transformer


def whole_number(text: str | int) -> int:
    """Parse an option's whole number; its error names the value."""
    try:
        return whole(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def decimal_number(text: str | float) -> float:
    """Parse an option's decimal number; its error names the value."""
    try:
        return decimal(str(text))
    except ValueError as error:
        raise typer.BadParameter(str(error)) from None


def natural_number(text: str | int) -> int:
    """Parse a whole number that cannot be negative."""
    number = whole_number(text)
    if number < 0:
        raise typer.BadParameter(f"{number} is not possible: 0 or more")
    return number


def simulations_at_once(jobs: int | None) -> int:
    """Give what `--jobs` means: as many as cores if it is not given. Raises BadInput."""
    if jobs is None:
        return cores()
    if not 1 <= jobs <= 1024:
        raise BadInput(f"--jobs {jobs} is not possible: 1 to 1024")
    return jobs


def check_estimate(estimate: "Estimate", workload: "Sized", insist: bool) -> None:
    """Refuse what takes more than a day, or more memory than this host has, without `--insist`. Raises BadInput."""
    from t3sim.study.tasks.estimate import check

    try:
        check(estimate, workload)
    except BadInput as error:
        if not insist:
            raise BadInput(f"{error}; --insist runs it anyway") from None


def file_name(text: str) -> str:
    """Parse a file's or a folder's name: what no file can be called is refused before any work."""
    if not text.strip():
        raise typer.BadParameter(f"{text!r} is empty: give a name")
    if "\0" in text or any(len(os.fsencode(part)) > 255 for part in text.split("/")) or len(os.fsencode(text)) > 4095:
        raise typer.BadParameter(f"{text!r} cannot be a name: at most 255 bytes between slashes are allowed")
    return text


def folder_name(text: str | Path) -> Path:
    """Parse the name of a folder as a path: no file, and an empty name is not the current folder."""
    path = Path(file_name(str(text)))
    existing = next(folder for folder in (path, *path.parents) if os.path.exists(folder))  # "." or "/" at the latest
    if not existing.is_dir():
        raise typer.BadParameter(f"{str(existing)!r} is not a folder")
    return path


def recording_name(text: str | Path) -> Path:
    """Parse the name of a trace's folder, or of a recording, which is a file."""
    path = Path(file_name(str(text)))
    return path if path.is_file() else folder_name(path)


def trace_folder(path: Path) -> Path:
    """Return the folder of a trace; that of a recording is written first. Raises BadInput."""
    if not path.is_file():
        return path
    from t3sim.trace.library import library_trace

    return library_trace(path)


_SIZE_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


def size_in_bytes(text: str | int) -> int:
    """Parse a size: 65536 or 64K; its error names the value."""
    match = re.fullmatch(r"(\d{1,12})([KMGT])", str(text).strip(), re.ASCII)
    return int(match[1]) << _SIZE_UNITS[match[2]] if match else whole_number(text)


def size_range(text: str) -> list[int]:
    """Parse what `--sizes` means: 64K, or 1K:1G, which doubles from the first to the last. Raises BadInput."""
    bounds = []
    for part in text.split(":"):
        match = re.fullmatch(r"(\d{1,12})([KMGT]?)", part.strip(), re.ASCII)
        size = int(match[1]) << _SIZE_UNITS[match[2]] if match else 0
        if not 1024 <= size <= 1 << 40:
            raise BadInput(f"--sizes {part[:40]!r} is not possible: 1K to 1T, as in 1K:1G")
        bounds.append(size)
    if len(bounds) > 2 or bounds[0] > bounds[-1]:
        raise BadInput(f"--sizes {text[:40]!r} is not SIZE or SIZE:SIZE, the smaller first")
    sizes = [bounds[0]]
    while sizes[-1] * 2 <= bounds[-1]:
        sizes.append(sizes[-1] * 2)
    return sizes


def shown_size(size: int) -> str:
    """Write a size as people read it: 64 KB."""
    for unit, bits in (("GB", 30), ("MB", 20), ("KB", 10)):
        if size >> bits and not size % (1 << bits):
            return f"{size >> bits} {unit}"
    return f"{size} B"


JsonOption = Annotated[str | None, typer.Option(
    "--json", metavar="FILE", parser=file_name,
    help="Write the results as JSON to FILE; - writes only JSON to standard output.")]
MachineOption = Annotated[str, typer.Option(
    "--machine", metavar="NAME|FILE", parser=file_name, help="A machine by name, or a TOML file.")]
SeedOption = Annotated[int, typer.Option(
    "--seed", metavar="N", parser=natural_number, help="Random seed.")]
AllowCodeOption = Annotated[bool, typer.Option(
    "--allow-code", help="Allow a file to call Python functions: module:name.")]
GeometryOption = Annotated[str | None, typer.Option(
    "--geometry", "-g", metavar="SIZE=N,...", help="Override sizes of the machine: ways=4,channels=8.")]


#: Options that name what is written: a folder, or calibrate's file; then files.
OUTPUTS = ("--out", "--json", "--plot", "--markdown", "--timeline", "--write-plan")


_STANDARD_OUTPUT = ("-", "/dev/stdout", "/dev/fd/1", "/proc/self/fd/1")


def check_outputs(outputs: dict[str, str]) -> None:
    """Refuse, before any work, files that cannot be written, and outputs that would take the place of another file.

    A folder where no files can be made is refused, too, and standard output that is closed.

    `outputs`: what options and arguments name, also what is no file. Raises BadInput.
    """
    for option in OUTPUTS if output_is_closed() else ():
        if outputs.get(option) in _STANDARD_OUTPUT:
            raise BadInput(f"{option} {outputs[option]}: standard output is closed")
    for option in OUTPUTS[1:]:
        if (target := outputs.get(option, "-")) != "-":
            check_target(option, target)
    at = {option: Path(os.path.realpath(name)) for option, name in outputs.items() if name != "-"}
    if "--out" in at and not os.path.isfile(at["--out"]) and not may_be_written(at["--out"]):
        raise BadInput(f"--out {outputs['--out']!r} cannot be written: permission denied")
    for output in OUTPUTS:
        for other in [name for name in at if name != output] if output in at else ():
            is_output = other in OUTPUTS
            same = at[output] == at[other] and (is_output or at[other].is_file())
            inside = is_output and output != "--out" and at[output] in at[other].parents
            if same or inside:
                named = f"{other} {outputs[other]!r}" if other.startswith("-") else repr(outputs[other])
                raise BadInput(f"{output} {outputs[output]!r} would overwrite {named}: "
                               "give each output file its own name")


@contextlib.contextmanager
def read_or_written(*files: str | None) -> Iterator[None]:
    """Let a command go on to write its files where nobody reads what it prints any more; without files it ends."""
    try:
        yield
    except BrokenPipeError:
        if not any(files):
            raise
        discard_output()


def check_target(option: str, target: str) -> None:
    """Refuse a file that cannot be written. Raises `BadInput`."""
    path = Path(target)
    if not target or path.is_dir():
        raise BadInput(f"{option} {target!r} is not a file name")
    if not path.resolve().parent.is_dir():
        raise BadInput(f"{option} {target!r}: folder {str(path.resolve().parent)!r} does not exist")
    if not os.access(path if path.exists() and not path.is_file() else path.resolve().parent, os.W_OK):
        raise BadInput(f"{option} {target!r} cannot be written: permission denied")


def check_plot(target: str | None, endings: tuple[str, ...] = (".svg", ".png")) -> None:
    """Refuse, before any work, a plot of another kind. Raises BadInput."""
    if target is not None and not target.endswith(endings):
        raise BadInput(f"--plot {target[:40]!r} must end in {', '.join(endings[:-1])} or {endings[-1]}")


def write_results(content: dict[str, Any], json: str | None) -> bool:
    """Write results where `--json` says; return whether to print them for people, too."""
    from t3sim.base.output import write_json

    if json is not None:
        write_json(content, json)
    return json != "-"


def say_format_not_taken(transformer: "Transformer") -> None:
    """Say on standard error that a model's weights have another format than its GEMMs are timed in."""
    if transformer.dtype not in ("", "bfloat16", "float16"):
        print(printable(f"t3: {transformer.name} is in {transformer.dtype}; its GEMMs are taken in bf16 (--dtype)"),
              file=sys.stderr)


def write_plot(target: str, draw: Callable[[], Any]) -> None:
    """Write what `draw` draws, whole or not at all."""
    from t3sim.base.output import write_whole
    from t3sim.base.plots import render

    svg, png = render("plot", draw)
    write_whole(Path(target), svg if target.endswith(".svg") else png)
