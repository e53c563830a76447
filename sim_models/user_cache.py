"""Cache of everything that is made once and kept: compiled RTL, netlists, compiled loops of the models.

The same for a checkout and for an installed wheel: the user's cache folder, which checkouts share, since an entry's
name is a digest of all that it depends on. Plain and light: `sim_models` itself imports it.
"""

import atexit
import os
import shutil
import sys
import tempfile
from functools import cache
from pathlib import Path

import platformdirs

_PROBE_BYTES = 1 << 20


def cache_folder() -> Path:
    """Give `$T3_CACHE`, or the user's cache folder; whether it can be written is not looked at."""
    named = os.environ.get("T3_CACHE")
    return Path(os.path.realpath(os.path.expanduser(named))) if named else platformdirs.user_cache_path("t3sim")


def results_folder() -> Path:
    """Give the folder in which results of kernels are kept."""
    return cache_folder()


def may_be_written(folder: Path) -> bool:
    """Tell whether files can be made there, by permission; a full disk is another matter, see `takes_files`."""
    while not os.path.exists(folder) and folder != folder.parent:  # Path.exists raises where it may not look
        folder = folder.parent
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def takes_files(folder: Path) -> bool:
    """Tell whether a megabyte can be written there now."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=folder, buffering=0) as file:
            return file.write(bytes(_PROBE_BYTES)) == _PROBE_BYTES
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
