"""A clock tree over placed flip-flops: buffers and clock gates of one depth, each for what lies together."""

from t3sim.area.route.design import BUFFER, GATE, Design
from t3sim.area.route.placement import Rows

MOST_ENDS = 16  #: that one buffer of the tree drives
MOST_GATED = 4  #: that one gate of it drives, which is weaker

_End = tuple[str, str]  #: cell, pin


def grow_clock_tree(design: Design, rows: Rows) -> int:
    """Add the tree's cells to design and `centres`, each in the middle of what it drives; return its levels.

    Every flip-flop has a buffer or a gate of its own kind above it, so that all are equally far from the clock's pin.
    """
    library = design.netlist.library
    ends: dict[int, list[_End]] = {}
    for name, (kind, pins) in design.cells.items():
        clock = library.cells[kind].clock
        if clock and clock in pins:
            ends.setdefault(pins[clock], []).append((name, clock))
    root = design.clock
    if root is None or not ends:
        return 0
    level: list[_End] = []
    for net, flip_flops in ends.items():
        if net != root and net not in design.gated:
            continue
        for group in groups(flip_flops, rows.centres, MOST_GATED if net in design.gated else MOST_ENDS):
            level.append(_drive(design, rows, group, root, design.gated.get(net)))
    level += [(name, "A") for name, (_, pins) in design.cells.items() if name.endswith("_not") and pins["A"] == root]
    levels = 1
    while len(level) > 1:
        level = [_drive(design, rows, group, root, None) for group in groups(level, rows.centres, MOST_ENDS)]
        levels += 1
    return levels


def groups(ends: list[_End], centres: dict[str, tuple[float, float]], most: int) -> list[list[_End]]:
    """Halve what is too many for one driver across its longer side, again and again."""
    if len(ends) <= most:
        return [ends]
    spans = [max(centres[name][axis] for name, _ in ends) - min(centres[name][axis] for name, _ in ends)
             for axis in (0, 1)]
    axis = spans.index(max(spans))
    ordered = sorted(ends, key=lambda end: (centres[end[0]][axis], end))
    middle = len(ordered) // 2
    return groups(ordered[:middle], centres, most) + groups(ordered[middle:], centres, most)


def _drive(design: Design, rows: Rows, ends: list[_End], root: int, enable: int | None) -> _End:
    """Add a driver for these ends, which takes the root's clock; a gate where there is an enable."""
    net = design.new_net()
    name = f"clock_{net}"
    kind = BUFFER if enable is None else GATE
    design.add(name, kind, {"A": root, "Y": net} | ({} if enable is None else {"B": enable}))
    for cell, pin in ends:
        design.connect(cell, pin, net)
    rows.centres[name] = tuple(sum(rows.centres[cell][axis] for cell, _ in ends) / len(ends) for axis in (0, 1))
    return name, "A"
