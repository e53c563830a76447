"""Effect of each DRAM command on the earliest cycles of later ones.

`config` and `channel` are records (`state.py`). What a command asks of its bank group is noted at each bank of the
group, so that the controller can look at all banks at once; what it asks of the channel is kept there. The later one
counts.
"""

import numpy as np

from t3sim.base.compiled.jit import compiled, inlined
from t3sim.gpu.hbm.bits import GROUP_SCAN, item, not_before, put
from t3sim.gpu.hbm.state import LANES, NEVER, NOWHERE


@compiled
def log_command(channel: np.record, cycle: int, command: int, bank: int, detail: int) -> None:
    """Keep one command in the channel's log, if it has one and there is room."""
    place = channel.log_length
    if place < channel.log_entries:
        put(channel, "log", 4 * place, cycle)
        put(channel, "log", 4 * place + 1, command)
        put(channel, "log", 4 * place + 2, bank)
        put(channel, "log", 4 * place + 3, detail)
        channel.log_length = place + 1


@inlined
def channel_activate_ready(config: np.record, channel: np.record) -> int:
    """Return the earliest ACT of any bank: tRRD_S and the window of four."""
    return max(channel.act_ready, item(channel, "act_times", channel.act_index) + config.act_window)


@inlined
def activate_ready(config: np.record, channel: np.record, bank: int) -> int:
    """Return the earliest ACT of a closed bank."""
    return max(item(channel, "bank_act_ready", bank), channel_activate_ready(config, channel))


@inlined
def read_ready(config: np.record, channel: np.record, bank: int) -> int:
    """Return the earliest RD of an open row."""
    return max(item(channel, "column_ready", bank), channel.read_ready)


@inlined
def write_ready(config: np.record, channel: np.record, bank: int) -> int:
    """Return the earliest WR of an open row."""
    return max(item(channel, "column_ready", LANES + bank), channel.write_ready)


@inlined
def _hold_group(config: np.record, channel: np.record, table: str, first: int, bank: int, cycle: int) -> None:
    """Allow nothing of a kind before `cycle` in the bank group of `bank`."""
    place = first + (bank >> config.bank_bits << config.bank_bits)
    count = 1 << config.bank_bits
    while count > 0:
        not_before(channel, table, place, count, cycle)
        place += GROUP_SCAN
        count -= GROUP_SCAN


@inlined
def activate(config: np.record, channel: np.record, cycle: int, bank: int, row: int) -> None:
    """Issue an ACT."""
    channel.open |= 1 << bank
    put(channel, "open_row", bank, row)
    put(channel, "hits_served", bank, 0)
    put(channel, "column_ready", bank, max(item(channel, "column_ready", bank), cycle + config.act_to_read))
    put(channel, "column_ready", LANES + bank,
        max(item(channel, "column_ready", LANES + bank), cycle + config.act_to_write))
    put(channel, "bank_pre_ready", bank, cycle + config.act_to_pre)
    put(channel, "bank_act_ready", bank, cycle + config.act_to_act)
    _hold_group(config, channel, "bank_act_ready", 0, bank, cycle + config.act_to_act_l)
    channel.act_ready = cycle + config.act_to_act_s
    put(channel, "act_times", channel.act_index, cycle)
    channel.act_index = (channel.act_index + 1) & 3
    channel.activates += 1


@inlined
def precharge(config: np.record, channel: np.record, cycle: int, bank: int) -> None:
    """Issue a PRE of one bank."""
    channel.open &= ~(1 << bank)
    put(channel, "open_row", bank, NOWHERE)
    put(channel, "bank_act_ready", bank, max(item(channel, "bank_act_ready", bank), cycle + config.pre_to_act))
    channel.refresh_ready = max(channel.refresh_ready, cycle + config.pre_to_act)
    channel.precharges += 1


@inlined
def read_column(config: np.record, channel: np.record, cycle: int, bank: int) -> None:
    """Issue an RD."""
    channel.read_ready = cycle + config.read_to_read_s
    channel.write_ready = max(channel.write_ready, cycle + config.read_to_write)
    _hold_group(config, channel, "column_ready", 0, bank, cycle + config.read_to_read_l)
    if config.stack_banks < config.banks:
        first = bank // config.stack_banks * config.stack_banks
        for other in range(config.banks):
            if other < first or other >= first + config.stack_banks:
                put(channel, "column_ready", other,
                    max(item(channel, "column_ready", other), cycle + config.read_to_read_r))
    put(channel, "bank_pre_ready", bank, max(item(channel, "bank_pre_ready", bank), cycle + config.read_to_pre))
    channel.columns_read += 1
    channel.busy_cycles += config.burst


