"""Models of everything around the hardware: memory, links, workloads, and the driver."""

import hashlib
import os
from pathlib import Path


def _numba_cache() -> str:
    """Folder for compiled loops, one per version of the sources: numba looks at the file of a function only, not at
    those of the functions that it calls."""
    package = Path(__file__).parent
    sources = hashlib.sha256()
    for path in sorted([*package.rglob("*.py"), *(package.parent / "rtl").rglob("*.py")]):
        text = path.read_bytes()
        if b"import compiled" in text or b"numba" in text:
            sources.update(text)
    root = os.environ.get("T3_CACHE") or package.parent / "build"
    return str(Path(root) / "numba" / sources.hexdigest()[:16])


os.environ.setdefault("NUMBA_CACHE_DIR", _numba_cache())
