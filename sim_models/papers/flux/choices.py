"""Flux's figures 8 to 10: what the order of tiles, who copies, and the communication tile change."""

from collections.abc import Iterator

from t3sim.base import plots
from t3sim.mechanisms.flux.event import OPERATORS, TRANSFERS, Choice
from t3sim.papers.figure import Figure, Findings, Quantities, Results, Scope, Table
from t3sim.papers.flux.operators import NODES, TITLES, OverlapTask

_SIZES = (1024, 8192)
_PIECES = (1, 2, 4, 8)


def _order(operator: str, m: int, order: str) -> OverlapTask:
    return OverlapTask("a100-nvlink", operator, m, choice=Choice(order))


def _transfer(node: str, m: int, transfer: str) -> OverlapTask:
    return OverlapTask(node, "ag-gemm", m, choice=Choice("shifted", transfer))


def _pieces(m: int, pieces: int) -> OverlapTask:
    return OverlapTask("a100-nvlink", "ag-gemm", m, choice=Choice("shifted", "pull", pieces))


def _tasks(setup: Scope) -> Iterator[OverlapTask]:
    for m in _SIZES:
        yield from (_order(operator, m, order) for operator in OPERATORS for order in ("same", "shifted"))
        yield from (_transfer(node, m, transfer) for node in NODES for transfer in TRANSFERS)
        yield from (_pieces(m, pieces) for pieces in _PIECES)


def _evaluate(setup: Scope, results: Results) -> Findings:
    def total(task: OverlapTask) -> float:
        return results[task].total_ns["flux"]

    gains = {(operator, m): total(_order(operator, m, "same")) / total(_order(operator, m, "shifted"))
             for operator in OPERATORS for m in _SIZES}
    ours = Quantities()
    ours.add("shifted_gain_min", min(gains.values()), "x", "speedup of shifted over same order, smallest",
             section="4.1", at_least=1)
    ours.add("gain_grows_with_m", min(gains[operator, 8192] / gains[operator, 1024] for operator in OPERATORS), "x",
             "that speedup at m = 8192 over m = 1024, smallest", section="4.1", at_least=1)
    return Findings(
        text="On A100 NVLink a different order of tiles on each rank makes the operator "
             + ", ".join(f"{gain:.2f} times as fast ({TITLES[operator]}, m = {m})"
                         for (operator, m), gain in gains.items())
             + ". In the paper it is faster in every case.",
        ours=ours,
        tables=[Table("Order of tiles, A100 NVLink (µs)", ("operator", "same", "shifted", "gain"), [
                    (f"{TITLES[operator]}, m = {m}", f"{total(_order(operator, m, 'same')) / 1e3:,.0f}",
                     f"{total(_order(operator, m, 'shifted')) / 1e3:,.0f}", f"{gain:.2f}")
                    for (operator, m), gain in gains.items()]),
                Table("All-gather, by side that copies (µs)", ("node", *TRANSFERS), [
                    (f"{title}, m = {m}",
                     *(f"{total(_transfer(node, m, transfer)) / 1e3:,.0f}" for transfer in TRANSFERS))
                    for node, title in NODES.items() for m in _SIZES]),
                Table("Communication tiles per rank's rows, A100 NVLink, pulled (µs)",
                      ("m", *map(str, _PIECES)), [
                    (str(m), *(f"{total(_pieces(m, pieces)) / 1e3:,.0f}" for pieces in _PIECES)) for m in _SIZES])],
        plots={"flux-order": lambda: _draw(gains)})


def _draw(gains: dict[tuple[str, int], float]):
    figure, axes = plots.figure(2.6, width=0.6)
    plots.grouped_bars(axes, [f"m = {m}" for m in _SIZES],
                       {operator: [gains[operator, m] for m in _SIZES] for operator in OPERATORS},
                       dict(zip(OPERATORS, (plots.BLUE, plots.ORANGE))), TITLES, baseline=1.0)
    axes.set_ylabel("speedup of an order per rank\nover the same order on all")
    axes.legend()
    return figure


CHOICES = Figure("flux-choices", "Order, transfers and communication tiles (figures 8 to 10)", _tasks, _evaluate,
                 short="choices", paper="flux")
