"""Files of a layout: netlist, the block's outline, parasitics and delays."""

from collections.abc import Iterable

from t3sim.area.route.design import Design
from t3sim.area.route.lef import UNITS_PER_UM, Technology
from t3sim.area.route.parasitics import EDGE, Net
from t3sim.area.route.router import LAYERS
from t3sim.area.route.rows import Floorplan
from t3sim.area.timing import RoutedTiming


def write_netlist(design: Design) -> str:
    """Write the cells as Verilog, with the clock's tree; a port for each pin of the edge."""
    ports = [f"  {'output' if pin.output else 'input'} {pin.name}" for pin in design.pins]
    lines = [f"module {design.name} (", ",\n".join(ports), ");"]
    edge = {pin.net for pin in design.pins}
    nets = {net for _, pins in design.cells.values() for net in pins.values()} - edge
    lines += [f"  wire {name};" for name in sorted(design.net_name(net) for net in nets if net >= 0)]
    constant = {-1: "1'b1", -2: "1'b0"}
    for name, (kind, pins) in design.cells.items():
        joined = ", ".join(f".{pin}({constant.get(net) or design.net_name(net)})" for pin, net in pins.items())
        lines.append(f"  {kind} {name} ({joined});")
    return "\n".join([*lines, "endmodule", ""])


def write_lef(design: Design, technology: Technology, plan: Floorplan) -> str:
    """Write the block as a cell of a larger layout: size, pins, and all below the wires taken."""
    width, height = plan.width / UNITS_PER_UM, plan.height / UNITS_PER_UM
    lines = ["VERSION 5.4 ;", f"MACRO {design.name}", "  CLASS BLOCK ;", "  ORIGIN 0 0 ;",
             f"  SIZE {width:.2f} BY {height:.2f} ;"]
    outputs = {pin.name for pin in design.pins if pin.output}
    for name, (layer, x, y) in plan.pins.items():
        half = technology.layers[layer].width / 2 / UNITS_PER_UM
        left, bottom = x / UNITS_PER_UM - half, y / UNITS_PER_UM - half
        lines += [f"  PIN {name}", f"    DIRECTION {'OUTPUT' if name in outputs else 'INPUT'} ;", "    PORT",
                  f"      LAYER {layer} ;",
                  f"        RECT {left:.2f} {bottom:.2f} {left + 2 * half:.2f} {bottom + 2 * half:.2f} ;", "    END",
                  f"  END {name}"]
    lines.append("  OBS")
    for layer in list(technology.layers)[:LAYERS]:
        lines += [f"    LAYER {layer} ;", f"      RECT 0 0 {width:.2f} {height:.2f} ;"]
    return "\n".join([*lines, "  END", f"END {design.name}", "END LIBRARY", ""])


def write_spef(design: Design, nets: dict[int, Net]) -> str:
    """Write resistances and capacitances in the Standard Parasitic Exchange Format (IEEE 1481)."""
    lines = ['*SPEF "IEEE 1481-1998"', f'*DESIGN "{design.name}"', '*VENDOR "t3sim"', '*PROGRAM "t3 area"',
             "*DIVIDER /", "*DELIMITER :", "*BUS_DELIMITER < >", "*T_UNIT 1 NS", "*C_UNIT 1 PF", "*R_UNIT 1 OHM",
             "*L_UNIT 1 HENRY", ""]
    cells = design.netlist.library.cells
    outputs = {pin.name for pin in design.pins if pin.output}
    for one in nets.values():
        lines += [f"*D_NET {one.name} {one.total_pf:.6f}", "*CONN"]
        names = {}
        for (cell, pin), point in one.ends.items():
            name = pin if cell == EDGE else f"{cell}:{pin}"
            names.setdefault(point, name)
            if cell == EDGE:
                lines.append(f"*P {pin} {'O' if pin in outputs else 'I'}")
            else:
                lines.append(f"*I {name} {'I' if pin in cells[design.cells[cell][0]].loads else 'O'}")
        for number, point in enumerate((point for point in one.capacitance_pf if point not in names), 1):
            names[point] = f"{one.name}:{number}"
        joined = [(names[point], name) for (cell, pin), point in one.ends.items()
                  if (name := pin if cell == EDGE else f"{cell}:{pin}") != names[point]]
        loads = [(names[point], pf) for point, pf in one.capacitance_pf.items() if pf > 0]
        ways = [*((names[a], names[b], ohm) for (a, b), ohm in one.resistances_ohm.items()),
                *((a, b, 0.0) for a, b in joined)]
        lines += ["*CAP", *(f"{i} {name} {pf:.6f}" for i, (name, pf) in enumerate(loads, 1)),
                  "*RES", *(f"{i} {a} {b} {ohm:.4f}" for i, (a, b, ohm) in enumerate(ways, 1)), "*END", ""]
    return "\n".join(lines)


def write_sdf(design: Design, nets: dict[int, Net], timing: RoutedTiming) -> str:
    """Write delays of wires and of ways through cells in the Standard Delay Format (IEEE 1497)."""
    lines = ["(DELAYFILE", '  (SDFVERSION "3.0")', f'  (DESIGN "{design.name}")', '  (VENDOR "t3sim")',
             "  (DIVIDER /)", "  (TIMESCALE 1ns)", "  (CELL", f'    (CELLTYPE "{design.name}")', "    (INSTANCE)",
             "    (DELAY (ABSOLUTE"]
    lines += [f"      (INTERCONNECT {source} {target} {_triple(delay)})" for source, target, delay in _ways(nets)]
    lines.append("    ))\n  )")
    for cell, ways in timing.delays_ns.items():
        kind = design.cells[cell][0]
        clock = design.netlist.library.cells[kind].clock
        lines += ["  (CELL", f'    (CELLTYPE "{kind}")', f"    (INSTANCE {cell})", "    (DELAY (ABSOLUTE"]
        lines += [f"      (IOPATH {f'(posedge {source})' if source == clock else source} {target} "
                  f"{_triple(rise)} {_triple(fall)})" for source, target, rise, fall in ways]
        lines.append("    ))\n  )")
    return "\n".join([*lines, ")", ""])


def _triple(delay_ns: float) -> str:
    return f"({delay_ns:.4f}::{delay_ns:.4f})"


def _ways(nets: dict[int, Net]) -> Iterable[tuple[str, str, float]]:
    for one in nets.values():
        for driver in one.ends.keys() - one.delays_ns.keys():
            for end, delay in one.delays_ns.items():
                yield "/".join(filter(None, driver)), "/".join(filter(None, end)), delay
