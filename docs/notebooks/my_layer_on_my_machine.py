# %% [markdown]
# # My layer on my machine
#
# A machine file says what differs from another machine; every number has a unit in its name.

# %%
from pathlib import Path
from tempfile import mkdtemp

from t3sim import gemm_workload, load_machine, run

file = Path(mkdtemp()) / "mine.toml"
file.write_text("""
extends = "t3-table1"
name = "mine"

[gpu]
compute_units = 108

[link]
bandwidth_gb_per_s = 150.0
latency_ns = 700.0
""")
mine = load_machine(str(file))
mine.link, mine.starvation_limit_cycles

# %% [markdown]
# What cannot be is refused, in one line.

# %%
from t3sim import BadInput

try:
    (file.parent / "wrong.toml").write_text('extends = "t3-table1"\n[gpu]\ncompute_unit = 108\n')
    load_machine(str(file.parent / "wrong.toml"))
except BadInput as error:
    print(error)

# %% [markdown]
# A layer by its GEMM, over faster and faster links: where does the link stop to be what bounds it?

# %%
import pandas

layer, frames = gemm_workload("2048x2048x2048", devices=4), []
for bandwidth in (25.0, 75.0, 150.0):
    machine = mine.model_copy(update={"link": mine.link.model_copy(update={"bandwidth_gb_per_s": bandwidth})})
    result = run(layer, machine, techniques=("sequential", "t3", "ideal-overlap"))
    frames.append(result.to_frame().assign(bandwidth_gb_per_s=bandwidth))
frame = pandas.concat(frames)
speedup = frame.pivot(index="bandwidth_gb_per_s", columns="technique", values="speedup")
speedup.round(3)

# %%
axes = speedup.drop(columns="sequential").plot(marker="o", logx=True)
axes.set_ylabel("speedup over sequential");

# %% [markdown]
# Many more points, on all cores or a cluster, resumable: `t3 sweep` with the same names; see
# [studies](../studies.md).

# %%
assert (speedup["t3"] > 1).all()
