"""Collectives on tori of 16 to 128 GPUs: the event level held to closed forms."""

from sim_models.flow.algorithms import COLLECTIVES, algorithms, chunk_bytes
from sim_models.flow.collective import run_program
from sim_models.flow.scale_out import load_scale_out
from sim_models.reproduce.figure import Figure, Findings, Results, Setup, Table
from sim_models.reproduce.paper import Target
from sim_models.topologies import named_topology

_TORI = ("torus:4x4", "torus:8x8", "torus:8x16")
_SIZES_MB = (1, 192)


def evaluate(setup: Setup, results: Results) -> Findings:
    costs, rows, errors = load_scale_out("torus-128").costs, [], []
    for text in _TORI:
        topology = named_topology(text)
        for kind in ("ar", "a2a"):
            for one in algorithms(kind, topology).values():
                program = one.program()
                for size in _SIZES_MB:
                    part, closed = chunk_bytes(kind, program, size * 1e6), one.closed_form_ns(costs, size * 1e6)
                    run = run_program(program, topology, lambda chunk, part=part: part, costs)
                    errors.append(100 * (run.ns / closed - 1))
                    rows.append((f"{COLLECTIVES[kind]}, {one.name}, {text.partition(':')[2]}, {size} MB",
                                 f"{run.ns / 1e3:,.1f}", f"{closed / 1e3:,.1f}", f"{errors[-1]:+.2f} %",
                                 f"{100 * run.busiest_link:.0f} %"))
    worst = max(map(abs, errors))
    return Findings(
        text="Per-dimension and direct collectives on tori of 16, 64 and 128 GPUs take what closed forms of their "
             f"links say, within {worst:.1f} %.",
        ours={"torus_error_max_percent": worst},
        targets={"torus_error_max_percent": Target("events against closed form, largest", "%", None, "beyond",
                                                   at_most=3)},
        tables=[Table("Time (µs)", ("collective", "events", "closed form", "difference", "busiest link"), rows,
                      folded=True)])


TORUS = Figure("torus", "Collectives on a torus, events against closed forms", lambda setup: (), evaluate,
               paper="fused")
