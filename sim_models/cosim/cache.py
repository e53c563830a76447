"""Folders that are built once and kept: complete or absent, whoever builds, stops or kills.

An entry `<key>/` is made as `<key>.partial/`, on which the builder holds a lock, and renamed when it is complete. What
a killed builder left is cleared by the next one. A manifest of digests tells a damaged entry.
"""

import contextlib
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

_PROJECT = Path(__file__).resolve().parents[2]
_MANIFEST = "manifest.json"


def cache_folder() -> Path:
    """$T3_CACHE, or build/cosim at the project's root."""
    named = os.environ.get("T3_CACHE")
    return Path(named).expanduser().resolve() if named else _PROJECT / "build" / "cosim"


def digest(*parts: str) -> str:
    """Key of an entry that depends on these texts."""
    state = hashlib.sha256()
    for part in parts:
        state.update(f"{len(part)}:{part}".encode())
    return state.hexdigest()[:24]


def cached(key: str, make: Callable[[Path], None]) -> Path:
    """The folder of entry `key`, filled by `make(folder)` if it is not there whole."""
    entry = cache_folder() / key
    while not _is_whole(entry):
        with _exclusive(entry.with_name(f"{key}.partial")) as folder:
            if _is_whole(entry):
                folder.rmdir()
                break
            make(folder)
            files = sorted(path for path in folder.rglob("*") if path.is_file())
            manifest = {str(path.relative_to(folder)): _file_digest(path) for path in files}
            (folder / _MANIFEST).write_text(json.dumps(manifest, indent=1))
            shutil.rmtree(entry, ignore_errors=True)
            os.replace(folder, entry)
    return entry


@contextlib.contextmanager
def _exclusive(folder: Path) -> Iterator[Path]:
    """An empty folder that no other process uses; removed if the body fails."""
    while True:
        folder.mkdir(parents=True, exist_ok=True)
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
