"""Split-K without hardware that adds: partial tiles go to a workspace, and a second kernel adds them up.

That is what cuBLAS does with `CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE`: partial sums in the output's format (those in
fp32, `COMPUTE_TYPE`, move twice the bytes; `INPLACE` adds with atomics in arrival order, as near-memory compute does).
Both kernels load and store through the cache, so that a small workspace is still in it when it is added up. A workgroup
of the second one adds one wavefront tile, which spreads even few tiles over all compute units.
Known simplification: its workgroups launch as the GEMM's do, and its additions take no time.
"""

import numpy as np

from t3sim.base.errors import BadInput
from t3sim.base.line import LINE_BYTES
from t3sim.machine import Machine
from t3sim.workload.operators.in_turn import in_turn
from t3sim.workload.operators.kernel_table import GROUP, LOAD, STEP, KernelTable, rows_of
from t3sim.workload.operators.operator import output_stores
from t3sim.workload.operators.tiling import Tiling

MOST_PARTS = 64  #: as `[gpu]` of a machine allows


def with_split_k(machine: Machine, parts: int | None) -> Machine:
    """Return the machine with its GEMM's K in this many parts, its own if not given. Raises BadInput."""
    if parts is None:
        return machine
    if not 1 <= parts <= MOST_PARTS:
        raise BadInput(f"layer.split_k = {parts} is not possible: 1 to {MOST_PARTS}")
    return machine.changed(gpu={"k_parts": parts})


def parts_added(work: KernelTable, tiling: Tiling, output: int, workspace: int, launch_cycles: float) -> KernelTable:
    """Build a GEMM whose parts are stored at byte `workspace`, one after the other, and the kernel that adds them.

    `work`: of the GEMM, its output at byte `output`, where the sums go.
    """
    size = -(-tiling.output_bytes // LINE_BYTES) * LINE_BYTES
    stores = work.stores.copy()
    stores["base"] += workspace - output + stores["part"].astype(np.int64) * size
    split = KernelTable(work.groups, work.steps, work.loads, stores, ahead=work.ahead, by_turn=work.by_turn,
                        launch_cycles=work.launch_cycles)
    return in_turn([split, _sum(tiling, output, workspace, size, int(stores["part"].max()) + 1)], launch_cycles)


def _sum(tiling: Tiling, output: int, workspace: int, size: int, parts: int) -> KernelTable:
    """Build the kernel that adds the parts: a workgroup per wavefront tile, which loads it from each of them."""
    stores = output_stores(tiling, output)
    count = np.arange(len(stores))
    loads = rows_of(LOAD, len(stores) * parts, base=np.add.outer(
        stores["base"] - output + workspace, np.arange(parts) * size).ravel(),
        **{name: np.repeat(stores[name], parts) for name in ("pitch", "rows", "bytes")})
    steps = rows_of(STEP, len(stores), repeats=1, first_load=count * parts, loads=parts, first_store=count, stores=1)
    return KernelTable(rows_of(GROUP, len(stores), workgroups=1, first_step=count, steps=1), steps, loads, stores)
