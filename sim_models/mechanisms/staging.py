"""The choice to stage a reduce-scatter's first chunk in local memory, by sizes that are known before a run."""

from t3sim.analytic.rings import ring_time_ns
from t3sim.machine import Machine
from t3sim.runs.operators import gemm_operator, make_tiling
from t3sim.workload.operators.tiling import Tiling
from t3sim.workload.workloads import Workload


def staging_pays(machine: Machine, workload: Workload) -> bool:
    """Say whether staging the first chunk saves more than it costs, if the GEMM computes without a stall.

    - The GEMM outlasts a link-bound ring, so the units' waits for the link matter. With a longer ring its early start
      matters more.
    - The chunk does not fit into the buffer in front of the link. If it fits, no unit waits for the link.
    - DRAM is busy for less than half of the GEMM's computing time, the staged chunk included. If it is busier, all
      units wait for DRAM at once; stores to the link put them out of step, which then gains more than it costs.
    """
    tiling = make_tiling(machine, workload)
    gemm, gpu = gemm_operator(machine, workload, tiling), machine.gpu
    loop = gemm.k / gpu.k_parts * gemm.cycles_per_k * gpu.workgroups_per_cu
    compute = _stages(machine, tiling) * (gemm.launch_cycles + loop + gemm.epilogue_cycles) / machine.memory_clock_ghz
    return (compute > ring_time_ns(machine, workload.output_bytes, workload.tp)
            and workload.output_bytes / workload.tp > machine.link.stores_bytes
            and _dram_ns(machine, workload) < compute / 2)


def gemm_read_bytes(machine: Machine, workload: Workload) -> float:
    """Return the bytes of its inputs that a GEMM reads from DRAM, by a closed form.

    Adjacent workgroups share one operand and walk along the other. If the cache cannot hold the other one, it is read
    again for every row of tiles, or for every stage that has several rows.
    """
    tiling, element_bytes = make_tiling(machine, workload), workload.format.bytes
    weights, activations = (size * workload.k * element_bytes for size in (workload.n, workload.m))
    along, across = (weights, tiling.tile_rows), (activations, tiling.tile_columns)
    if tiling.along_n:
        along, across = across, along
    streamed, tiles = along[0], along[1] * tiling.abreast
    kept_tiles, rows = across[0], -(-across[1] // tiling.abreast)
    if streamed <= machine.llc.size_bytes:
        return streamed + kept_tiles
    at_once = machine.gpu.compute_units * machine.gpu.workgroups_per_cu / machine.gpu.k_parts
    return streamed * min(rows, _stages(machine, tiling) * min(1.0, at_once / tiles)) + kept_tiles


def _stages(machine: Machine, tiling: Tiling) -> int:
    gpu = machine.gpu
    return -(-tiling.tiles * gpu.k_parts // (gpu.compute_units * gpu.workgroups_per_cu))


def _dram_ns(machine: Machine, workload: Workload) -> float:
    """Time of a GEMM's reads and of all chunks of a staged ring, in which every chunk but one arrives and leaves.

    An op-and-store keeps its bank group longer than a store, and counts so much more.
    """
    dram, chunks = machine.dram, workload.tp
    update = dram.update_to_write_l_cycles / dram.store_to_write_l_cycles
    moved = (update * (2 * chunks - 1) + chunks - 1) * workload.output_bytes / chunks
    return (gemm_read_bytes(machine, workload) + moved) / machine.dram_peak_bytes_per_ns
