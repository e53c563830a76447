"""`t3 run --level event`: an operator and its collective tile by tile, without RTL, on GPUs that are sold."""

from dataclasses import dataclass

from t3sim.errors import BadInput


@dataclass(frozen=True)
class Asked:
    """What the options of `t3 run` say."""

    operator: str
    gemm: str | None
    devices: int | None
    techniques: tuple[str, ...] | None  #: None: all
    machine: str
    comm_units: int
    order: str
    transfer: str | None
    pieces: int | None
    tune: bool
    software: bool


def run_event_level(asked: Asked, json: str | None) -> None:
    """Run and print, or write as JSON. Raises BadInput."""
    from t3sim.study.results import check_json_target, write_json
    from t3sim.tiles.flux import Choice
    from t3sim.tiles.gemm import Shape, best
    from t3sim.tiles.node import load_node
    from t3sim.tiles.runs import OPERATORS, TECHNIQUES, run_overlap
    from t3sim.workloads import gemm_workload

    check_json_target(json)
    if asked.operator not in (*OPERATORS, "gemm"):
        raise BadInput(f"--operator {asked.operator!r} is not on the event level: allowed are "
                       f"{', '.join((*OPERATORS, 'gemm'))}")
    if asked.gemm is None:
        raise BadInput("--level event needs --gemm MxNxK, the GEMM of one GPU")
    node = load_node(asked.machine)
    node = node if asked.software else node.without_software()
    workload = gemm_workload(asked.gemm, node.gpus if asked.devices is None else asked.devices)
    shape = Shape(workload.m, workload.n, workload.k)
    if asked.operator == "gemm":
        one = best(node, shape)
        if json is not None:
            write_json({"kernel": f"GEMM {asked.gemm}", "machine": node.name, "kernel_ns": one.ns,
                        "call_ns": one.ns + node.host.call_ns, "tiles": one.name, "rounds": one.rounds}, json)
        if json != "-":
            _print_gemm(asked.gemm, node.name, one, node.host.call_ns)
        return
    choice = Choice(asked.order, asked.transfer or "push", 1 if asked.pieces is None else asked.pieces)
    if asked.tune and choice != Choice():
        raise BadInput("--tune tries every --flux-order, --flux-transfer and --flux-pieces: give it or them")
    every = [name for name in TECHNIQUES if name != "decomposed" or workload.tp <= node.gpus]
    run = run_overlap(node, asked.operator, shape, workload.tp, asked.techniques or every,
                      None if asked.tune else choice, asked.comm_units)
    if json is not None:
        write_json(run.to_json(), json)
    if json != "-":
        _print(run)


def _print_gemm(shape: str, machine: str, one, call_ns: float) -> None:
    from t3sim.study.report import output_console, print_table

    print_table(f"GEMM {shape} alone, {machine}", ("what", "value"), [
        ("time", f"{one.ns / 1e3:,.1f} µs"), ("of a call that is waited for", f"{(one.ns + call_ns) / 1e3:,.1f} µs"),
        ("kernel", one.name), ("tiles", f"{one.tiles:,}"), ("rounds", str(one.rounds))], output_console())


def _print(run) -> None:
    from t3sim.study.report import NOTHING, output_console, print_table

    console = output_console()
    print_table(f"{run.operator}, {run.m} x {run.n} x {run.k} per GPU, {run.gpus} GPUs; machine {run.machine}; event "
                "level (µs)", ("technique", "total", "speedup", "ECT", "overlap\nefficiency", "chosen"),
                [(name, f"{one.total_ns / 1e3:,.1f}", f"{one.speedup:.3f}", f"{one.ect_ns / 1e3:,.1f}",
                  f"{one.overlap_efficiency:.1%}", ", ".join(f"{key} {value}" for key, value in one.choice.items())
                  or NOTHING) for name, one in run.techniques.items()], console)
    causes = list(dict.fromkeys(cause for one in run.techniques.values() for cause in one.loss_ns))
    print_table("Where the time beyond the GEMM alone went (µs)", ("cause", *run.techniques), [
        (cause, *(f"{one.loss_ns[cause] / 1e3:,.1f}" if cause in one.loss_ns else NOTHING
                  for one in run.techniques.values())) for cause in causes], console)
    console.print(f"GEMM alone {run.gemm_ns / 1e3:,.1f} µs ({run.gemm_kernel}), collective alone "
                  f"{run.collective_ns / 1e3:,.1f} µs.")
