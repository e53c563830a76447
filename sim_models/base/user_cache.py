"""Cache of everything that is made once and kept: compiled RTL, netlists, compiled loops of the models.

The same for a checkout and for an installed wheel: the user's cache folder, which checkouts share, since an entry's
name is a digest of all that it depends on. Plain and light: `sim_models` itself imports it.
"""

import atexit
import os
import shutil
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path

import platformdirs

from t3sim.base.errors import BadInput

_PROBE_BYTES = 1 << 20


def cache_folder() -> Path:
    """Give `$T3_CACHE`, or the user's cache folder; whether it can be written is not looked at. Raises BadInput.

    Programs are loaded from it, so it is refused where others could have put some.
    """
    named = os.environ.get("T3_CACHE")
    folder = Path(os.path.realpath(os.path.expanduser(named))) if named else platformdirs.user_cache_path("t3sim")
    refuse_shared(folder, f"T3_CACHE={named}" if named else f"the cache {folder}")
    return folder


def refuse_shared(folder: Path, name: str) -> None:
    """Raise BadInput if another user, except root, owns the folder or may write in it."""
    try:
        status = os.stat(folder)
    except OSError:  # not there yet, or of no use anyhow
        return
    owned = status.st_uid in (os.geteuid(), 0)
    if owned and not status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return
    reason = f"others may write there (mode {stat.S_IMODE(status.st_mode):o})" if owned else (
        f"it is another user's (uid {status.st_uid})")
    raise BadInput(f"{name} is refused because {reason} and t3 runs programs from it: `chmod go-w` your own folder, or "
                   "name another one")


def make_folder(folder: Path) -> None:
    """Make a cache, and what it is in, for this user alone whatever the umask is."""
    if not folder.is_dir():
        make_folder(folder.parent)
        folder.mkdir(mode=0o700, exist_ok=True)


def results_folder() -> Path:
    """Give the folder in which results of kernels are kept."""
    return cache_folder()


def may_be_written(folder: Path) -> bool:
    """Tell whether files can be made there, by permission; a full disk is another matter, see `takes_files`."""
    while not os.path.exists(folder) and folder != folder.parent:  # Path.exists raises where it may not look
        folder = folder.parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def takes_files(folder: Path, megabytes: int = 1) -> bool:
    """Tell whether this much can be written there now."""
    try:
        make_folder(folder)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return all(file.write(bytes(_PROBE_BYTES)) == _PROBE_BYTES for _ in range(megabytes))
    except OSError:
        return False


@cache
def stand_in(folder: Path) -> Path:
    """Make a folder that takes the place of a cache that takes no files: of this process and those that it starts.

    Results do not need the cache, only the next start is slower without. Says so on standard error, once.
    """
    temporary = Path(tempfile.mkdtemp(prefix="t3-cache-"))
    made_by = os.getpid()
    atexit.register(lambda: os.getpid() == made_by and shutil.rmtree(temporary, ignore_errors=True))
    os.environ["T3_CACHE"] = str(temporary)
    print(f"t3: the cache {folder} takes no files (read-only or full): what is built now is not kept", file=sys.stderr)
    return temporary
