# %% [markdown]
# # Why did this tile not fire?
#
# Four GPUs, each with its own RTL, one of whose regions is programmed wrongly (`--bug threshold`). The run is recorded
# event by event. The machine is a small one of the tests, so that this takes seconds.

# %%
from pathlib import Path
from tempfile import mkdtemp

from t3sim.cli import main

root = next(folder for folder in (Path.cwd(), *Path.cwd().parents) if (folder / "pyproject.toml").exists())
recording = str(Path(mkdtemp()) / "recording")
machine = str(root / "tests/data/machines/ring_small.toml")
ended = main(["trace", "--gemm", "256x256x64", "--devices", "4", "--machine", machine, "--every-gpu", "--bug",
              "threshold", "--out", recording])

# %% [markdown]
# What fired, what is still open, and what stands out:

# %%
main(["explain", recording]);

# %% [markdown]
# The life of one of the tiles that wait. It leads to its cause, which lies on another GPU.

# %%
main(["explain", "--wg", "16", "--wf", "0", "--gpu", "3", recording]);

# %%
main(["explain", "--wg", "8", "--wf", "0", "--gpu", "0", recording]);

# %% [markdown]
# `t3 step` shows the same cycle by cycle in the terminal; `t3 trace --timeline` and `--waves` write files for Perfetto
# and for waveform viewers. More bugs to practise on: [debugging](../debugging.md).

# %%
assert ended != 0, "a run that stands still does not end well"
