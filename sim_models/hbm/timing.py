"""What each DRAM command does to the earliest cycles of later ones.

`config` and `channel` are records (`state.py`); `group` = bank >> config.bank_bits. Distances that depend on the bank,
the bank group or the channel are kept at that level; the largest of the three counts.
"""

from sim_models.hbm.bits import item, put
from sim_models.hbm.state import NEVER, NOWHERE
from sim_models.jit import compiled


@compiled
def log_command(channel, cycle, command, bank, detail):
    """Keep one command in the channel's log, if it has one and there is room."""
    place = channel.log_length
    if place < channel.log_entries:
        put(channel, "log", 4 * place, cycle)
        put(channel, "log", 4 * place + 1, command)
        put(channel, "log", 4 * place + 2, bank)
        put(channel, "log", 4 * place + 3, detail)
        channel.log_length = place + 1


@compiled
def channel_activate_ready(config, channel):
    """Earliest ACT of any bank: tRRD_S and the window of four."""
    return max(channel.act_ready, item(channel, "act_times", channel.act_index) + config.act_window)


@compiled
def activate_ready(config, channel, bank):
    """Earliest ACT of a closed bank."""
    return max(max(item(channel, "bank_act_ready", bank), item(channel, "group_act_ready", bank >> config.bank_bits)),
               channel_activate_ready(config, channel))


@compiled
def read_ready(config, channel, bank):
    """Earliest RD of an open row."""
    return max(max(item(channel, "bank_read_ready", bank), item(channel, "group_read_ready", bank >> config.bank_bits)),
               channel.read_ready)


@compiled
def write_ready(config, channel, bank):
    """Earliest WR of an open row."""
    group = bank >> config.bank_bits
    return max(max(item(channel, "bank_write_ready", bank), item(channel, "group_write_ready", group)),
               channel.write_ready)


@compiled
def activate(config, channel, cycle, bank, row):
    """ACT."""
    group = bank >> config.bank_bits
    channel.open |= 1 << bank
    put(channel, "open_row", bank, row)
    put(channel, "hits_served", bank, 0)
    put(channel, "bank_read_ready", bank, cycle + config.act_to_read)
    put(channel, "bank_write_ready", bank, cycle + config.act_to_write)
    put(channel, "bank_pre_ready", bank, cycle + config.act_to_pre)
    put(channel, "bank_act_ready", bank, cycle + config.act_to_act)
    put(channel, "group_act_ready", group, cycle + config.act_to_act_l)
    channel.act_ready = cycle + config.act_to_act_s
    put(channel, "act_times", channel.act_index, cycle)
    channel.act_index = (channel.act_index + 1) & 3
    channel.activates += 1


@compiled
def precharge(config, channel, cycle, bank):
    """PRE of one bank."""
    channel.open &= ~(1 << bank)
    put(channel, "open_row", bank, NOWHERE)
    put(channel, "bank_act_ready", bank, max(item(channel, "bank_act_ready", bank), cycle + config.pre_to_act))
    channel.refresh_ready = max(channel.refresh_ready, cycle + config.pre_to_act)
    channel.precharges += 1


@compiled
def read_column(config, channel, cycle, bank):
    """RD."""
    group = bank >> config.bank_bits
    channel.read_ready = cycle + config.read_to_read_s
    channel.write_ready = max(channel.write_ready, cycle + config.read_to_write)
    put(channel, "group_read_ready", group, cycle + config.read_to_read_l)
    put(channel, "bank_pre_ready", bank, max(item(channel, "bank_pre_ready", bank), cycle + config.read_to_pre))
    channel.columns_read += 1
    channel.busy_cycles += config.burst


@compiled
def write_column(config, channel, cycle, bank, update):
    """WR; `update` = op-and-store, whose read-modify-write holds the bank group for longer."""
    group = bank >> config.bank_bits
    channel.write_ready = cycle + config.write_to_write_s
    channel.read_ready = max(channel.read_ready, cycle + config.write_to_read_s)
    put(channel, "group_write_ready", group, cycle + (config.update_to_write_l if update else config.store_to_write_l))
    put(channel, "group_read_ready", group,
        max(item(channel, "group_read_ready", group), cycle + config.write_to_read_l))
    put(channel, "bank_pre_ready", bank, max(item(channel, "bank_pre_ready", bank), cycle + config.write_to_pre))
    channel.columns_written += 1
    channel.busy_cycles += config.burst


@compiled
def refresh_bank_to_close(channel, cycle, banks):
    """The lowest open bank that may be precharged in `cycle`, or -1 - (earliest cycle of one) if none may."""
    earliest = NEVER
    for bank in range(banks):
        if channel.open >> bank & 1:
            ready = item(channel, "bank_pre_ready", bank)
            if ready <= cycle:
                return bank
            earliest = min(earliest, ready)
    return -1 - earliest


@compiled
def refresh(config, channel, cycle):
    """REF of all banks, which are closed."""
    for bank in range(config.banks):
        put(channel, "bank_act_ready", bank, max(item(channel, "bank_act_ready", bank), cycle + config.refresh_to_act))
    channel.refresh_ready = cycle + config.refresh_to_act
    channel.refresh_due += config.refresh_interval
    channel.refreshes += 1


@compiled
def all_closed_ready(config, channel):
    """Earliest REF when every bank is closed."""
    ready = channel.refresh_ready
    for bank in range(config.banks):
        # ACT to REF is tRC; bank_act_ready holds exactly max(ACT + tRC, PRE + tRP, REF + tRFC).
        ready = max(ready, item(channel, "bank_act_ready", bank))
    return ready
