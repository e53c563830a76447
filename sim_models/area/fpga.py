"""A block on a Lattice ECP5, placed and routed by nextpnr."""

import json
import shutil
from dataclasses import asdict, dataclass
from pathlib import Path

from t3sim.base.cache import cached, digest
from t3sim.base.errors import Failure
from t3sim.cosim import yosys

DEVICE = "LFE5U-85F, speed grade 8"
LUTS, FLIP_FLOPS, BLOCK_RAMS = 83_640, 83_640, 208  #: of the device; a block RAM holds 18 Kbit
_PLACE = ["--85k", "--package", "CABGA756", "--speed", "8", "--json", "mapped.json", "--out-of-context",
          "--timing-allow-fail", "--report", "report.json", "--seed", "1", "--quiet"]


@dataclass(frozen=True)
class Fpga:
    luts: int  #: LUT4; those that serve as distributed RAM and carry chains included
    flip_flops: int
    block_rams: int  #: of 18 Kbit
    fmax_mhz: float | None  #: None: not placed
    note: str = ""  #: why not

    @property
    def fits(self) -> bool:
        return self.luts <= LUTS and self.flip_flops <= FLIP_FLOPS and self.block_rams <= BLOCK_RAMS

    def to_json(self) -> dict:
        return {"device": DEVICE, **asdict(self), "fits": self.fits}


def count(text: str, top: str, black_boxes: tuple[str, ...] = ()) -> Fpga:
    """Count the cells after mapping, without placing them."""
    return _cells(_map_design(text, top, black_boxes), "mapped, not placed")


def place_and_route(text: str, top: str) -> Fpga:
    """Place and route the module. Paths through the ports are not part of Fmax: the ports have no pins."""
    folder = _map_design(text, top, ())
    cells = _cells(folder, "")
    if not cells.fits:
        return _cells(folder, "")
    netlist_json = (folder / "mapped.json").read_text()

    def make(result: Path) -> None:
        work = result / "work"
        work.mkdir()
        (work / "mapped.json").write_text(netlist_json)
        yosys.run("nextpnr-ecp5", _PLACE, work)
        report = json.loads((work / "report.json").read_text())
        clocks = [clock["achieved"] for clock in report.get("fmax", {}).values()]
        answer = {"fmax_mhz": min(clocks, default=None), "note": "" if clocks else "no path between registers"}
        (result / "fpga.json").write_text(json.dumps(answer))
        shutil.rmtree(work)

    try:
        entry = cached("ecp5-placed-" + digest(netlist_json, *_PLACE, yosys.version("nextpnr-ecp5")), make)
    except Failure as failure:  # this device does not take everything that it has room for
        return _cells(folder, f"place and route failed: {failure}")
    return Fpga(cells.luts, cells.flip_flops, cells.block_rams, **json.loads((entry / "fpga.json").read_text()))


def _map_design(text: str, top: str, black_boxes: tuple[str, ...]) -> Path:
    boxes = f"blackbox {' '.join(black_boxes)}\n" if black_boxes else ""
    script = f"read_verilog design.v\n{boxes}synth_ecp5 -top {top} -json mapped.json\n"

    def make(folder: Path) -> None:
        work = folder / "work"
        work.mkdir()
        (work / "design.v").write_text(text)
        yosys.run_yosys(script, work)
        shutil.move(work / "mapped.json", folder / "mapped.json")
        shutil.rmtree(work)

    return cached("ecp5-" + digest(text, top, script, yosys.version("yosys")), make)


def _cells(folder: Path, note: str) -> Fpga:
    design = json.loads((folder / "mapped.json").read_text())["modules"]
    top = next(module for module in design.values() if "top" in module["attributes"])
    counts: dict[str, int] = {}
    for cell in top["cells"].values():
        counts[cell["type"]] = counts.get(cell["type"], 0) + 1
    luts = (counts.get("LUT4", 0) + 2 * counts.get("CCU2C", 0)
            + 6 * counts.get("TRELLIS_DPR16X4", 0))  # 4 LUTs of storage and the 2 of its write port
    return Fpga(luts, counts.get("TRELLIS_FF", 0), counts.get("DP16KD", 0), None, note)
