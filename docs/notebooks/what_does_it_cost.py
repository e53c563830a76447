# %% [markdown]
# # What does it cost in gates?
#
# `t3 area` elaborates a block at a geometry, synthesises it with Yosys and measures it against standard cells: those
# that come with the package, or a library of one's own in Liberty format.

# %%
import contextlib
import io
import json
from pathlib import Path
from tempfile import mkdtemp

import pandas

from t3sim.cli import main

folder = Path(mkdtemp())


def area(block: str, geometry: str) -> dict:
    """Measure a block as `t3 area` does."""
    answer = folder / "area.json"
    with contextlib.redirect_stdout(io.StringIO()):
        code = main(["area", block, "--no-fpga", "--library", "embedded", "-g", geometry, "--json", str(answer)])
    assert code == 0
    return json.loads(answer.read_text())["blocks"][block]


# %% [markdown]
# The Tracker over its ways: what grows, and does the longest path?

# %%
frame = pandas.DataFrame({ways: area("tracker", f"ways={ways}") for ways in (2, 4, 8)}).rename_axis("ways", axis=1)
frame.loc[["memory_bits", "flip_flops", "gate_equivalents", "logic_depth", "library_clock_mhz"]]

# %% [markdown]
# Where does the longest path run?

# %%
for ways, path in frame.loc["longest_path"].items():
    print(f"{ways} ways: {path['start']} to {path['end']}")

# %% [markdown]
# The same over any size of the geometry, as a table and a plot: `t3 area tracker --sweep ways=2,4,8 --plot ways.svg`.
# All blocks and the whole top, with their longest paths and an FPGA's resources: [area and timing](../results/area.md).
