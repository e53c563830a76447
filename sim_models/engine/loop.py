"""The loop: every run of every kernel, with RTL or without, watched or not.

Links take time, so a GPU can be stepped by itself for up to a link's latency: nothing that another one does meanwhile
reaches it sooner. Results do not depend on how far it goes alone.
"""

from ..compiled.by_reference import by_reference
from ..compiled.jit import compiled, inlined, unlocked
from ..fabric import network as links
from ..fabric.bits import address_of, get, request_of
from ..fabric.memory_map import channel_of
from ..fabric.queues import pop_timed, push, push_at, room, timed_room
from . import agents
from .end import RUNNING, outcome
from .hardware import clock_edge, egress_cycle, memory_cycle, side_signals
from .observers import Observer, after_edge, before_edge, together
from .state import Sim

LOOK = 64  #: cycles between two looks at whether a run has ended, and the most that a GPU is stepped alone


@inlined
def reads_return(kernel, sim, device, now):
    """Hand reads that are back to the kernel."""
    fills = sim.mem.fills
    while fills.count[device] > 0 and fills.time[device, fills.head[device]] <= now:
        agents.returned(kernel, sim, device, fills.tag[device, fills.head[device]], now)
        pop_timed(fills, device)


@compiled
def deliver(sim, node, now):
    """Deliver packets that have arrived at a node to its memory channels, or send them on.

    Each link keeps its order; links take turns.
    """
    network = sim.network
    flight, first = network.flight, network.first_in[node]
    count = network.first_in[node + 1] - first
    for i in range(count):
        port = network.ports_in[first + (now + i) % count]
        while flight.count[port] > 0:
            at = flight.head[port]
            if flight.time[port, at] > now:
                break
            lo, hi, tag = flight.lo[port, at], flight.hi[port, at], flight.tag[port, at]
            destination = links.destination_of(hi, sim.b)
            if network.one_for_all or destination == node:
                row = node * sim.m.channels + channel_of(address_of(lo, sim.b), sim.m)
                if room(sim.inbound, row) < 1:
                    break
                push(sim.inbound, row, lo, request_of(hi, sim.b), tag)
                network.arrived[node] += 1
            else:
                onward = links.port_to(network, node, destination)
                if onward == links.NO_PORT:
                    network.unroutable[node] += 1
                elif not links.can_send(network, onward, now):
                    break
                else:
                    links.send(network, onward, now, get(lo, hi, sim.b.bytes, sim.b.op - sim.b.bytes), 0, lo, hi, tag)
            network.taken[port] += 1
            pop_timed(flight, port)
        deliver_heads(sim, node, port, now)


@inlined
def deliver_heads(sim, node, port, now):
    """Hand on heads of dispatch windows that have arrived by a link, to the GPU's hardware or onward."""
    network, heads = sim.network, sim.network.heads
    while heads.count[port] > 0 and heads.time[port, heads.head[port]] <= now:
        head = heads.lo[port, heads.head[port]]
        destination = links.head_destination(head, sim.b)
        if network.one_for_all or destination == node:
            if timed_room(network.heard, node) < 1:
                break
            push_at(network.heard, node, now, head, 0, 0)
        else:
            onward = links.port_to(network, node, destination)
            if onward == links.NO_PORT:
                network.unroutable[node] += 1
            elif not links.can_send_head(network, onward):
                break
            else:
                links.send_head(network, onward, now, 0, head, sim.b)
        pop_timed(heads, port)


@compiled
def models_cycle(sim, kernel, hardware, device, now):
    """Do everything of a GPU in cycle `now` except its hardware's clock edge."""
    memory_cycle(hardware, sim, device, now)
    reads_return(kernel, sim, device, now)
    egress_cycle(hardware, sim, device, now)
    agents.cycle(kernel, sim, hardware, device, now)
    side_signals(hardware, sim, device, now)
    deliver(sim, device, now)


@compiled
def step_alone(sim, kernel, hardware, watching, device, now, end):
    """Step one GPU from cycle `now` to `end`, at most a link's latency."""
    for cycle in range(now, end):
        models_cycle(sim, kernel, hardware, device, cycle)
        before_edge(watching, sim, kernel, hardware, device, cycle)
        clock_edge(hardware, device)
        after_edge(watching, sim, kernel, hardware, device, cycle)


@unlocked
def advance(machine, agent, rtl, observers, now, cycles, alone):
    """Run at most `cycles` memory cycles of all GPUs, each by itself for up to `alone`: (next cycle, outcome)."""
    sim, kernel = by_reference(machine), by_reference(agent)
    hardware, watching = by_reference(rtl), by_reference(observers)
    end = now + cycles
    while now < end:
        until = min(end, now + alone, (now // LOOK + 1) * LOOK)
        for device in range(len(sim.control.downstream)):
            step_alone(sim, kernel, hardware, watching, device, now, until)
        for switch in range(len(sim.control.downstream), len(sim.network.arrived)):
            for cycle in range(now, until):
                deliver(sim, switch, cycle)
        now = until
        if now % LOOK == 0:
            reached = outcome(sim, kernel, now)
            if reached != RUNNING:
                return now, reached
        if sim.control.halt[0]:
            break
    return now, RUNNING


class Lockstep:
    """A run: its state, its cycle, and whoever watches it."""

    def __init__(self, sim: Sim) -> None:
        self.sim = sim
        self.now = 0
        self.observers: list[Observer] = []

    def advance(self, cycles: int) -> int:
        """Run at most so many memory cycles; with 0 the loop is only compiled.

        Returns `end.RUNNING`, `DONE` or `STUCK`.
        """
        end = self.now + cycles
        while True:
            states, until = [], end
            for observer in self.observers:
                state, until = observer.before(self.now, until)
                states.append(state)
            alone = 1 if any(observer.interleaved for observer in self.observers) else LOOK
            self.sim.control.halt[0] = 0
            self.now, reached = advance(*self.sim.apart(), together(states), self.now, until - self.now,
                                        max(1, min(alone, int(self.sim.network.latency_cycles.min()))))
            for observer in self.observers:
                observer.after(self.now)
            if reached != RUNNING or self.now >= end:
                return reached
