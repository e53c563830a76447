"""Areas as tables for people, and as the page `docs/results/area.md`."""

from collections.abc import Iterable, Sequence
from dataclasses import asdict

from rich.console import Console

from t3sim.area import fpga as ecp5
from t3sim.area import node as nodes
from t3sim.area.liberty import Library
from t3sim.area.measure import TOP, BlockArea, Silicon
from t3sim.area.memories import COPIES, FILE, FLIP_FLOPS, MACRO, MemoryUse
from t3sim.area.node import AREA_OVER_GATES, ASAP7, CYCLE_OVER_GATES, FO4_PS_PER_UM, NODES, ProcessNode
from t3sim.area.sram import COLUMNS_PER_BIT, EDGE_COLUMNS, EDGE_ROWS, PUBLISHED, READ_CELL
from t3sim.area.sweep import Sweep
from t3sim.area.synthesis import GATED_BITS, SMALL_WORDS, TARGET_GATE_DELAYS
from t3sim.area.timing import MEMORY_GATE_DELAYS_PER_DOUBLING
from t3sim.base.console import NOTHING, print_table
from t3sim.cosim import yosys
from t3sim.rtl.check_bits import check_bits
from t3sim.rtl.geometry import Geometry

MOST_GATE_EQUIVALENTS = {"tracker": 8_000, "gpu_top": 450_000}  #: targets; the former is one bank

GPU_MM2 = 826  #: an A100's die, in 7 nm (NVIDIA A100 Tensor Core GPU Architecture, 2020)

PAPER_BYTES = 19 * 1024  #: "19 KB" (T3 paper, section 4.2.1)

Rows = Iterable[Sequence[str]]
Section = tuple[str, tuple[str, ...], list[tuple[str, ...]]]


def sections(blocks: dict[str, BlockArea], geometry: Geometry, library: Library, node: ProcessNode) -> list[Section]:
    """Return (title, columns, rows), for a terminal as for Markdown."""
    silicons = {name: block.silicon for name, block in blocks.items()}
    tables = [_silicon(blocks, node), _paths(silicons)]
    if geometry == Geometry():
        tables.append(_targets(silicons))
    if any(block.fpga for block in blocks.values()):
        tables.append(_fpga(blocks))
    if "tracker" in blocks:
        tables.append(storage(geometry))
    tables += [memory_table(block, library, node) for block in blocks.values()
               if block.parts or len(blocks) == 1 and block.memories]
    if TOP in blocks:
        tables += [_macros(), _nodes(blocks), _pitches()]
    tables += [_parts(block) for block in blocks.values() if block.parts]
    return tables


def _silicon(blocks: dict[str, BlockArea], node: ProcessNode) -> Section:
    def silicon_cells(block: BlockArea) -> tuple[str, ...]:
        silicon = block.silicon
        return (f"{silicon.gate_equivalents:,.0f}", f"{silicon.logic_gate_equivalents:,.0f}",
                f"{silicon.logic_depth:.1f}", f"{silicon.period:.1f}",
                f"{block.memory_gate_equivalents:,.0f}", f"{block.area_um2(node):,.0f}",
                f"{node.clock_ghz(silicon.period):.2f}" if silicon.period else NOTHING)

    return ("Silicon", ("block", "macro\nbits", "flip-\nflops", "gate\nequivalents", "of which\nlogic",
                        "logic\ndepth", "cycle", "memories,\ngates", "area\nµm²", "clock\nGHz"),
            [(name, f"{block.macro_bits:,}", f"{block.flip_flops:,}", *silicon_cells(block))
             for name, block in blocks.items()])


def memory_table(block: BlockArea, library: Library, node: ProcessNode) -> Section:
    """List a block's memories by what they are made of."""
    def macro(memory: MemoryUse) -> tuple[str, str]:
        sram = memory.sram
        return (f"{memory.macro_um2(node):,.0f}", f"{sram.efficiency(node):.0%}") if sram else (NOTHING, NOTHING)

    return (f"Memories of {block.name}", ("memory", "number", "words", "bits", "reads", "writes", "made of",
                                          "macro\nbits", "macros\nµm²", "bits'\nshare", "gates"), [
        (memory.name, str(memory.count), f"{memory.words:,}", str(memory.width), _reads(memory), str(memory.writes),
         memory.kind, f"{memory.macro_bits:,}", *macro(memory), f"{memory.gate_equivalents(library):,.0f}")
        for memory in block.memories])


