"""Models of everything around the hardware: memory, links, workloads, and the driver."""

import contextlib
import hashlib
import os
from pathlib import Path

from sim_models.user_cache import cache_folder


def _numba_cache() -> str:
    """Folder for compiled loops, one per version of the sources: numba looks at the file of a function only, not at
    those of the functions that it calls."""
    package = Path(__file__).parent
    sources = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *(package.parent / "rtl").rglob("*.py")]):
        text = path.read_bytes()
        if b"jit import" in text or b"numba" in text:
            sources.update(text)
    folder = cache_folder() / f"loops-{sources.hexdigest()[:16]}"
    with contextlib.suppress(OSError):
        os.utime(folder)  # in use: the others go first when room is short
    return str(folder)


os.environ.setdefault("NUMBA_CACHE_DIR", _numba_cache())
