"""Output of every command: versions, JSON, and files that others see complete or not at all."""

import errno
import json
import math
import os
import platform
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from pathlib import Path
from typing import IO, Any

from t3sim.base.errors import BadInput


def collect_versions() -> dict[str, str]:
    """Return the versions of what can change a result."""
    versions = {"python": platform.python_version()}
    for package in ("t3sim", "amaranth", "numba", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    return versions


def _plain(value: Any) -> Any:
    """Turn numpy's scalars and arrays, which are not JSON, into what is; NaN and infinity become null."""
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, set, frozenset)):
        return [_plain(item) for item in value]
    if hasattr(value, "tolist"):
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value


def json_text(payload: dict[str, Any]) -> str:
    return json.dumps(_plain(payload), indent=2, allow_nan=False) + "\n"


def write_json(payload: dict[str, Any], target: str) -> None:
    """Write to standard output (`-`) or, whole or not at all, to a file."""
    text = json_text(payload)
    if target == "-":
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    write_whole(Path(target), text)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Give an error of the disk the name of the file; Arrow, a full disk and a full buffer leave it out."""
    try:
        yield
    except OSError as error:
        if error.filename is not None and not str(error.filename).endswith(".part"):
            raise
        number = error.errno or errno.EIO
        raise OSError(number, os.strerror(number), str(path)) from error


def write_whole(path: Path, content: str | bytes) -> None:
    """Write a file that others see complete or not at all; a link stays one. Its folder must exist."""
    data = content.encode("utf-8") if isinstance(content, str) else content
    if _is_special(path):
        with naming(path):
            path.write_bytes(data)
        return
    path = path.resolve()
    with naming(path):
        descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".", suffix=".part")
    try:
        with naming(path), os.fdopen(descriptor, "wb") as file:
            file.write(data)
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # mkstemp's 0600 would surprise
        os.replace(temporary, path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


@contextmanager
def whole_file(path: Path, mode: str = "w") -> Iterator[IO]:
    """Open a file that is there once all of it is; until then its name is `part_of(path)`. A link stays one."""
    if _is_special(path):
        with naming(path), path.open(mode) as file:
            yield file
        return
    path = path.resolve()
    part = part_of(path)
    try:
        with naming(path), part.open(mode) as file:
            yield file
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


@contextmanager
def staged_folder(folder: Path) -> Iterator[Path]:
    """Give an empty folder whose files are in `folder` once the body has ended; others in there stay.

    `folder` is made if need be. After an error nothing is. Raises BadInput for a folder that cannot be written.
    """
    folder = Path(folder)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"--out {str(folder)!r} is not a folder")
    parent = folder.resolve()
    while not parent.exists():
        parent = parent.parent
    if not os.access(parent, os.W_OK):
        raise BadInput(f"--out {str(folder)!r} cannot be written: permission denied")
    with tempfile.TemporaryDirectory(dir=parent, prefix=".t3-") as name:
        yield Path(name)
        folder.mkdir(parents=True, exist_ok=True)
        for file in sorted(Path(name).iterdir()):
            shutil.move(file, folder / file.name)


def _is_special(path: Path) -> bool:
    """Return whether a path is a pipe or a device: no file may take its place, and a pipe has no resolved name."""
    return path.exists() and not path.is_file()


def part_of(path: Path) -> Path:
    return path.with_name(f"{path.name}.part")
