"""`t3 techniques`: what `t3 run --technique` and `t3 overlap` can run, and with what."""

from t3sim.base.errors import BadInput
from t3sim.commands.options import JsonOption, check_json_target


def techniques(json: JsonOption = None) -> None:
    """List the techniques of `t3 run` and the mechanisms of `t3 overlap`: what each does, its source, what it needs."""
    from t3sim.analytic.libraries.experts import EXPERTS_MECHANISMS
    from t3sim.analytic.libraries.mechanisms import MECHANISMS
    from t3sim.base.output import write_json
    from t3sim.mechanisms.table import TECHNIQUES

    check_json_target(json)
    rows = {name: {"title": one.title, "source": one.source, "by_default": one.by_default, "split_k": one.splits_k,
                   **_goes_with(one)} for name, one in TECHNIQUES.items()}
    overlaps = {name: {"title": one.title, "source": one.source, "operators": list(one.operators),
                       "in_switch": one.in_switch} for name, one in MECHANISMS.items()}
    experts = {name: {"title": one.title, "source": one.source} for name, one in EXPERTS_MECHANISMS.items()}
    if json is not None:
        write_json({"techniques": rows, "mechanisms": overlaps, "experts": experts}, json)
    if json != "-":
        _show(rows, overlaps, experts)


def _goes_with(technique) -> dict[str, list[str]]:
    """Ask the technique about every operator and algorithm over links that have no size of their own."""
    from dataclasses import replace
    from itertools import product

    from t3sim.machine import load_machine
    from t3sim.runs.exchange import ALGORITHMS, FUSED_OPERATORS, TOPOLOGIES, fused_with
    from t3sim.runs.plan import Plan
    from t3sim.workload.workloads import gemm_workload

    plan = Plan(load_machine(), gemm_workload("1024x1024x1024", 8))
    operators, links = {}, {}
    for operator, topology, algorithm in product(FUSED_OPERATORS, TOPOLOGIES[:3], ALGORITHMS):
        try:
            exchange = fused_with(operator, topology, algorithm)
        except BadInput:
            continue
        if technique.refuses(replace(plan, exchange=exchange)) is None:
            operators[operator] = links[topology] = True
    return {"operators": [*operators], "topologies": [*links]}


def _show(rows: dict, overlaps: dict, experts: dict) -> None:
    from rich import box
    from rich.table import Table

    from t3sim.study.report import output_console

    table = Table("technique", "what it does", "source", "operators", "topologies", box=box.SIMPLE_HEAD)
    for name, row in rows.items():
        table.add_row(f"{name} *" if row["by_default"] else name, row["title"], row["source"],
                      ", ".join(row["operators"]), ", ".join(row["topologies"]))
    output_console().print(table)
    print("* run if none is named\n\nMechanisms of `t3 overlap`, on the event level of machines of today:")
    table = Table("mechanism", "what it does", "source", "operators", box=box.SIMPLE_HEAD)
    for name, row in overlaps.items():
        table.add_row(name, row["title"], row["source"] + (" (a switch that adds)" if row["in_switch"] else ""),
                      ", ".join(row["operators"]))
    output_console().print(table)
    print("Of `t3 overlap --expert-parallel`:")
    table = Table("mechanism", "what it does", "source", box=box.SIMPLE_HEAD)
    for name, row in experts.items():
        table.add_row(name, row["title"], row["source"])
    output_console().print(table)
