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
    embedding: str | None = None
    slice_tasks: int | None = None
    signal: str | None = None  #: of `mechanisms.signals.SIGNALS`


def run_event_level(asked: Asked, json: str | None) -> None:
    """Run and print, or write as JSON. Raises BadInput."""
    from t3sim.machine.levels import load_tiles
    from t3sim.support.output import check_json_target, write_json
    from t3sim.tiles import persistent_runs
    from t3sim.tiles.flux import Choice
    from t3sim.tiles.gemm import Shape, best
    from t3sim.tiles.runs import OPERATORS, TECHNIQUES, run_overlap
    from t3sim.workloads import gemm_workload

    check_json_target(json)
    if asked.signal and asked.techniques is not None and not {"flux", "fused-wg", "t3-model"} & set(asked.techniques):
        raise BadInput(f"--signal {asked.signal} is for flux, or fused-wg and t3-model, of which --technique "
                       f"{','.join(asked.techniques)} names none")
    for option, value in (("--slice", asked.slice_tasks), ("--flux-pieces", asked.pieces), ("--tune", asked.tune)):
        if asked.signal and value not in (None, False):
            raise BadInput(f"--signal {asked.signal} does not go with {option}, which says how much is sent together")
    known = (*OPERATORS, *persistent_runs.OPERATORS, "gemm")
    if asked.operator not in known:
        raise BadInput(f"--operator {asked.operator!r} is not on the event level: allowed are {', '.join(known)}")
    if asked.operator in persistent_runs.OPERATORS:
        _run_persistent(asked, json)
        return
    for option, value in (("--embedding", asked.embedding), ("--slice", asked.slice_tasks),
                          ("--signal", asked.signal if asked.operator == "gemm" else None)):
        if value is not None:
            raise BadInput(f"{option} {value} does not go with --operator {asked.operator}")
    if asked.gemm is None:
        raise BadInput("--level event needs --gemm MxNxK, the GEMM of one GPU")
    node = load_tiles(asked.machine)
    node = node if asked.software else node.without_software()
    workload = gemm_workload(asked.gemm, node.gpus if asked.devices is None else asked.devices)
    shape = Shape(workload.m, workload.n, workload.k)
    if asked.operator == "gemm":
        one = best(node, shape)
        if json is not None:
            write_json({"kernel": f"GEMM {asked.gemm}", "machine": node.name, "kernel_ns": one.ns,
                        "call_ns": one.ns + node.host.call_ns, "tiles": one.name, "rounds": one.rounds}, json)
        if json != "-":
            _print_gemm(asked.gemm, node, one, node.gpu.tflop_per_s(workload.flop, one.ns))
        return
    choice = Choice(asked.order, asked.transfer or "push", 1 if asked.pieces is None else asked.pieces, asked.signal)
    if asked.tune and choice != Choice():
        raise BadInput("--tune tries every --flux-order, --flux-transfer and --flux-pieces: give it or them")
    every = [name for name in TECHNIQUES if name != "decomposed" or workload.tp <= node.gpus]
    run = run_overlap(node, asked.operator, shape, workload.tp, asked.techniques or every,
                      None if asked.tune else choice, asked.comm_units)
    if json is not None:
        write_json(run.to_json(), json)
    if json != "-":
        _print(run, node)


