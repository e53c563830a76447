"""Which standard cells a block is mapped to: the project's own, a real library by name, or any Liberty file."""

import os
from pathlib import Path

from t3sim.area.embedded import NAME as EMBEDDED
from t3sim.area.embedded import embedded_library
from t3sim.area.liberty import Library, load_library
from t3sim.base.errors import BadInput

OSU018 = "osu018"

#: Debian's package qflow-tech-osu018: Oklahoma State University's cells for TSMC 180 nm. It is under the GPL and so not
#: part of this project; `make library` fetches it into `build/`.
_OSU018_FILE = Path("usr/share/qflow/tech/osu018/osu018_stdcells.lib")
PLACES = (Path("/") / _OSU018_FILE, Path(__file__).resolve().parents[2] / "build" / "library" / _OSU018_FILE)


def find_library(name: str | None = None) -> Library:
    """Return the library that is named, or else the first of those that are used without a name. Raises BadInput.

    That is the library of `$T3_LIBERTY`, else OSU018 where it is installed, else the embedded one.
    """
    name = name or os.environ.get("T3_LIBERTY")
    if name == EMBEDDED:
        return embedded_library()
    osu018_path = next((place for place in PLACES if place.is_file()), None)
    if name == OSU018:
        if osu018_path is None:
            raise BadInput(f"library {name!r} is not installed: run `make library`, which fetches it from Debian")
        return load_library(osu018_path)
    if name:
        if not Path(name).is_file():
            raise BadInput(f"library {name!r} is not a file: allowed are {EMBEDDED}, {OSU018} and Liberty files")
        return load_library(Path(name).resolve())
    return load_library(osu018_path) if osu018_path else embedded_library()
