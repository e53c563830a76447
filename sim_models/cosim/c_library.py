"""A block as a C++ library: what is compiled for co-simulation, as files for other simulators."""

from dataclasses import asdict
from pathlib import Path

from t3sim.base.cache import digest
from t3sim.base.errors import BadInput
from t3sim.base.output import staged_folder
from t3sim.cosim.component import component_code
from t3sim.cosim.traced import groups_of_block
from t3sim.cosim.verilog_files import sizes_line
from t3sim.rtl.blocks import BLOCKS
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.build import compile_text
from t3sim.rtlsim.c_library import check_stimulus, library_files
from t3sim.rtlsim.port_map import PortMap


def write_library(block: str, geometry: Geometry, folder: Path, records: bool = False) -> tuple[dict[str, str], str]:
    """Write the files into `folder`, which is made if need be; others in it stay. Nothing is written after an error.

    `records`: the library can write recordings that `trace.library` reads. Returns the text of each file, and the
    checksum that the library's own test must print. Raises BadInput and ToolchainError.
    """
    recorded = None
    if records:
        shown_code, *recorded = recording_code(block, geometry)
    with staged_folder(folder) as staged:
        code, ports = component_code(lambda: BLOCKS[block](geometry), block, (block, geometry))
        with compile_text(code, ports).simulator() as simulator:
            checksum = f"{simulator.checksum(check_stimulus(ports)):016x}"
        origin = f"{block} of t3sim, made from rtl/ by `t3 export`."
        files = library_files(shown_code if records else code, ports, origin, sizes_line(geometry), checksum, recorded)
        for file, text in files.items():
            (staged / file).write_text(text, encoding="utf-8")
    return files, checksum


def recording_code(block: str, geometry: Geometry) -> tuple[str, PortMap, dict]:
    """Return the C++ of a block that shows what a trace records, its ports, and the first line of its recordings."""
    groups = groups_of_block(block, geometry)
    if groups is None:
        raise BadInput(f"--record does not go with {block}: traces are of gpu_top, memory_channel, tracker and arbiter")
    code, ports = component_code(lambda: BLOCKS[block](geometry), block, (block, geometry), groups)
    sizes = {name: value for part in asdict(geometry).values() for name, value in part.items()}
    return code, ports, {"recording_of": block, "layout": digest(ports.to_json()), "geometry": sizes}
