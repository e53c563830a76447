"""Folders that are built once and kept: complete or absent, whoever builds, stops or kills.

An entry `<key>/` is made as `<key>.partial/`, on which the builder holds a lock, and renamed when it is complete. What
a killed builder left is cleared by the next one. A manifest of digests tells a damaged entry. When an entry was last
asked for is the time of its folder; the oldest go when the cache is larger than its limit.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from t3sim.base import STARTED_NS
from t3sim.base.errors import BadInput, Failure
from t3sim.base.numerals import decimal
from t3sim.base.places import source_folders
from t3sim.base.streams import say
from t3sim.base.user_cache import cache_folder, make_folder, refuse_shared, stand_in, takes_files

_MANIFEST = "manifest.json"
_PARTIAL = ".partial"
LIMIT_GB = 5.0  #: unless $T3_CACHE_GB says otherwise
_ENTRY_MEGABYTES = 128  #: more than any entry needs: a build that fails beside that much room fails anywhere
_IN_USE_SECONDS = 3600  #: what was asked for in the last hour stays, whatever the limit


#: What is built, by the kind of its entry, and about how long on two cores.
_WAITS = {"library": ("the RTL", "20 s"), "cocotb": ("the RTL for cocotb", "40 s"),
          "icarus": ("the RTL for Icarus", "a few seconds")}


def digest(*parts: str) -> str:
    """Return the key of an entry that depends on these texts."""
    state = hashlib.sha256()
    for part in parts:
        state.update(f"{len(part)}:{part}".encode())
    return state.hexdigest()[:24]


def cached(key: str, make: Callable[[Path], None], folder: Path | None = None) -> Path:
    """Give the folder of entry `key`, filled by `make(folder)` if it is not there whole.

    `folder` is the cache, by default the user's. Raises BadInput if others may write there. A cache that cannot be
    written, or that is on a full disk, is replaced by a temporary one (`user_cache.stand_in`).
    """
    if folder is None:
        folder = cache_folder()
    else:
        refuse_shared(folder, f"the cache {folder}")
    try:
        entry = _entry(folder, key, make)
    except (OSError, Failure):
        if takes_files(folder, _ENTRY_MEGABYTES):
            raise
        entry = _entry(stand_in(folder), key, make)
    with contextlib.suppress(OSError):  # of a read-only cache nothing is removed either
        os.utime(entry)
    return entry


def _entry(root: Path, key: str, make: Callable[[Path], None]) -> Path:
    entry = root / key
    if told := _WAITS.get(key.partition("-")[0]):
        if not _is_whole(entry):
            say(*told)
    while not _is_whole(entry):
        with _exclusive(entry.with_name(key + _PARTIAL)) as folder:
            if _is_whole(entry):
                folder.rmdir()
                break
            make(folder)
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            manifest = {str(path.relative_to(folder)): _file_digest(path) for path in files}
            (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))
            shutil.rmtree(entry, ignore_errors=True)
            os.replace(folder, entry)
        evict(root, limit_bytes(), keep=entry)
    return entry


def kept(name: str, make: Callable[[], Any]) -> Any:
    """Return what `make` makes, as JSON gives it back; it must depend on the package alone.

    The user's cache keeps it until a file of the package changes, or the packages that are installed. Nothing is read
    or kept where other distributions add parts, in a process that may run older sources, or in a cache that is refused.
    """
    try:
        folder = None if (state := _package_state()) is None else cache_folder() / f"lists-{state}"
    except BadInput:
        folder = None
    if folder is None:
        return json.loads(json.dumps(make()))
    path = folder / f"{name}.json"
    with contextlib.suppress(OSError, ValueError, LookupError, TypeError):
        text_digest, content = path.read_text(encoding="utf-8").split("\n", 1)
        if text_digest == digest(content):
            os.utime(folder)  # in use: others go first when room is short
            return json.loads(content)
    from t3sim.base.output import write_whole

    content = json.dumps(make())
    with contextlib.suppress(OSError):
        make_folder(folder)
        write_whole(path, f"{digest(content)}\n{content}")
    return json.loads(content)


@cache
def _package_state() -> str | None:
    """Return a digest of the package's files and of the installed packages; None if others decide, too."""
    from importlib.metadata import entry_points, version

    try:
        if any(group.startswith("t3sim.") for group in entry_points().groups):
            return None
        state = [sys.version, version("t3sim")]
        state += [f"{folder} {os.stat(folder).st_mtime_ns}" for folder in sys.path if folder.endswith("-packages")]
        for folder in source_folders().values():
            for file in _files(str(folder)):
                status = file.stat()
                if max(status.st_ctime_ns, status.st_mtime_ns) >= STARTED_NS:
                    return None
                state.append(f"{file.path} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}")
    except Exception:  # metadata or files that cannot be read: what needs them says so
        return None
    return digest(*sorted(state))