def _macros() -> Section:
    """Put the model of a macro beside published ones."""
    return ("SRAM macros, published and by the model", ("macro", "unit", "published", "model", "model\nis off"), [
        (figure.subject, figure.quantity, _figure(figure.published), _figure(figure.model), f"{figure.error:+.0%}")
        for figure in PUBLISHED])


def _nodes(blocks: dict[str, BlockArea]) -> Section:
    """Put the large blocks on all nodes."""
    return ("Nodes", ("block", "node", "gate\nµm²", "bit\nµm²", "volts", "area\nmm²", "of which\nmacros",
                      "clock\nGHz"), [
        (name, node.name, f"{node.gate_um2:.4f}", f"{node.bit_cell_um2:.4f}", f"{node.volts:g}",
         f"{block.area_um2(node) / 1e6:.3f}", f"{block.macros_um2(node) / block.area_um2(node):.0%}",
         f"{node.clock_ghz(block.silicon.period):.2f}")
        for name, block in blocks.items() if block.parts for node in NODES.values()])


def _pitches() -> Section:
    return ("Processes, published and by their pitches", ("process", "unit", "published", "by pitches",
                                                          "pitches\nare off"), [
        (figure.subject, figure.quantity, *(f"{value:.4f}" if value < 1 else f"{value:.1f}"
                                            for value in (figure.published, figure.model)), f"{figure.error:+.0%}")
        for figure in nodes.PUBLISHED])


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 20 else f"{value:.2f}"


def _reads(memory: MemoryUse) -> str:
    kinds = ((memory.clocked_reads - memory.write_through, "clocked"), (memory.write_through, "clocked, write-through"),
             (memory.unclocked_reads, "unclocked"))
    return "; ".join(f"{number} {kind}" for number, kind in kinds if number)


def _paths(silicons: dict[str, Silicon]) -> Section:
    return ("Longest paths", ("block: from → to", "gate\ndelays", "cells"), [
        (f"{name}: {silicon.timing.path.start} → {silicon.timing.path.end}", f"{silicon.logic_depth:.1f}",
         str(silicon.timing.path.levels)) for name, silicon in silicons.items()])


def _targets(silicons: dict[str, Silicon]) -> Section:
    """Compare the default geometry with its targets."""
    deepest = max(silicons, key=lambda name: silicons[name].logic_depth)
    depth = silicons[deepest].logic_depth
    rows = [("gate delays of the longest path", f"{TARGET_GATE_DELAYS}",
             f"{depth:.1f}" + _miss_note(depth, TARGET_GATE_DELAYS), deepest)]
    rows += [("gate equivalents but for memories", f"{limit:,}", f"{silicons[name].gate_equivalents:,.0f}"
              + _miss_note(silicons[name].gate_equivalents, limit), name)
             for name, limit in MOST_GATE_EQUIVALENTS.items() if name in silicons]
    return ("Targets", ("what", "at most", "found", "in"), rows)


def _miss_note(value: float, limit: float) -> str:
    return " (missed)" if value > limit else ""


def cost(blocks: dict[str, BlockArea], node: ProcessNode) -> list[str]:
    """Say in a sentence what T3 costs a GPU; nothing without the top."""
    if TOP not in blocks:
        return []
    top = blocks[TOP]
    mm2 = top.area_um2(node) / 1e6
    if node != ASAP7:
        return [f"T3 costs {mm2:.3f} mm²: {TOP} on {node.name}, without the near-memory ALUs of the memory's stacks."]
    text = (f"T3 costs {mm2:.3f} mm², {mm2 / GPU_MM2:.4%} of a GPU: {TOP} on {node.name}, over the "
            f"{GPU_MM2:,} mm² of an A100 (7 nm; NVIDIA A100 Tensor Core GPU Architecture, 2020). The "
            "near-memory ALUs are in the memory's stacks and are not counted.")
    return [text]