@inlined
def write_column(config: np.record, channel: np.record, cycle: int, bank: int, update: bool) -> None:
    """Issue a WR; `update` = op-and-store, whose read-modify-write holds the bank group for longer."""
    channel.write_ready = cycle + config.write_to_write_s
    channel.read_ready = max(channel.read_ready, cycle + config.write_to_read_s)
    _hold_group(config, channel, "column_ready", LANES, bank,
                cycle + (config.update_to_write_l if update else config.store_to_write_l))
    _hold_group(config, channel, "column_ready", 0, bank, cycle + config.write_to_read_l)
    put(channel, "bank_pre_ready", bank, max(item(channel, "bank_pre_ready", bank), cycle + config.write_to_pre))
    channel.columns_written += 1
    channel.busy_cycles += config.burst


@compiled
def refresh_bank_to_close(channel: np.record, cycle: int, banks: int) -> int:
    """Find the lowest open bank that may be precharged in `cycle`; -1 - (earliest cycle of one) if none may."""
    earliest = NEVER
    for bank in range(banks):
        if channel.open >> bank & 1:
            ready = item(channel, "bank_pre_ready", bank)
            if ready <= cycle:
                return bank
            earliest = min(earliest, ready)
    return -1 - earliest


@compiled
def refresh(config: np.record, channel: np.record, cycle: int) -> None:
    """Issue a REF of all banks, which are closed."""
    for bank in range(config.banks):
        put(channel, "bank_act_ready", bank, max(item(channel, "bank_act_ready", bank), cycle + config.refresh_to_act))
    channel.refresh_ready = cycle + config.refresh_to_act
    channel.refresh_due += config.refresh_interval
    channel.refreshes += 1


@compiled
def all_closed_ready(config: np.record, channel: np.record) -> int:
    """Return the earliest REF when every bank is closed."""
    ready = channel.refresh_ready
    for bank in range(config.banks):
        # ACT to REF is tRC; bank_act_ready holds exactly max(ACT + tRC, PRE + tRP, REF + tRFC).
        ready = max(ready, item(channel, "bank_act_ready", bank))
    return ready


@inlined
def bank_refresh_ready(config: np.record, channel: np.record, bank: int) -> int:
    """Return the earliest refresh of a closed bank alone: like an ACT, but for the window of four."""
    return max(item(channel, "bank_act_ready", bank), channel.act_ready)


@compiled
def choose_bank_to_refresh(config: np.record, channel: np.record, busy: int) -> int:
    """Stop serving the bank whose refresh is due, and return it.

    Each bank comes once in a round: first those that are not in the mask `busy`, else one of each bank group in turn,
    stack ID by stack ID.
    """
    groups = config.stack_banks >> config.bank_bits
    chosen = -1
    for place in range(config.banks):
        within = place % config.stack_banks
        bank = place - within + (within % groups << config.bank_bits) + within // groups
        if channel.refreshed >> bank & 1:
            continue
        if chosen < 0:
            chosen = bank
        if not busy >> bank & 1:
            chosen = bank
            break
    channel.refreshed |= 1 << chosen
    if channel.refreshed == (1 << config.banks) - 1:
        channel.refreshed = 0
    channel.refreshing = 1 << chosen
    return chosen


@compiled
def refresh_bank(config: np.record, channel: np.record, cycle: int, bank: int) -> None:
    """Issue a REF of one closed bank, which is served again."""
    put(channel, "bank_act_ready", bank, max(item(channel, "bank_act_ready", bank), cycle + config.refresh_to_act))
    channel.act_ready = max(channel.act_ready, cycle + config.refresh_to_refresh)
    channel.bank_refresh_due += config.refresh_interval
    channel.refresh_due = max(channel.bank_refresh_due, cycle + 1)
    channel.refreshing = 0
    channel.refreshes += 1