def _run_persistent(asked: Asked, json: str | None) -> None:
    """Run a persistent kernel that sends, beside separate kernels and Track & Trigger."""
    from t3sim.machine.levels import load_tiles
    from t3sim.study.report import NOTHING, output_console, print_table
    from t3sim.support.output import write_json
    from t3sim.tiles.persistent import Sending
    from t3sim.tiles.persistent_runs import TECHNIQUES, run_persistent
    from t3sim.workloads import batch_and_tables, gemm_workload

    node = load_tiles(asked.machine)
    node = node if asked.software else node.without_software()
    devices = node.gpus if asked.devices is None else asked.devices
    if asked.operator == "embedding-a2a":
        if asked.gemm is not None or asked.embedding is None:
            raise BadInput("--operator embedding-a2a needs --embedding BATCHxTABLES (tables per GPU), for example "
                           "2048x256, and no --gemm")
        shape = batch_and_tables(asked.embedding)
    elif asked.gemm is None or asked.embedding is not None:
        raise BadInput(f"--operator {asked.operator} needs --gemm MxNxK, one GPU's, and no --embedding")
    else:
        one = gemm_workload(asked.gemm, devices)
        if asked.operator == "gemv-ar" and one.n != 1:
            raise BadInput(f"--operator gemv-ar multiplies by a vector: --gemm {one.m}x1x{one.k}")
        shape = (one.m, one.k) if asked.operator == "gemv-ar" else (one.m, one.n, one.k)
    default = 32 if asked.operator == "embedding-a2a" else 1
    run = run_persistent(node, asked.operator, devices, shape, asked.techniques or TECHNIQUES, asked.signal or
                         Sending(default if asked.slice_tasks is None else asked.slice_tasks))
    if json is not None:
        write_json(run.to_json(), json)
    if json != "-":
        console = output_console()
        print_table(f"{run.operator}, {run.shape}, {run.gpus} GPUs; machine {run.machine}; event level (µs)",
                    ("technique", "total", "computed after", "shorter by"),
                    [(name, f"{one.total_ns / 1e3:,.1f}",
                      NOTHING if one.computed_ns is None else f"{one.computed_ns / 1e3:,.1f}", f"{one.shorter:.1%}")
                     for name, one in run.techniques.items()], console)
        _print_losses("Where the time beyond one kernel that sends nothing went (µs)", run.techniques, console)


def _print_gemm(shape: str, node, one, rate: tuple[float, float]) -> None:
    from t3sim.study.report import output_console, print_table

    print_table(f"GEMM {shape} alone, {node.name}", ("what", "value"), [
        ("time", f"{one.ns / 1e3:,.1f} µs"), ("of a call that is waited for",
                                              f"{(one.ns + node.host.call_ns) / 1e3:,.1f} µs"),
        ("rate", f"{rate[0]:,.1f} TFLOP/s"), ("of peak", f"{rate[0] / rate[1]:.0%}"),
        ("kernel", one.name), ("tiles", f"{one.tiles:,}"), ("rounds", str(one.rounds))], output_console())


def _print(run, node) -> None:
    from t3sim.study.report import NOTHING, output_console, print_table
    from t3sim.tiles.decomposed import TOO_GOOD

    console = output_console()
    print_table(f"{run.operator}, {run.m} x {run.n} x {run.k} per GPU, {run.gpus} GPUs; machine {run.machine}; event "
                "level (µs)", ("technique", "total", "speedup", "ECT", "overlap\nefficiency", "chosen"),
                [(name, f"{one.total_ns / 1e3:,.1f}", f"{one.speedup:.3f}", f"{one.ect_ns / 1e3:,.1f}",
                  f"{one.overlap_efficiency:.1%}", ", ".join(f"{key} {value}" for key, value in one.choice.items())
                  or NOTHING) for name, one in run.techniques.items()], console)
    _print_losses("Where the time beyond the GEMM alone went (µs)", run.techniques, console)
    console.print(f"GEMM alone {run.gemm_ns / 1e3:,.1f} µs ({run.gemm_kernel}), collective alone "
                  f"{run.collective_ns / 1e3:,.1f} µs.")
    rate, peak = node.gpu.tflop_per_s(2 * run.m * run.n * run.k, run.gemm_ns)
    console.print(f"The GEMM alone: {rate:,.1f} of {peak:,.1f} TFLOP/s ({rate / peak:.0%} of peak).")
    if "decomposed" in run.techniques and (points := TOO_GOOD.get(run.machine)):
        console.print(f"decomposed is too good here: on the mean of Flux's figures 11 to 13 it hides {points} points "
                      "more of the communication than TransformerEngine did (docs/why/other-papers.md).")


def _print_losses(title: str, techniques, console) -> None:
    from t3sim.study.report import NOTHING, print_table

    causes = list(dict.fromkeys(cause for one in techniques.values() for cause in one.loss_ns))
    print_table(title, ("cause", *techniques), [
        (cause, *(f"{one.loss_ns[cause] / 1e3:,.1f}" if cause in one.loss_ns else NOTHING
                  for one in techniques.values())) for cause in causes], console)
