"""A block as a C++ library: what is compiled for co-simulation, as files for other simulators."""

from pathlib import Path

from t3sim.base.output import staged_folder
from t3sim.cosim.component import component_code
from t3sim.cosim.verilog_files import sizes_line
from t3sim.rtl.blocks import BLOCKS
from t3sim.rtl.geometry import Geometry
from t3sim.rtlsim.build import compile_text
from t3sim.rtlsim.c_library import check_stimulus, library_files


def write_library(block: str, geometry: Geometry, folder: Path) -> tuple[dict[str, str], str]:
    """Write the files into `folder`, which is made if need be; others in it stay. Nothing is written after an error.

    Returns the text of each file, and the checksum that the library's own test must print. Raises BadInput and
    ToolchainError.
    """
    with staged_folder(folder) as staged:
        code, ports = component_code(lambda: BLOCKS[block](geometry), block, (block, geometry))
        with compile_text(code, ports).simulator() as simulator:
            checksum = f"{simulator.checksum(check_stimulus(ports)):016x}"
        files = library_files(code, ports, f"{block} of t3sim, made from rtl/ by `t3 export`.", sizes_line(geometry),
                              checksum)
        for file, text in files.items():
            (staged / file).write_text(text, encoding="utf-8")
    return files, checksum
