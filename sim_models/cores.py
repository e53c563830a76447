"""Number of cores that this process may use."""

import multiprocessing
import os


def cores() -> int:
    """Give the number of simulations to run at once: the cores of this process.

    It is one in a process of a pool, which has one for every core already.
    """
    if multiprocessing.parent_process() is not None:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
