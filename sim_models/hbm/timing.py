"""What each DRAM command does to the earliest cycles of later ones.

`config` and `channel` are records (`state.py`); `group` = bank >> config.bank_bits. Distances that depend on the bank, the
bank group or the channel are kept at that level; the largest of the three counts.
"""

from numba import njit

from sim_models.hbm.state import NEVER, NOWHERE, REF


@njit(cache=True)
def log_command(log, log_length, index, cycle, command, bank, detail):
    """Record one command; `index` is the channel's number."""
    place = log_length[0]
    if place < log.shape[0]:
        log[place, 0] = index
        log[place, 1] = cycle
        log[place, 2] = command
        log[place, 3] = bank
        log[place, 4] = detail
    log_length[0] = place + 1


@njit(cache=True, inline="always")
def activate_ready(config, channel, bank):
    """Earliest ACT of a closed bank."""
    return max(max(channel.bank_act_ready[bank], channel.group_act_ready[bank >> config.bank_bits]),
               max(channel.act_ready, channel.act_times[channel.act_index] + config.act_window))


@njit(cache=True, inline="always")
def read_ready(config, channel, bank):
    """Earliest RD of an open row."""
    return max(max(channel.bank_read_ready[bank], channel.group_read_ready[bank >> config.bank_bits]),
               channel.read_ready)


@njit(cache=True, inline="always")
def write_ready(config, channel, bank):
    """Earliest WR of an open row."""
    return max(max(channel.bank_write_ready[bank], channel.group_write_ready[bank >> config.bank_bits]),
               channel.write_ready)


@njit(cache=True)
def activate(config, channel, cycle, bank, row):
    """ACT."""
    group = bank >> config.bank_bits
    channel.open |= 1 << bank
    channel.open_row[bank] = row
    channel.hits_served[bank] = 0
    channel.bank_read_ready[bank] = cycle + config.act_to_read
    channel.bank_write_ready[bank] = cycle + config.act_to_write
    channel.bank_pre_ready[bank] = cycle + config.act_to_pre
    channel.bank_act_ready[bank] = cycle + config.act_to_act
    channel.group_act_ready[group] = cycle + config.act_to_act_l
    channel.act_ready = cycle + config.act_to_act_s
    channel.act_times[channel.act_index] = cycle
    channel.act_index = (channel.act_index + 1) & 3
    channel.activates += 1


@njit(cache=True)
def precharge(config, channel, cycle, bank):
    """PRE of one bank."""
    channel.open &= ~(1 << bank)
    channel.open_row[bank] = NOWHERE
    channel.bank_act_ready[bank] = max(channel.bank_act_ready[bank], cycle + config.pre_to_act)
    channel.refresh_ready = max(channel.refresh_ready, cycle + config.pre_to_act)
    channel.precharges += 1


@njit(cache=True)
def read_column(config, channel, cycle, bank):
    """RD."""
    group = bank >> config.bank_bits
    channel.read_ready = cycle + config.read_to_read_s
    channel.write_ready = max(channel.write_ready, cycle + config.read_to_write)
    channel.group_read_ready[group] = cycle + config.read_to_read_l
    channel.bank_pre_ready[bank] = max(channel.bank_pre_ready[bank], cycle + config.read_to_pre)
    channel.columns_read += 1
    channel.busy_cycles += config.burst


@njit(cache=True)
def write_column(config, channel, cycle, bank, update):
    """WR; `update` = op-and-store, whose read-modify-write holds the bank group for longer."""
    group = bank >> config.bank_bits
    channel.write_ready = cycle + config.write_to_write_s
    channel.read_ready = max(channel.read_ready, cycle + config.write_to_read_s)
    channel.group_write_ready[group] = cycle + (config.update_to_write_l if update else config.store_to_write_l)
    channel.group_read_ready[group] = max(channel.group_read_ready[group], cycle + config.write_to_read_l)
    channel.bank_pre_ready[bank] = max(channel.bank_pre_ready[bank], cycle + config.write_to_pre)
    channel.columns_written += 1
    channel.busy_cycles += config.burst


@njit(cache=True)
def refresh_bank_to_close(channel, cycle, banks):
    """The lowest open bank that may be precharged in `cycle`, or -1 - (earliest cycle of one) if none may."""
    earliest = NEVER
    for bank in range(banks):
        if channel.open >> bank & 1:
            ready = channel.bank_pre_ready[bank]
            if ready <= cycle:
                return bank
            earliest = min(earliest, ready)
    return -1 - earliest


@njit(cache=True)
def refresh(config, channel, cycle):
    """REF of all banks, which are closed."""
    for bank in range(config.banks):
        channel.bank_act_ready[bank] = max(channel.bank_act_ready[bank], cycle + config.refresh_to_act)
    channel.refresh_ready = cycle + config.refresh_to_act
    channel.refresh_due += config.refresh_interval
    channel.refreshes += 1


@njit(cache=True)
def all_closed_ready(config, channel):
    """Earliest REF when every bank is closed."""
    ready = channel.refresh_ready
    for bank in range(config.banks):
        # ACT to REF is tRC; bank_act_ready holds exactly max(ACT + tRC, PRE + tRP, REF + tRFC).
        ready = max(ready, channel.bank_act_ready[bank])
    return ready


REFRESH_COMMAND = REF