def _fpga(blocks: dict[str, BlockArea]) -> Section:
    return (f"FPGA: {ecp5.DEVICE}", ("block", "LUTs", "flip-\nflops", "block\nRAMs", "Fmax\nMHz", "remark"), [
        (name, f"{block.fpga.luts:,}", f"{block.fpga.flip_flops:,}", f"{block.fpga.block_rams:,}",
         f"{block.fpga.fmax_mhz:.1f}" if block.fpga.fmax_mhz else NOTHING,
         "; ".join(filter(None, (block.fpga.note, "" if block.fpga.fits else "too large"))))
        for name, block in blocks.items() if block.fpga])


def storage(geometry: Geometry) -> Section:
    """List the Tracker's entries by field, all banks, against the paper's 19 KB."""
    tracker = geometry.tracker
    entries = tracker.sets * tracker.ways
    fields = {"valid": 1, "tag (wg_msb, wf_id)": tracker.tag_bits, "smallest address": tracker.address_bits,
              "byte count": tracker.count_bits}
    rows = [(name, str(bits), f"{entries * bits:,}", f"{entries * bits / 8:,.0f}") for name, bits in fields.items()]
    paper = sum(fields.values())
    rows.append((f"the paper's fields (19 KB are {PAPER_BYTES:,} bytes)", str(paper), f"{entries * paper:,}",
                 f"{entries * paper / 8:,.0f}"))
    region = geometry.dma.region_bits
    rows.append(("region (ours)", str(region), f"{entries * region:,}", f"{entries * region / 8:,.0f}"))
    check = (check_bits(tracker.protection, 1 + tracker.tag_bits)
             + check_bits(tracker.protection, tracker.address_bits + tracker.count_bits + region))
    if check:
        rows.append((f"check bits ({tracker.protection})", str(check), f"{entries * check:,}",
                     f"{entries * check / 8:,.0f}"))
    total = paper + region + check
    rows.append(("all", str(total), f"{entries * total:,}", f"{entries * total / 8:,.0f}"))
    return ("The Tracker's storage, all banks", ("field", "bits of an entry", "bits", "bytes"), rows)


def _parts(block: BlockArea) -> Section:
    largest_first = sorted(block.parts.items(), key=lambda item: -item[1].count * item[1].gate_equivalents)
    return (f"Parts of {block.name}", ("module", "instances", "gate equivalents\nof one", "of all"), [
        (name, str(part.count), f"{part.gate_equivalents:,.0f}", f"{part.count * part.gate_equivalents:,.0f}")
        for name, part in largest_first])


def remarks(library: Library, node: ProcessNode) -> list[str]:
    """Explain what the figures mean."""
    return [
        f"Tools, as PyPI has them: {yosys.versions()}.",
        (f"Library: {library.name}. One gate equivalent is the area of {library.nand2.name}; one gate delay is "
         f"{1e3 * library.gate_delay[0]:.0f} ps here, an inverter ({library.inverter.name}) that drives four of its "
         "kind (FO4)."),
        (f"Memories are what their ports make them: under {SMALL_WORDS} words {FLIP_FLOPS}, among the gates; with one "
         f"clocked read and one write an {MACRO}, counted in bits; with more clocked reads {COPIES}, one for each; "
         f"with a read without clock a {FILE}. \"Memories, gates\" is not mapped, but estimated: a {FILE}'s "
         "flip-flops, the multiplexers of each of its reads and a gated clock for each word, and around a macro what "
         f"gives a word that is being written. Registers of {GATED_BITS} bits and more with one enable have a gated "
         "clock."),
        ("Logic depth: the longest path from a register's, memory's or port's output to the next one's input, without "
         f"wires. A memory read without clock is part of it, at {MEMORY_GATE_DELAYS_PER_DOUBLING} gate delays per "
         "doubling of its words. Cycle: the same with flip-flop delay, set-up time and the access time of clocked "
         "memories."),
        (f"Area and clock: an estimate for {node.name}: {node.gate_um2:.4f} µm² per gate equivalent ("
         f"{AREA_OVER_GATES} x its own); an {MACRO} by its rows and columns, {COLUMNS_PER_BIT} of them a bit: cells "
         f"of {READ_CELL * node.bit_cell_um2:.4f} µm², {EDGE_ROWS} rows and, for each of two ports, {EDGE_COLUMNS} "
         f"columns around them (`sim_models/area/sram.py`); a gate delay of {FO4_PS_PER_UM} ps/µm x "
         f"{node.gate_length_um} µm = "
         f"{node.gate_delay_ps:.1f} ps, a cycle of {CYCLE_OVER_GATES} x its gate delays. "
         "Both factors are medians of layouts (docs/results/area-routed.md): wires, "
         "clock tree, rows that are not full. Sources: `sim_models/area/node.py`."),
    ]


