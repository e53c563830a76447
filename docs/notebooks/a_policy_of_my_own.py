# %% [markdown]
# # An arbitration policy of my own
#
# A policy says twice which stream a memory channel grants: in gates (`grants`) and in plain Python (`decide`), which
# models, traces and explanations use. Here is one that lets communication go while the DRAM queue is short.

# %%
from t3sim.rtl.arbiter.policy import ALONE, COMMUNICATION, COMPUTE, Policy, Reason, View

SHORT_ENTRIES = 16
_SHORT = Reason("the DRAM queue is short: communication goes")
_LONG = Reason("the DRAM queue is long: compute goes")


def grants(view: View):
    """Say which stream is granted, as Amaranth values."""
    communication = view.communication_valid & (~view.compute_valid | (view.occupancy < SHORT_ENTRIES))
    return view.compute_valid & ~communication, communication


def decide(view: View):
    """Decide as `grants` does, with the reason."""
    if not (view.compute_valid and view.communication_valid):
        return (COMPUTE if view.compute_valid else COMMUNICATION), ALONE
    return (COMMUNICATION, _SHORT) if view.occupancy < SHORT_ENTRIES else (COMPUTE, _LONG)


short_queue = Policy(
    code=4, name="short_queue", title="short queue",  # 4: the next free code
    description=f"Communication goes first while the DRAM queue holds fewer than {SHORT_ENTRIES} requests.",
    goes_by=("occupancy",), reasons=(ALONE, _SHORT, _LONG), grants=grants, decide=decide)

# %% [markdown]
# Do the gates do what the model says? For everything that it may see:

# %%
from itertools import product

from amaranth.hdl import Module, Signal
from amaranth.sim import Simulator

bits = {name: Signal(7 if name in ("occupancy", "threshold") else 1, name=name) for name in View._fields}
granted, m = Signal(2), Module()
m.d.comb += [bit.eq(value) for bit, value in zip(granted, short_queue.grants(View(**bits)))]
checked = 0


async def compare(ctx):
    global checked
    for compute, communication, occupancy in product((0, 1), (0, 1), (0, SHORT_ENTRIES - 1, SHORT_ENTRIES, 64)):
        seen = dict.fromkeys(View._fields, 0) | {
            "compute_valid": compute, "communication_valid": communication, "occupancy": occupancy}
        for name, value in seen.items():
            ctx.set(bits[name], value)
        stream = decide(View(**seen))[0] if compute or communication else None
        assert ctx.get(granted) == {None: 0b00, COMPUTE: 0b01, COMMUNICATION: 0b10}[stream], seen
        checked += 1


simulator = Simulator(m)
simulator.add_testbench(compare)
simulator.run()
f"{checked} views: gates and model agree"

# %% [markdown]
# How does it share one channel? Both streams ask at random, the DRAM queue takes a request every other cycle; the mean
# number of cycles that a request waits, for each policy that there is, and for this one.

# %%
import random

import pandas

from t3sim.rtl.arbiter import POLICIES


def waits(policy: Policy, asks: float, cycles: int = 20_000, queue_entries: int = 64) -> dict[str, float]:
    """Mean wait of each stream, if each asks with this probability in a cycle."""
    rng, last, occupancy = random.Random(1), COMMUNICATION, 0
    lines, waited, served = (dict.fromkeys((COMPUTE, COMMUNICATION), start) for start in (0, 0, 1))
    for cycle in range(cycles):
        for stream in lines:
            lines[stream] += rng.random() < asks
        if any(lines.values()) and occupancy < queue_entries:
            seen = View(int(lines[COMPUTE] > 0), int(lines[COMMUNICATION] > 0), int(last == COMMUNICATION), occupancy,
                        threshold=10, ring_late=0, starved=0, drain=0)
            stream, _ = policy.decide(seen)
            if stream:
                lines[stream] -= 1
                served[stream] += 1
                occupancy, last = occupancy + 1, stream
        for stream in lines:
            waited[stream] += lines[stream]
        occupancy = max(0, occupancy - cycle % 2)
    return {f"{stream} waits, cycles": round(waited[stream] / served[stream], 1) for stream in lines}


pandas.DataFrame({policy.title: waits(policy, asks=0.23) for policy in (*POLICIES.values(), short_queue)}).T

# %% [markdown]
# To run it in the whole machine, put the first cell into `rtl/arbiter/short_queue.py`, and import its record in
# `rtl/arbiter/policies.py` and append it there ([steps](../how-to/extend.md#an-arbitration-policy)). Then
# `t3 run --policy short_queue` simulates it, `t3 trace` and `t3 explain` call its decisions by its reasons, and
# `make formal BLOCK=arbiter` proves how long it lets communication wait, or shows that it may wait for ever.
