"""The channels' state: one record per channel, so that a step touches one piece of memory."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from t3sim.base.compiled.records import aligned_zeros
from t3sim.base.line import LINE_BYTES
from t3sim.gpu.hbm.address import field_places
from t3sim.machine.dram import Dram

NEVER = 1 << 62  #: a cycle that does not come
NOWHERE = -1  #: no queue entry, no row
NEXT, PREVIOUS, ROW, LINE, OP, TOKEN, COLUMNS_LEFT, AGE = range(8)  #: of a queue entry
FIELDS = 8
LANES = 32  #: places for banks, however many there are, so that a scan has no end to look for
#: Places for queue entries, the fewest that hold a machine's: a size of its own for each would compile all again.
ENTRIES = (64, 160)

LOG_ENTRIES = 1 << 15  #: commands that one channel's log keeps
FR_FCFS, DRAMSIM3, GPGPUSIM = range(3)
_SCHEDULERS = {"fr_fcfs": FR_FCFS, "dramsim3": DRAMSIM3, "gpgpusim": GPGPUSIM}
COMMANDS = ("ACT", "PRE", "RD", "WR", "REF", "REFPB")
ACT, PRE, RD, WR, REF, REFPB = range(len(COMMANDS))

_CONFIG_FIELDS = (
    "banks", "groups", "bank_bits", "group_banks", "entries", "columns_per_request", "burst", "scheduler",
    "row_shift", "row_mask", "bank_shift", "bank_mask", "group_shift", "group_mask", "column_shift", "column_mask",
    "group_high_shift", "group_high_mask", "group_low_bits", "bank_hash",
    "act_to_read", "act_to_write", "act_to_act", "act_to_act_s", "act_to_act_l", "act_to_pre", "act_window",
    "pre_to_act", "read_to_read_s", "read_to_read_l", "read_to_read_r", "read_to_write", "read_to_pre",
    "write_to_write_s", "store_to_write_l", "update_to_write_l", "write_to_read_s", "write_to_read_l", "write_to_pre",
    "refresh_to_act", "refresh_interval", "refresh_per_bank", "refresh_to_refresh", "stack_banks",
    "write_high", "write_low", "write_wait_limit", "row_hit_limit", "read_data", "write_data",
    "entry_latency",
)
CONFIG_DTYPE = np.dtype([(name, np.int64) for name in _CONFIG_FIELDS])


def _channel_dtype(dram: Dram, log: bool) -> np.dtype:
    entries = next(places for places in ENTRIES if places >= dram.held_requests)
    scalars = (
        "next_cycle", "occupancy",
        # lower bounds of the next column and row command, direction served last, write drain
        "column_next", "row_next", "direction", "draining", "drain_left", "read_quota", "write_waits_since",
        "free", "age",
        # masks over banks: row open; requests with reads/writes; a read/write of the open row
        "open", "pending_read", "pending_write", "hit_read", "hit_write",
        "foreign",  # banks whose chosen read-list (write-list) hit is a write (read)
        "reads", "writes",
        # timing that holds for the whole channel
        "read_ready", "write_ready", "act_ready", "act_index",
        "refresh_due",  # when a refresh begins or, per bank, goes on
        "refresh_ready",
        # refresh per bank: the first cycle of the next one; masks over banks: had theirs in this round; waits for it
        "bank_refresh_due", "refreshed", "refreshing",
        # counters
        "columns_read", "columns_written", "activates", "precharges", "refreshes", "busy_cycles",
        "log_entries", "log_length",
        # gpgpusim: the bank whose turn it is; first and last entry on the way to the queue; columns in the queue that
        # no bank has taken; when the next request may come
        "first_bank", "coming", "last_coming", "columns_waiting", "entry_next",
    )
    tables = (
        ("act_times", 4), ("open_row", LANES), ("hits_served", LANES),
        # timing per bank, with what its bank group asks for: RD then WR; ACT (of an open bank too); PRE
        ("column_ready", 2 * LANES), ("bank_act_ready", LANES), ("bank_pre_ready", LANES),
        ("head", 2 * LANES), ("tail", 2 * LANES), ("hit", 2 * LANES),
        # age * LANES + bank of the head and of the hit of each list, NEVER if there is none
        ("head_order", 2 * LANES), ("hit_order", 2 * LANES),
        ("log", 4 * LOG_ENTRIES if log else 1),
    )
    fields = [("entries", np.int64, (entries * FIELDS,))]  # first: an entry fills one line of the host's cache
    fields += [(name, np.int64) for name in scalars] + [(name, np.int64, (size,)) for name, size in tables]
    words = sum(int(np.prod(field[2])) if len(field) > 2 else 1 for field in fields)
    return np.dtype([*fields, ("padding", np.int64, (-words % 8,))])


class HbmState(NamedTuple):
    """Any number of independent channels of one kind.

    The first two arrays have one element per channel and may be read at any time. Counters are columns of
    `channels`, e.g. `state.channels["activates"]`: columns_read, columns_written, activates, precharges, refreshes,
    busy_cycles (data bus cycles).
    """

    occupancy: np.ndarray  #: int64[channel]: queue entries in use
    next_cycle: np.ndarray  #: int64[channel]: `hbm_step` has nothing to do before this cycle
    read_data_cycles: int  #: last column command of a read to the end of its data
    write_data_cycles: int  #: last column command of a write to the end of its data
    queue_entries: int
    config: np.ndarray  #: record[1]
    channels: np.ndarray  #: record[channel]


def _config_record(dram: Dram) -> np.ndarray:
    places = field_places(dram)
    config = np.zeros(1, CONFIG_DTYPE)

    def mask(name: str) -> int:
        return (1 << places[name].width) - 1

    values = {
        "banks": dram.banks, "groups": dram.bank_groups, "bank_bits": (dram.banks_per_group - 1).bit_length(),
        "group_banks": (1 << dram.banks_per_group) - 1,
        "entries": dram.queue_entries, "columns_per_request": dram.columns_per_request, "burst": dram.burst_cycles,
        "scheduler": _SCHEDULERS[dram.scheduler],
        "row_shift": places["row"].shift, "row_mask": mask("row"),
        "bank_shift": places["bank"].shift, "bank_mask": mask("bank"),
        "group_shift": places["bank_group"].shift, "group_mask": mask("bank_group"),
        "group_high_shift": places["bank_group_high"].shift, "group_high_mask": mask("bank_group_high"),
        "group_low_bits": places["bank_group"].width,
        "column_shift": places["column_high"].shift, "column_mask": mask("column_high"),
        "bank_hash": int(dram.bank_hash),
        "act_to_read": dram.trcdrd_cycles, "act_to_write": dram.trcdwr_cycles, "act_to_act": dram.trc_cycles,
        "act_to_act_s": dram.trrd_s_cycles, "act_to_act_l": dram.trrd_l_cycles, "act_to_pre": dram.tras_cycles,
        "act_window": dram.tfaw_cycles, "pre_to_act": dram.trp_cycles,
        "read_to_read_s": dram.read_to_read_s_cycles, "read_to_read_l": dram.read_to_read_l_cycles,
        "read_to_read_r": max(dram.burst_cycles, dram.tccd_r_cycles),
        "stack_banks": dram.banks // dram.stack_ids,
        "read_to_write": dram.read_to_write_cycles, "read_to_pre": dram.trtp_cycles,
        "write_to_write_s": dram.read_to_read_s_cycles, "store_to_write_l": dram.store_to_write_l_cycles,
        "update_to_write_l": dram.update_to_write_l_cycles, "write_to_read_s": dram.write_to_read_s_cycles,
        "write_to_read_l": dram.write_to_read_l_cycles, "write_to_pre": dram.write_to_precharge_cycles,
        "refresh_to_act": dram.trfc_cycles, "refresh_interval": dram.refresh_interval_cycles,
        "refresh_per_bank": int(dram.refresh == "per_bank"), "refresh_to_refresh": dram.trrefd_cycles,
        "write_high": dram.write_high_watermark, "write_low": dram.write_low_watermark,
        "write_wait_limit": dram.write_wait_limit_cycles, "row_hit_limit": dram.row_hit_limit,
        "read_data": dram.read_data_cycles, "write_data": dram.write_data_cycles,
        "entry_latency": dram.entry_latency_cycles,
    }
    for name, value in values.items():
        config[name] = value
    return config


def make_hbm(dram: Dram, channels: int, log: bool = False) -> HbmState:
    """Make idle channels at cycle 0. `channels` may exceed `dram.channels` (several GPUs in one state).

    With `log`, each channel keeps its first `LOG_ENTRIES` commands; see `commands`.
    """
    if channels < 1:
        raise ValueError(f"channels = {channels}: at least one is needed")
    if dram.scheduler == "dramsim3" and dram.column_bytes != LINE_BYTES:
        raise ValueError(f"scheduler = 'dramsim3', column_bytes = {dram.column_bytes}: its requests have one column")
    state = aligned_zeros(channels, _channel_dtype(dram, log))
    for name in ("open_row", "head", "tail", "hit", "coming"):
        state[name] = NOWHERE
    state["head_order"] = state["hit_order"] = NEVER
    state["entries"][:, NEXT:dram.held_requests * FIELDS:FIELDS] = np.append(np.arange(1, dram.held_requests), NOWHERE)
    state["act_times"] = -NEVER
    state["log_entries"] = LOG_ENTRIES if log else 0
    state["column_next"] = state["row_next"] = NEVER
    state["refresh_due"] = NEVER
    if interval := dram.refresh_interval_cycles:
        stagger = np.arange(channels) % dram.channels * interval // dram.channels
        state["refresh_due"] = state["bank_refresh_due"] = interval + (stagger if dram.refresh_stagger else 0)
    state["next_cycle"] = state["refresh_due"]
    return HbmState(
        occupancy=state["occupancy"], next_cycle=state["next_cycle"], read_data_cycles=dram.read_data_cycles,
        write_data_cycles=dram.write_data_cycles, queue_entries=dram.queue_entries, config=_config_record(dram),
        channels=state)


def commands(state: HbmState, channel: int) -> list[tuple[int, str, int, int]]:
    """Return the logged commands of one channel: (cycle, name, bank, row of an ACT or line of a RD or WR)."""
    record = state.channels[channel]
    if not record["log_entries"]:
        raise ValueError("commands: the state was made without log")
    kept = record["log"].reshape(-1, 4)[: record["log_length"]]
    return [(int(cycle), COMMANDS[command], int(bank), int(detail)) for cycle, command, bank, detail in kept]
