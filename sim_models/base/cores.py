"""The processor, and the cores and memory that this process may use."""

import os
import platform
import resource
from pathlib import Path


def cores() -> int:
    """Give the number of simulations to run at once: the cores of this process.

    It is one in a process of a pool, which has one for every core already.
    """
    import multiprocessing  # takes longer than all else of this file, and few commands start processes

    if multiprocessing.parent_process() is not None:
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def memory_bytes() -> int:
    """Give the memory that this process may have: the host's, or less by `ulimit`."""
    limits = [resource.getrlimit(kind)[0] for kind in (resource.RLIMIT_AS, resource.RLIMIT_DATA)]
    return min([os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
                *(limit for limit in limits if limit != resource.RLIM_INFINITY)])


def processor() -> str:
    """Name this host's processor, as its maker does where the system says it."""
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    except OSError:
        pass
    return platform.processor() or platform.machine()
