"""A recording of an exported library (`t3 export --record`) as a trace."""

import json
from pathlib import Path

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.cosim.c_library import recording_code
from t3sim.cosim.geometry_option import changed
from t3sim.rtl.geometry import Geometry
from t3sim.trace.testbench import Samples, write_samples

_HEAD_BYTES = 1 << 16  #: of the first line, at most


def library_trace(file: Path) -> Path:
    """Write the trace of a recording beside it, into FILE.trace, and return that folder. Raises BadInput."""
    with file.open("rb") as opened:
        line = opened.readline(_HEAD_BYTES)
    try:
        head = json.loads(line)
        block, geometry = head["recording_of"], changed(Geometry(), head["geometry"])
        _, ports, own_head = recording_code(block, geometry)
    except (ValueError, LookupError, TypeError, AttributeError):  # BadInput and GeometryError are ValueErrors
        raise BadInput(f"{file} is no recording: a library of `t3 export --record` writes one") from None
    if head != own_head:
        raise BadInput(f"{file} was recorded by a library of another t3sim: export the library again")
    inputs, outputs = ports.input_words, ports.output_words
    row = inputs + 2 * outputs
    cycles = (file.stat().st_size - len(line)) // (8 * row)  # the last row may not be whole
    if not cycles:
        raise BadInput(f"{file} holds no cycle")
    rows = np.memmap(file, np.int64, "r", len(line), (cycles, row))
    folder = file.with_name(f"{file.name}.trace")
    write_samples(block, geometry, ports, Samples(*np.split(rows, (inputs, inputs + outputs), axis=1), 0), folder,
                  f"library {block}", {"outcome": "recorded", "problem": None, "cycles_of_run": cycles})
    return folder
