"""Blocks over the values of one size, as figures and as a plot."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from t3sim.area.liberty import Library
from t3sim.area.measure import BlockArea, measure
from t3sim.area.node import ProcessNode
from t3sim.area.synthesis import TARGET_GATE_DELAYS
from t3sim.base.output import write_whole
from t3sim.cosim.geometry_option import changed
from t3sim.rtl.geometry import Geometry


@dataclass(frozen=True)
class Sweep:
    size: str
    values: tuple[int | str, ...]
    blocks: dict[str, tuple[BlockArea, ...]]  #: one result per value

    def to_json(self, node: ProcessNode) -> dict:
        return {"size": self.size, "values": list(self.values),
                "blocks": {name: {"gate_equivalents": [round(block.silicon.gate_equivalents, 1) for block in results],
                                  "memory_bits": [block.memory_bits for block in results],
                                  "logic_depth": [round(block.silicon.logic_depth, 2) for block in results],
                                  "cycle_ns": [node.cycle_ns(block.silicon.period) for block in results]}
                           for name, results in self.blocks.items()}}


def sweep(blocks: Sequence[str], geometry: Geometry, size: str, values: Sequence[int | str], library: Library,
          progress: Callable[[str, float], None] = lambda name, fraction: None) -> Sweep:
    """Measure the blocks at every value of a size.

    Raises GeometryError, before any work, if one of the values cannot be.
    """
    geometries = [changed(geometry, {size: value}) for value in values]
    results: dict[str, list[BlockArea]] = {block: [] for block in blocks}
    for index, sized_geometry in enumerate(geometries):
        for block in blocks:
            results[block].append(measure(block, sized_geometry, library, fpga=False))
        progress(f"{size}", (index + 1) / len(geometries))
    return Sweep(size, tuple(values), {block: tuple(areas) for block, areas in results.items()})


def plot(sweeps: Sequence[Sweep], path: Path) -> None:
    """Plot gates, memory bits and logic depth, one below the other; a column per size."""
    import io

    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams |= {"svg.hashsalt": "t3", "svg.fonttype": "none"}  # the same figures give the same file
    from matplotlib import pyplot, ticker

    figure, axes = pyplot.subplots(3, len(sweeps), figsize=(1 + 2.6 * len(sweeps), 7.5), squeeze=False, sharex="col",
                                   sharey="row", layout="constrained")
    for column, sweep in enumerate(sweeps):
        area, memory, depth = (row[column] for row in axes)
        for name, results in sweep.blocks.items():
            silicons = [result.silicon for result in results]
            area.plot(sweep.values, [silicon.gate_equivalents for silicon in silicons], "o-", label=name)
            memory.plot(sweep.values, [result.memory_bits for result in results], "o-", label=name)
            depth.plot(sweep.values, [silicon.logic_depth for silicon in silicons], "o-", label=name)
        depth.axhline(TARGET_GATE_DELAYS, color="grey", linestyle="--", linewidth=1)
        depth.set_xlabel(sweep.size)
        depth.set_xscale("log", base=2)
        depth.set_xticks(sweep.values, [str(value) for value in sweep.values], minor=False)
        area.set_yscale("log")
        area.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
        area.yaxis.set_major_formatter("{x:,.0f}")
        area.yaxis.set_minor_locator(ticker.NullLocator())
        memory.set_yscale("symlog", linthresh=1024)
        for axis in (area, memory, depth):
            axis.grid(alpha=0.3)
    axes[1][0].set_ylim(bottom=0)
    axes[2][0].set_ylim(bottom=0)
    axes[0][0].set_ylabel("area (gate equivalents)")
    axes[1][0].set_ylabel("memory (bits)")
    axes[2][0].set_ylabel("logic depth (gate delays)")
    names, labels = axes[0][0].get_legend_handles_labels()
    figure.legend(names, labels, loc="outside upper center", ncols=len(labels))
    image = io.BytesIO()
    figure.savefig(image, format=path.suffix[1:], metadata={"Date": None} if path.suffix == ".svg" else None)
    pyplot.close(figure)
    write_whole(path, image.getvalue())
