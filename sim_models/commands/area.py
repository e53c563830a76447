"""`t3 area`: what the blocks cost in silicon and on an FPGA, and how fast they can run."""

from typing import Annotated

import typer

from t3sim.base.errors import BadInput
from t3sim.commands.options import GeometryOption, JsonOption, MachineOption, check_plot, file_name, write_results


def area(
    block: Annotated[str, typer.Argument(metavar="[BLOCK,...|all]", help="Blocks, or all.")] = "all",
    geometry: GeometryOption = None,
    machine: MachineOption = "t3-table1",
    sweep: Annotated[list[str] | None, typer.Option(
        "--sweep", metavar="SIZE=N,N,...", help="Values of one size; repeat it for further sizes.")] = None,
    plot: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Plot the sweep: .svg, .png or .pdf.")] = None,
    fpga: Annotated[bool, typer.Option("--fpga/--no-fpga",
        help="Also place and route on an ECP5 (takes minutes).")] = False,
    energy: Annotated[bool, typer.Option("--energy/--no-energy",
        help="Energy of the whole top in a full-size run, and of the near-memory ALUs (takes minutes).")] = False,
    library: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Standard cells: embedded, osu018 (after `make library`), or a file "
        "in Liberty format. If not given, $T3_LIBERTY, else osu018 where it is installed, else embedded.")] = None,
    node: Annotated[str, typer.Option(
        metavar="NM", help="Process node in nm for estimated area and clock: 180, 12, 7 or 5.")] = "7",
    beside: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="A second library, compared block by block.")] = None,
    markdown: Annotated[str | None, typer.Option(
        metavar="FILE", parser=file_name, help="Write the tables as a Markdown page.")] = None,
    compare: Annotated[bool, typer.Option(
        "--compare", help="Print only differences from the last entry of docs/history.jsonl, simulation speed "
                          "included.")] = False,
    record: Annotated[bool, typer.Option(
        "--record", help="Like --compare, and append an entry.")] = False,
    json: JsonOption = None,
) -> None:
    """Measure memory bits, flip-flops, gate equivalents, logic depth and clock; FPGA resources and Fmax."""
    import os
    from pathlib import Path

    from t3sim.area.libraries import find_library
    from t3sim.area.node import NODES
    from t3sim.base.output import write_whole
    from t3sim.cosim import yosys
    from t3sim.cosim.geometry_option import changed, parse_sizes, parse_sweep
    from t3sim.cosim.verilog_files import chosen_blocks
    from t3sim.machine import load_machine

    fpga = fpga or record  # an entry of the history has it
    if node not in NODES:
        raise BadInput(f"--node {node}: allowed are {', '.join(NODES)}")
    if energy:
        other = {"a block": block != "all", "--geometry": geometry, "--sweep": sweep, "--plot": plot, "--fpga": fpga,
                 "--beside": beside, "--compare": compare, "--record": record, "--node": node != "7"}
        if excess := [option for option, value in other.items() if value]:
            raise BadInput(f"{excess[0]} does not go with --energy: allowed are --machine, --library, --markdown and "
                           "--json")
        _energy(machine, library, markdown, json)
        return
    blocks = tuple(dict.fromkeys(name for part in block.split(",") for name in chosen_blocks(part.strip())))
    described = load_machine(machine)
    sizes = changed(described.geometry(), parse_sizes(geometry))
    swept = [parse_sweep(text) for text in sweep or ()]
    sizes_swept = [size for size, _ in swept]
    if twice := [size for size in sizes_swept if sizes_swept.count(size) > 1]:
        raise BadInput(f"--sweep gives {twice[0]} twice: list all its values in one --sweep")
    for size, values in swept:
        for value in values:
            changed(sizes, {size: value})
    if plot is not None and not swept:
        raise BadInput("--plot needs --sweep")
    if plot is not None and any(isinstance(value, str) for _, values in swept for value in values):
        raise BadInput("--plot needs numeric sizes")
    if swept and (record or compare):
        raise BadInput("--sweep goes with --plot, --markdown and --json only")
    if beside is not None and (swept or record or compare):
        raise BadInput(f"--beside {beside} goes with --library, --markdown and --json only")
    check_plot(plot, (".svg", ".png", ".pdf"))
    target = None if plot is None else Path(plot)
    cells = find_library(library)
    second = find_library(beside) if beside is not None else None
    for tool in ("yosys", "nextpnr-ecp5") if fpga and not swept else ("yosys",):
        yosys.version(tool)

    from t3sim.area import history, report
    from t3sim.area.measure import measure
    from t3sim.area.sweep import plot as draw
    from t3sim.area.sweep import sweep as run_sweep
    from t3sim.base.console import output_console, print_table, progress_bar

    process = NODES[node]
    options = [*([f"--node {node}"] if node != "7" else []),
               *([f"--geometry {geometry}"] if geometry else []), f"--markdown {markdown}",
               *([f"--plot {plot}"] if plot else [])]
    if swept:
        with progress_bar([size for size, _ in swept]) as progress:
            sweeps = [run_sweep(blocks, sizes, size, values, cells, progress) for size, values in swept]
        if target is not None:
            draw(sweeps, target)
        if markdown is not None:
            command = " ".join(["t3 area", block, *(f"--sweep {text}" for text in sweep), *options])
            picture = os.path.relpath(target, Path(markdown).parent) if target else ""
            write_whole(Path(markdown), report.sweeps_markdown(sweeps, sizes, cells, command, picture))
        if write_results({"library": cells.name, "sweeps": [one.to_json(process) for one in sweeps]}, json):
            report.print_sweeps(sweeps, output_console())
        return

    if second is not None:
        with progress_bar(blocks) as progress:
            pairs = {name: [measure(name, sizes, each, fpga=False, progress=progress) for each in (cells, second)]
                     for name in blocks}
        section = report.compare_libraries(pairs, cells, second)
        if markdown is not None:
            command = " ".join(["t3 area", block, *(("--library", library) if library else ()), "--beside", beside,
                                *options])
            write_whole(Path(markdown), report.libraries_markdown(section, sizes, cells, command))
        content = {each.name: {name: pair[place].to_json(process) for name, pair in pairs.items()}
                   for place, each in enumerate((cells, second))}
        if write_results(content, json):
            print_table(*section, output_console())
        return

    with progress_bar(blocks) as progress:
        results = {name: measure(name, sizes, cells, fpga=fpga, progress=progress) for name in blocks}
    if markdown is not None:
        command = " ".join(["t3 area", block, *(("--fpga",) if fpga else ()),
                            *(("--library", library) if library else ()), *options])
        write_whole(Path(markdown), report.markdown(results, sizes, cells, command, process))
    content = {"library": {"name": cells.name, "gate_delay_ps": round(1e3 * cells.gate_delay[0], 2),
                           "nand2": cells.nand2.name, "nand2_area": cells.nand2.area},
               "blocks": {name: one.to_json(process) for name, one in results.items()}}
    for_people = write_results(content, json)
    if not (record or compare):
        if for_people:
            report.print_areas(results, sizes, cells, process, output_console())
        return

    from t3sim.study.engine_speed import run_bench

    def tell(line: str) -> None:
        if for_people:
            print(line, flush=True)

    last = (history.read() or [None])[-1]
    new = history.entry(results, cells.name)
    tell(f"{new['commit']} against {last['commit']}:" if last else "no entry recorded yet")
    for line in (history.changes(last, new) or ["nothing changed"]) if last else ():
        tell(line)
    with progress_bar(("lockstep",)) as progress:
        measured = run_bench(machine, ("lockstep",), 20_000, progress)
    new |= history.speed(measured.cycles_per_second["lockstep"])
    if last:
        tell(history.speed_change(last, new))
    if record:
        history.append(new)


def _energy(machine: str, library: str | None, markdown: str | None, json: str | None) -> None:
    """Measure the energy of a run; print it, and write it to files."""
    from pathlib import Path

    from t3sim.area.energy.price import check_library
    from t3sim.area.libraries import find_library
    from t3sim.area.node import ASAP7
    from t3sim.base.output import write_whole
    from t3sim.cosim import yosys
    from t3sim.machine import load_machine

    geometry = load_machine(machine).geometry()
    cells = find_library(library)
    check_library(cells)
    yosys.version("yosys")

    from t3sim.area.energy import report
    from t3sim.area.energy.measured import measure_energy
    from t3sim.base.console import output_console, progress_bar

    with progress_bar(["netlists", "run", "ALU"]) as progress:
        energy_report = measure_energy(machine, cells, ASAP7, None, progress)
    if markdown is not None:
        command = ["t3 area --energy", *((f"--machine {machine}",) if machine != "t3-table1" else ()),
                   *((f"--library {library}",) if library else ()), f"--markdown {markdown}"]
        write_whole(Path(markdown), report.markdown(energy_report, geometry, cells, ASAP7, command))
    if write_results(energy_report.to_json(), json):
        report.print_energy(energy_report, cells, ASAP7, output_console())
