"""Sections of other levels that follow from a machine's sections for the cycle level."""

from collections.abc import Callable

from t3sim.machine.closed_form import Accelerator, Uncertainty
from t3sim.machine.gpu import MemorySection
from t3sim.machine.levels import CLUSTER, TILES, Level
from t3sim.machine.links import Tier
from t3sim.machine.machine import Machine
from t3sim.machine.software import Host, LibrarySection

#: Bytes per cycle that never limit: the cycle level has no LDS of its own.
_NO_LIMIT = 1e9


def _with_tiles(machine: Machine, name_or_path: str) -> Machine:
    """Return a node of 8 GPUs of a cycle-level machine around a switch.

    A tile's time besides its main loop is its prologue, its epilogue, and its stores, which all units issue at once.
    The only kernel is the machine's, and collectives start at a kernel launch. Rows here are tokens, which are the
    second extent of that machine's tiles.
    """
    gpu, link, peak = machine.gpu, machine.link, machine.dram_peak_bytes_per_ns
    return machine.model_copy(update={
        "gpus": 8, "network": None, "occupancy": None, "signals": None,
        "gpu": gpu.model_copy(update={
            "tiles": ((gpu.tile_n, gpu.tile_m),), "split_k": (1,), "workspace_bytes": 0,
            "lds_bytes_per_cycle_per_cu": _NO_LIMIT, "matrix_block": (gpu.tile_n, gpu.tile_m), "blocks_at_once": 1,
            "tile_ns": gpu.prologue_ns + gpu.epilogue_ns + 2 * gpu.tile_m * gpu.tile_n * gpu.compute_units / peak,
            "l2_bytes_per_cycle": min(gpu.cu_bytes_per_ns * gpu.compute_units, machine.llc.bandwidth_bytes_per_ns)
            / gpu.clock_ghz}),
        "memory": MemorySection(bandwidth_gb_per_s=peak, efficiency=machine.dram.refreshed),
        "link": link.model_copy(update={"kind": "switch", "store_efficiency": 1.0, "push_efficiency": 1.0,
                                        "pull_efficiency": 1.0}),
        "library": LibrarySection(efficiency=1.0, step_ns=link.latency_ns, base_ns=machine.collective.kernel_launch_ns),
        "host": Host(launch_ns=machine.collective.kernel_launch_ns, event_ns=0.0, copy_ns=0.0, call_ns=0.0)})


def _with_cluster(machine: Machine, name_or_path: str) -> Machine:
    """Return a cluster of GPUs of a cycle-level machine, all in one ring.

    The machine file gives the main loop's efficiency, the tile and the ports. A tile's overhead in steps of K is its
    prologue, its epilogue and the burst of its stores at an equal share of memory bandwidth, over the time of one step.
    """
    gpu = machine.gpu
    step_ns = 2 * gpu.tile_m * gpu.tile_n / (gpu.matrix_flop_per_cycle_per_cu * gpu.clock_ghz * gpu.matrix_efficiency)
    memory_gb_per_s = machine.dram_peak_bytes_per_ns
    store_ns = 2 * gpu.tile_m * gpu.tile_n * gpu.compute_units / memory_gb_per_s
    ring = Tier(bandwidth_gb_per_s=machine.link.bandwidth_gb_per_s, efficiency=1.0, step_ns=machine.link.latency_ns)
    return machine.model_copy(update={
        "gpus_per_node": 1024, "iteration_ns": 0.0, "cycle_machine": name_or_path, "intra": ring, "inter": ring,
        "accelerator": Accelerator(
            peak_tflop_per_s=gpu.peak_flop_per_ns / 1e3, cores=gpu.compute_units, tile_m=gpu.tile_m, tile_n=gpu.tile_n,
            matrix_efficiency=gpu.matrix_efficiency,
            tile_overhead_k=(gpu.prologue_ns + gpu.epilogue_ns + store_ns) / step_ns,
            memory_gb=64.0, memory_gb_per_s=memory_gb_per_s, memory_efficiency=0.8,
            kernel_ns=machine.collective.kernel_launch_ns, host_ns_per_kernel=0.0, busy_watts=300.0, idle_watts=90.0),
        "uncertainty": Uncertainty(matrix_efficiency=0.05, memory_efficiency=0.1, network_efficiency=0.05,
                                   host_ns_per_kernel=0.0)})


#: By level; arguments are the machine, and its name or path.
DERIVED: dict[Level, Callable[[Machine, str], Machine]] = {TILES: _with_tiles, CLUSTER: _with_cluster}
