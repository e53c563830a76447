"""`t3 run --level event`: an operator and its collective tile by tile, without RTL, on GPUs that are sold."""

from typing import TYPE_CHECKING

from t3sim.errors import BadInput

if TYPE_CHECKING:
    from t3sim.machine.tiles import Node
    from t3sim.scenario.scenario import Scenario


def run_event_level(scenario: "Scenario", json: str | None) -> None:
    """Run and print, or write as JSON. Raises BadInput."""
    from t3sim.scenario.request import check_level
    from t3sim.scenario.scenario import said
    from t3sim.support.output import write_json
    from t3sim.tiles import persistent_runs
    from t3sim.tiles.flux import Choice
    from t3sim.tiles.gemm import Shape, best
    from t3sim.tiles.runs import OPERATORS, TECHNIQUES, run_overlap
    from t3sim.workloads import gemm_workload

    check_level(scenario)
    layer, flux, signal = scenario.layer, scenario.flux, scenario.exchange.signal
    if signal and scenario.techniques is not None and not {"flux", "fused-wg", "t3-model"} & set(scenario.techniques):
        raise BadInput(f"{said('exchange.signal', signal)} is for flux, or fused-wg and t3-model, of which "
                       f"{said('techniques', scenario.techniques)} names none")
    for key, value in (("fused_wg.slice_tasks", scenario.fused_wg.slice_tasks), ("flux.pieces", flux.pieces),
                       ("flux.tune = true", flux.tune)):
        if signal and value not in (None, False):
            raise BadInput(f"{said('exchange.signal', signal)} does not go with {key}, which says how much is sent "
                           "together")
    known = (*OPERATORS, *persistent_runs.OPERATORS, "gemm")
    if layer.operator not in known:
        raise BadInput(f"layer.operator = {layer.operator!r} is not on the event level: allowed are "
                       f"{', '.join(known)}")
    if layer.operator in persistent_runs.OPERATORS:
        _run_persistent(scenario, json)
        return
    for key, value in (("layer.embedding", layer.embedding), ("fused_wg.slice_tasks", scenario.fused_wg.slice_tasks),
                       ("exchange.signal", signal if layer.operator == "gemm" else None)):
        if value is not None:
            raise BadInput(f"{said(key, value)} does not go with {said('layer.operator', layer.operator)}")
    if layer.gemm is None:
        raise BadInput("level = event needs layer.gemm = MxNxK, the GEMM of one GPU")
    node = _node(scenario)
    workload = gemm_workload(layer.gemm, node.gpus if layer.devices is None else layer.devices)
    shape = Shape(workload.m, workload.n, workload.k)
    if layer.operator == "gemm":
        one = best(node, shape)
        if json is not None:
            write_json({"kernel": f"GEMM {layer.gemm}", "machine": node.name, "kernel_ns": one.ns,
                        "call_ns": one.ns + node.host.call_ns, "tiles": one.name, "rounds": one.rounds}, json)
        if json != "-":
            _print_gemm(layer.gemm, node, one, node.gpu.tflop_per_s(workload.flop, one.ns))
        return
    choice = Choice(flux.order, flux.transfer or "push", 1 if flux.pieces is None else flux.pieces, signal)
    if flux.tune and choice != Choice():
        raise BadInput("flux.tune = true tries every flux.order, flux.transfer and flux.pieces: give it or them")
    every = [name for name in TECHNIQUES if name != "decomposed" or workload.tp <= node.gpus]
    run = run_overlap(node, layer.operator, shape, workload.tp, scenario.techniques or every,
                      None if flux.tune else choice, scenario.decomposed.communication_units)
    if json is not None:
        write_json(run.to_json(), json)
    if json != "-":
        _print(run, node)


def _node(scenario: "Scenario") -> "Node":
    """Load the machine. Raises MachineError."""
    from t3sim.machine.levels import load_tiles

    node = load_tiles(scenario.machine)
    return node if scenario.software else node.without_software()


def _run_persistent(scenario: "Scenario", json: str | None) -> None:
    """Run a persistent kernel that sends, beside separate kernels and Track & Trigger."""
    from t3sim.study.report import NOTHING, output_console, print_table
    from t3sim.support.output import write_json
    from t3sim.tiles.persistent import Sending
    from t3sim.tiles.persistent_runs import TECHNIQUES, run_persistent
    from t3sim.workloads import batch_and_tables, gemm_workload

    node, layer, slice_tasks = _node(scenario), scenario.layer, scenario.fused_wg.slice_tasks
    operator, devices = layer.operator, node.gpus if layer.devices is None else layer.devices
    if operator == "embedding-a2a":
        if layer.gemm is not None or layer.embedding is None:
            raise BadInput("layer.operator = embedding-a2a needs layer.embedding = BATCHxTABLES (tables per GPU), for "
                           "example 2048x256, and no layer.gemm")
        shape = batch_and_tables(layer.embedding)
    elif layer.gemm is None or layer.embedding is not None:
        raise BadInput(f"layer.operator = {operator} needs layer.gemm = MxNxK, one GPU's, and no layer.embedding")
    else:
        one = gemm_workload(layer.gemm, devices)
        if operator == "gemv-ar" and one.n != 1:
            raise BadInput(f"layer.operator = gemv-ar multiplies by a vector: layer.gemm = {one.m}x1x{one.k}")
        shape = (one.m, one.k) if operator == "gemv-ar" else (one.m, one.n, one.k)
    default = 32 if operator == "embedding-a2a" else 1
    run = run_persistent(node, operator, devices, shape, scenario.techniques or TECHNIQUES, scenario.exchange.signal or
                         Sending(default if slice_tasks is None else slice_tasks))
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
