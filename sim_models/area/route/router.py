"""A placed design as DEF, and qrouter's wires for it."""

from pathlib import Path

from t3sim.area.route.design import Design
from t3sim.area.route.lef import UNITS_PER_UM, Technology
from t3sim.area.route.rows import Floorplan
from t3sim.area.route.tools import Tools
from t3sim.base.errors import Failure

LAYERS = 6
_FAILED = ("1", "nets", "failed", "to", "route:")  #: what stands before the names
_OUTSIDE, _NEAR = 200, 60  #: of the die, where the router has tracks, too: to where, and from where on

#: Each net once, then those that found no way again, tearing up others, ever wider around them.
_SCRIPT = """read_def placed.def
set left [stage1]
foreach mask {10 30 60 none none} {
    if {$left > 0} { set left [stage2 mask $mask effort 10] }
}
write_def found.def
cleanup all
write_def routed.def
if {$left > 0} { write_failed fail.out }
write_delays routed.rc
quit
"""


def write_def(design: Design, technology: Technology, plan: Floorplan) -> str:
    """Write the placed design, without wires."""
    lines = ["VERSION 5.6 ;", "NAMESCASESENSITIVE ON ;", 'DIVIDERCHAR "/" ;', 'BUSBITCHARS "<>" ;',
             f"DESIGN {design.name} ;", f"UNITS DISTANCE MICRONS {UNITS_PER_UM} ;", "",
             f"DIEAREA ( 0 0 ) ( {plan.width} {plan.height} ) ;", ""]
    for layer in list(technology.layers.values())[:LAYERS]:
        axis, length = ("Y", plan.height) if layer.horizontal else ("X", plan.width)
        lines.append(f"TRACKS {axis} 0 DO {1 + length // layer.pitch} STEP {layer.pitch} LAYER {layer.name} ;")
    lines += ["", f"COMPONENTS {len(plan.cells)} ;"]
    lines += [f"- {cell.cell} {cell.kind} + PLACED ( {cell.x} {cell.y} ) {'FS' if cell.flipped else 'N'} ;"
              for cell in plan.cells]
    lines += ["END COMPONENTS", "", f"PINS {len(plan.pins)} ;"]
    edge = {pin.name: pin for pin in design.pins}
    for name, (layer, x, y) in plan.pins.items():
        half = technology.layers[layer].width // 2
        lines += [f"- {name} + NET {name} + DIRECTION {'OUTPUT' if edge[name].output else 'INPUT'} + USE SIGNAL",
                  f"  + LAYER {layer} ( {-half} {-half} ) ( {half} {half} ) + PLACED ( {x} {y} ) N ;"]
    nets = design.nets()
    lines += ["END PINS", "", f"NETS {len(nets)} ;"]
    for net, ends in nets.items():
        name = design.net_name(net)
        parts = [f"( PIN {name} )"] if name in plan.pins else []
        parts += [f"( {cell} {pin} )" for cell, pin in ends]
        lines += [f"- {name}", "  " + " ".join(parts) + " ;"]
    return "\n".join([*lines, "END NETS", "", "END DESIGN", ""])


def _before(technology: Technology, plan: Floorplan) -> str:
    """Write what the router must know first: no wire may cross in front of pins, nor leave the die."""
    lines = ["verbose 1", "read_lef cells.lef", f"layers {LAYERS}", "via stack all", "vdd vdd", "gnd gnd"]
    left, bottom = plan.clear
    right, top = plan.width - left, plan.height - bottom
    ends = (-_OUTSIDE, -_OUTSIDE, plan.width + _OUTSIDE, plan.height + _OUTSIDE)
    across = ((ends[0], ends[1], ends[2], bottom), (ends[0], top, ends[2], ends[3]))
    along = ((ends[0], ends[1], left, ends[3]), (right, ends[1], ends[2], ends[3]))
    beyond = (plan.width + _NEAR, plan.height + _NEAR)
    outside = ((ends[0], ends[1], ends[2], -_NEAR), (ends[0], beyond[1], ends[2], ends[3]),
               (ends[0], ends[1], -_NEAR, ends[3]), (beyond[0], ends[1], ends[2], ends[3]))
    for number, layer in enumerate(list(technology.layers.values())[:LAYERS]):
        inside = (*across, *along) if number == 0 else across if layer.horizontal else along
        for area in (*inside, *outside):
            lines.append(f"obstruction {' '.join(f'{edge / UNITS_PER_UM:.2f}' for edge in area)} {layer.name}")
    return "\n".join([*lines, ""])


def route(design: Design, technology: Technology, plan: Floorplan, tools: Tools,
          folder: Path) -> tuple[str, str]:
    """Route a placed design; return its DEF with wires, and as it was before the last step. Raises Failure.

    That step moves vias apart, and now and then loses one.
    """
    (folder / "placed.def").write_text(write_def(design, technology, plan))
    (folder / "cells.lef").write_text(tools.lef.read_text())
    (folder / "route.tcl").write_text(_before(technology, plan) + _SCRIPT)
    for name in ("found.def", "routed.def", "fail.out", "routed.rc"):
        (folder / name).unlink(missing_ok=True)
    tools.route(folder, "routed.rc")
    failed = folder / "fail.out"
    if failed.is_file() and (names := failed.read_text().split()[len(_FAILED):]):
        raise Failure(f"routing: of {len(design.nets())} nets {len(names)} have no way, {names[0]} among them")
    return (folder / "routed.def").read_text(), (folder / "found.def").read_text()