def _files(folder: str) -> Iterator[os.DirEntry[str]]:
    with os.scandir(folder) as inside:
        for one in inside:
            if not one.is_dir():
                yield one
            elif one.name != "__pycache__":
                yield from _files(one.path)


@dataclass(frozen=True)
class Entry:
    """Something that the cache keeps."""

    path: Path
    size_bytes: int
    used: float  #: when it was last asked for, in seconds since 1970

    @property
    def kind(self) -> str:
        """Kind of entry: the first word of its name."""
        return self.path.name.partition("-")[0]


def entries(root: Path) -> list[Entry]:
    """List what the cache keeps, least recently used first. What vanishes meanwhile is left out."""
    entries_found = []
    for path in root.iterdir() if root.is_dir() else ():
        with contextlib.suppress(OSError):
            size = sum(file.lstat().st_size for file in path.rglob("*") if not file.is_dir())
            entries_found.append(Entry(path, size, path.stat().st_mtime))
    return sorted(entries_found, key=lambda entry: entry.used)


def limit_bytes() -> int:
    """Give the size to which the cache is kept: $T3_CACHE_GB, or 5 GB. Raises BadInput."""
    text = os.environ.get("T3_CACHE_GB") or str(LIMIT_GB)
    try:
        limit = decimal(text)
    except ValueError:
        limit = -1.0
    if not 0 <= limit < 1e6:
        raise BadInput(f"T3_CACHE_GB={text!r} is not a size of the cache in GB: a number from 0 on is allowed")
    return int(limit * 1e9)


def evict(root: Path, limit: int, keep: Path | None = None, in_use_seconds: float = _IN_USE_SECONDS) -> list[Entry]:
    """Remove the least recently used entries until at most `limit` bytes are left; give what was removed.

    What was used in the last `in_use_seconds`, what is being built, and `keep` stay.
    """
    kept = entries(root)
    total, removed = sum(entry.size_bytes for entry in kept), []
    for entry in kept:
        if total <= limit or time.time() - entry.used < in_use_seconds:
            break
        if entry.path != keep and _remove(entry.path):
            removed.append(entry)
            total -= entry.size_bytes
    return removed


def _remove(folder: Path) -> bool:
    """Remove an entry, or what a killed builder left; False if somebody builds there."""
    with contextlib.suppress(OSError):
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            shutil.rmtree(folder)
            return True
        finally:
            os.close(descriptor)
    return False


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[Path]:
    """Make an empty folder that no other process uses; it is removed if the body fails."""
    while True:
        make_folder(folder)
        try:
            descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except FileNotFoundError:
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            # Whoever held the lock before may have moved the folder away.
            if not (folder.exists() and os.path.samestat(os.stat(folder), os.fstat(descriptor))):
                continue
            try:
                for path in folder.iterdir():
                    shutil.rmtree(path) if path.is_dir() else path.unlink()
                yield folder
            except BaseException:
                shutil.rmtree(folder, ignore_errors=True)
                raise
            return
        finally:
            os.close(descriptor)


def _is_whole(entry: Path) -> bool:
    try:
        manifest = json.loads((entry / _MANIFEST).read_text())
        return all(_file_digest(entry / name) == expected for name, expected in manifest.items())
    except (OSError, ValueError):
        return False


def _file_digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