def compare_libraries(pairs: dict[str, Sequence[BlockArea]], library: Library, other: Library) -> Section:
    """Put the blocks in two libraries beside each other, with the ratio of the second to the first."""
    rows = []
    for name, (first_block, second_block) in pairs.items():
        cells = [name]
        for quantity, digits in (("gate_equivalents", 0), ("logic_depth", 1), ("period", 1)):
            first, second = (getattr(block.silicon, quantity) for block in (first_block, second_block))
            cells += [f"{first:,.{digits}f}", f"{second:,.{digits}f}", f"{second / first:.2f}" if first else NOTHING]
        rows.append(tuple(cells))
    return (f"Library {other.name} beside {library.name}",
            ("block", *(heading for quantity in ("gate\nequivalents", "logic\ndepth", "cycle")
                        for heading in (quantity, other.name, "ratio"))), rows)



def print_areas(blocks: dict[str, BlockArea], geometry: Geometry, library: Library, node: ProcessNode,
                console: Console) -> None:
    for title, columns, rows in sections(blocks, geometry, library, node):
        print_table(title, columns, rows, console)
    for remark in remarks(library, node):
        console.print(remark, style="dim")
    for line in cost(blocks, node):
        console.print(line)


def _sweep_section(sweep: Sweep) -> Section:
    return (f"Sweep of {sweep.size}", ("block", sweep.size, "gate equivalents", "memory bits", "logic depth"), [
        (name, str(value), f"{block.silicon.gate_equivalents:,.0f}", f"{block.memory_bits:,}",
         f"{block.silicon.logic_depth:.1f}")
        for name, results in sweep.blocks.items() for value, block in zip(sweep.values, results, strict=True)])


def print_sweeps(sweeps: Sequence[Sweep], console: Console) -> None:
    for title, columns, rows in map(_sweep_section, sweeps):
        print_table(title, columns, rows, console)


def markdown(blocks: dict[str, BlockArea], geometry: Geometry, library: Library, command: str,
             node: ProcessNode = ASAP7) -> str:
    """Write the page."""
    notes = [*cost(blocks, node), *remarks(library, node)]
    return page("Area and timing", command, geometry, notes, sections(blocks, geometry, library, node))


def libraries_markdown(section: Section, geometry: Geometry, library: Library, command: str) -> str:
    """Write the page of two libraries."""
    return page("Area in two libraries", command, geometry, remarks(library, ASAP7)[:4], [section])


def sweeps_markdown(sweeps: Sequence[Sweep], geometry: Geometry, library: Library, command: str, plot: str) -> str:
    """Write the page of a sweep; `plot` is the picture's file, or empty."""
    picture = [f"![area and logic depth over {', '.join(sweep.size for sweep in sweeps)}]({plot})", ""] if plot else []
    return page("Area and timing over sizes", command, geometry, remarks(library, ASAP7)[:4],
                 list(map(_sweep_section, sweeps)), picture)


def page(title: str, command: str, geometry: Geometry, notes: list[str], tables: list[Section],
         picture: Sequence[str] = ()) -> str:
    """Write a page: notes, a picture, tables."""
    sizes = ", ".join(f"{name} {value}" for part in asdict(geometry).values() for name, value in part.items())
    lines = [f"# {title}", "", f"Printed by `{command}`.", "", f"Geometry: {sizes}.", ""]
    lines += [f"- {note}" for note in notes] + ["", *picture]
    for heading, columns, rows in tables:
        lines += [f"## {heading}", "",
                  "| " + " | ".join(name.replace("-\n", "-").replace("\n", " ") for name in columns) + " |",
                  "|---" + "|--:" * (len(columns) - 1) + "|",
                  *("| " + " | ".join(map(_cell, row)) + " |" for row in rows), ""]
    return "\n".join(lines)


def _cell(text: str) -> str:
    """Escape what means something in a table: an index beside an index would be a link."""
    return text.replace("|", "\\|").replace("][", "]\\[")
