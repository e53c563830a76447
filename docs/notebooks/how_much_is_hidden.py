# %% [markdown]
# # How much of a collective is hidden, and why not all of it?
#
# One GEMM whose output is reduce-scattered over four GPUs: first in turn, then fused by Track & Trigger, whose RTL is
# evaluated at every memory cycle, then as if overlap cost nothing. The first run compiles the RTL, which takes a
# minute or two and is kept.

# %%
from t3sim import gemm_workload, run

layer = gemm_workload("2048x2048x1024", devices=4)
result = run(layer, techniques=("sequential", "t3", "t3-mca", "ideal-overlap"))

# %% [markdown]
# A row per technique. `overlap_efficiency` is Flux's measure: 1 if the collective is hidden, 0 if nothing of it is.

# %%
frame = result.to_frame().set_index("technique")
frame[["total_ns", "speedup", "overlap_efficiency", "gemm_ns", "reduce_scatter_ns", "all_gather_ns"]].round(3)

# %% [markdown]
# What is not hidden has causes, whose times add up to what is lost against the GEMM alone.

# %%
losses = frame.filter(regex="^loss_").T.fillna(0.0)
losses[losses.max(axis=1) > 100].round(0)

# %%
{name: bound.words for name, bound in result.bounds.items()}

# %%
result.plot();

# %% [markdown]
# `t3 run --model t-nlg --sublayer fc2 --tp 8` is the same for a layer of the T3 paper at full size.

# %%
assert 1 < result.speedup["t3"] <= result.speedup["ideal-overlap"] * 1.1
