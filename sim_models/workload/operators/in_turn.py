"""Join consecutive kernels into one table with a phase for each."""

from collections.abc import Sequence

import numpy as np

from t3sim.workload.operators.kernel_table import KernelTable, joined


def in_turn(kernels: Sequence[KernelTable], launch_cycles: float) -> KernelTable:
    """Join kernels of one phase each, which differ only in their records, into one kernel of several phases.

    `launch_cycles`: from the end of a phase's last workgroup to the next phase's first. Each phase has a last wave of
    its own.
    """
    first = kernels[0]
    groups, steps, loads, stores, row_lists = joined(kernels)
    groups["phase"] = np.repeat(np.arange(len(kernels)), [len(kernel.groups) for kernel in kernels])
    return KernelTable(groups, steps, loads, stores, row_lists,
                       arrivals=np.concatenate([kernel.arrivals for kernel in kernels]), ahead=first.ahead,
                       cached_loads=first.cached_loads, persistent=first.persistent, by_turn=first.by_turn,
                       launch_cycles=first.launch_cycles, end_cycles=first.end_cycles,
                       phase_launch_cycles=launch_cycles)
