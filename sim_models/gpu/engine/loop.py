"""The loop: every run of every kernel, with RTL or without, observed or not.

A packet takes a link's latency, so each GPU can be stepped by itself for up to that long: packets that others send
meanwhile cannot reach it sooner. Results do not depend on that number of cycles or on the threads.

`models_cycle` has the order within a cycle; `Lockstep.advance` calls `advance`, which steps the GPUs.
"""

from collections.abc import Callable
from typing import NamedTuple

from t3sim.base.compiled.by_reference import by_reference
from t3sim.base.compiled.jit import compiled, inlined, merged, unlocked
from t3sim.base.compiled.meeting import Member, go_on, last_to_come, on_threads, rounds, wait
from t3sim.base.compiled.records import check_records
from t3sim.gpu.engine import agents
from t3sim.gpu.engine.end import LOOK_STUCK, RUNNING, outcome
from t3sim.gpu.engine.hardware import Hardware, clock_edge, egress_cycle, memory_cycle, side_signals, switch_cycle
from t3sim.gpu.engine.observers import Observer, Watchers, call_after_edge, call_before_edge, watchers
from t3sim.gpu.fabric import network as links
from t3sim.gpu.fabric import queues
from t3sim.gpu.fabric import switch as switches
from t3sim.gpu.fabric.bits import address_of, get, request_of, row_of
from t3sim.gpu.fabric.state import Network
from t3sim.gpu.state import Sim

LOOK = 64  #: a run ends at a multiple of so many cycles; also the most for which an observed GPU is stepped alone
_OUTCOME_BITS = 2


@inlined
def reads_return(kernel: tuple, sim: Sim, gpu: int, now: int) -> None:
    """Hand reads that are back to the kernel."""
    for back in (sim.mem.fills, sim.mem.hits):
        while back.count[gpu] > 0 and back.time[gpu, back.head[gpu]] <= now:
            agents.returned(kernel, sim, gpu, back.tag[gpu, back.head[gpu]], now)
            queues.pop_timed(back, gpu)


@inlined
def is_for(network: Network, destination: int, node: int) -> bool:
    """Return whether a packet that has arrived at a node ends there; `destination`: a GPU, or a group of GPUs."""
    return node == 0 if network.one_for_all else destination == node and node < network.gpus


@compiled
def deliver(sim: Sim, node: int, now: int) -> None:
    """Deliver packets that have arrived at a node to its memory channels, or send them on.

    A switch may add or copy them. Each link keeps its order; links take turns.
    """
    network = sim.network
    flight, first = network.flight, network.first_in[node]
    count = network.first_in[node + 1] - first
    for i in range(count):
        port = network.ports_in[first + (now + i) % count]
        while queues.arrives(flight, port, now):
            at = queues.head_of(flight, port)
            lo, hi, tag = flight.lo[port, at], flight.hi[port, at], flight.tag[port, at]
            destination = links.destination_of(hi, sim.b)
            if is_for(network, destination, node):
                row = row_of(address_of(lo, sim.b), sim.mem.m, node)
                if queues.room(sim.mem.inbound, row) < 1:
                    break
                queues.push(sim.mem.inbound, row, lo, request_of(hi, sim.b), tag)
                network.arrived[node] += 1 + get(lo, hi, sim.b.more, sim.b.more_bits)
                if sim.control.signals.shape[1] > 1:
                    sim.control.signals[node, get(lo, hi, sim.b.wg, sim.b.wg_bits)] += 1
            elif switches.works_on(sim.switch, lo, hi, sim.b):
                if not switches.take(sim.switch, network, sim.b, node, now, lo, hi, tag):
                    break
            else:
                onward = links.port_for(network, node, destination, lo, sim.b)
                if onward == links.NO_PORT:
                    network.unroutable[node] += 1
                elif not links.can_send(network, onward, now):
                    break
                else:
                    links.send(network, onward, now, get(lo, hi, sim.b.bytes, sim.b.op - sim.b.bytes), 0, lo, hi, tag)
            network.taken[port] += 1
            queues.take(flight, port, now)
        deliver_heads(sim, node, port, now)


@compiled
def deliver_all_heads(sim: Sim, node: int, now: int) -> None:
    """Hand on heads of dispatch windows that have arrived at a node whose packets its hardware takes."""
    network = sim.network
    for i in range(network.first_in[node], network.first_in[node + 1]):
        deliver_heads(sim, node, network.ports_in[i], now)


@inlined
def deliver_heads(sim: Sim, node: int, port: int, now: int) -> None:
    """Hand on heads of dispatch windows that have arrived by a link, to the GPU's hardware or onward."""
    network, heads = sim.network, sim.network.heads
    while queues.arrives(heads, port, now):
        head = heads.lo[port, queues.head_of(heads, port)]
        destination = links.head_destination(head, sim.b)
        if is_for(network, destination, node):
            if queues.timed_room(network.heard, node) < 1:
                break
            queues.push_at(network.heard, node, now, head, 0, 0)
        else:
            onward = links.port_to(network, node, destination)
            if onward == links.NO_PORT:
                network.unroutable[node] += 1
            elif not links.can_send_head(network, onward, now):
                break
            else:
                links.send_head(network, onward, now, 0, head, sim.b)
        queues.take(heads, port, now)


@merged
def models_cycle(sim: Sim, kernel: tuple, hardware: Hardware | None, gpu: int, now: int) -> None:
    """Do everything of a GPU in cycle `now` except its hardware's clock edge."""
    memory_cycle(hardware, sim, gpu, now)
    reads_return(kernel, sim, gpu, now)
    egress_cycle(hardware, sim, gpu, now)
    agents.cycle(kernel, sim, hardware, gpu, now)
    side_signals(hardware, sim, gpu, now)
    deliver(sim, gpu, now)


@merged
def step_alone(sim: Sim, kernel: tuple, hardware: Hardware | None, watching: Watchers, gpu: int, now: int,
               end: int) -> None:
    """Step one GPU from cycle `now` to `end`, at most a link's latency."""
    for cycle in range(now, end):
        models_cycle(sim, kernel, hardware, gpu, cycle)
        call_before_edge(watching, sim, kernel, hardware, gpu, cycle)
        clock_edge(hardware, gpu)
        call_after_edge(watching, sim, kernel, hardware, gpu, cycle)


@compiled
def meet_again(sim: Sim, now: int, alone: int) -> int:
    """Show all nodes the others' packets; return the cycle up to which each is stepped alone next.

    A run cannot end while a packet is under way, so `outcome` need not be checked before it arrives.
    """
    until = (now // LOOK + 1) * LOOK
    for port in range(len(sim.network.free_time)):
        queues.meet(sim.network.flight, port)
        queues.meet(sim.network.heads, port)
        if alone > LOOK and queues.under_way(sim.network.flight, port) > 0:
            until = max(until, (sim.network.last_arrival[port] // LOOK + 1) * LOOK)
    most = now + alone
    if alone > LOOK:
        most = most // LOOK * LOOK
    return min(until, most, (now // LOOK_STUCK + 1) * LOOK_STUCK)


@merged
def step_nodes(sim: Sim, kernel: tuple, hardware: Hardware | None, watching: Watchers, member: Member, now: int,
               until: int) -> None:
    """Step a thread's share of all nodes from cycle `now` to `until`: neighbours first, as they lie in memory."""
    gpus = len(sim.control.downstream)
    for gpu in range(gpus):
        if gpu * member.threads // gpus == member.number:
            step_alone(sim, kernel, hardware, watching, gpu, now, until)
    for switch in range(gpus + member.number, len(sim.network.arrived), member.threads):
        for cycle in range(now, until):
            if switch_cycle(hardware, sim, switch, cycle):
                deliver_all_heads(sim, switch, cycle)
            else:
                deliver(sim, switch, cycle)
                switches.send_sums(sim.switch, sim.network, sim.b, switch, cycle)


@unlocked
def advance(machine: Sim, agent: tuple, rtl: Hardware | None, observers: Watchers, span: "CycleSpan",
            member: Member) -> tuple[int, int]:
    """Run memory cycles of all GPUs; return the next cycle and the outcome. Each of the threads calls it."""
    sim, kernel = by_reference(machine), by_reference(agent)
    hardware, watching = by_reference(rtl), by_reference(observers)
    now, end, reached = span.begin, span.end, RUNNING
    while True:
        before = rounds(member)
        if last_to_come(member):
            if now > span.begin and now % LOOK == 0:
                reached = outcome(sim, kernel, now)
            goes_on = now < end and reached == RUNNING and not sim.control.halt[0]
            until = min(end, meet_again(sim, now, span.alone)) if goes_on else now
            go_on(member, until << _OUTCOME_BITS | reached)
        else:
            told = wait(member, before)
            until, reached = told >> _OUTCOME_BITS, told & (1 << _OUTCOME_BITS) - 1
        if until <= now:
            return now, reached
        step_nodes(sim, kernel, hardware, watching, member, now, until)
        now = until


#: Memory cycles between looks at progress, and at Ctrl-C.
BATCH_CYCLES = 50_000


class CycleSpan(NamedTuple):
    """The memory cycles that a run is to go on for."""

    begin: int
    end: int
    alone: int  #: cycles for which each GPU is stepped by itself, at most a link's latency


class Lockstep:
    """A run: its state, its cycle, and its observers. Each GPU's models and RTL take every memory cycle together."""

    def __init__(self, sim: Sim) -> None:
        check_records(sim)
        self.sim = sim
        self.now = 0
        self.threads = 1  #: at most, that step GPUs; one if the run is watched
        self.observers: list[Observer] = []

    def advance(self, cycles: int) -> int:
        """Run at most this many memory cycles; with 0 the loop is only compiled.

        Returns `end.RUNNING`, `DONE` or `STUCK`.
        """
        end = self.now + cycles
        while True:
            states, until = [], end
            for observer in self.observers:
                state, until = observer.before(self.now, until)
                if state is not None:
                    states.append(state)
            self.sim.control.halt[0] = 0
            self.now, reached = self._advance(states, until)
            for observer in self.observers:
                observer.after(self.now)
            if reached != RUNNING or self.now >= end:
                return reached

    def to_end(self, after_batch: Callable[[], object] = lambda: None, batch_cycles: int = BATCH_CYCLES,
               until: int | None = None) -> int:
        """Run until it is done or stuck, or has come to cycle `until`, and return which, as `advance` does.

        `after_batch` is called every `batch_cycles`.
        """
        while True:
            state = self.advance(batch_cycles if until is None else min(batch_cycles, until - self.now))
            after_batch()
            if state != RUNNING or self.now == until:
                return state

    def _advance(self, states: list[tuple], end: int) -> tuple[int, int]:
        latency = int(self.sim.network.latency_cycles.min())
        alone = 1 if any(one.interleaved for one in self.observers) else LOOK if self.observers else latency
        threads = 1 if self.observers else min(self.threads, len(self.sim.control.downstream))
        machine, alone = self.sim.apart(), max(1, min(alone, latency))
        called, _kept = watchers(states, machine)
        state = (*machine, called)

        def task(member: Member) -> tuple[int, int]:
            return advance(*state, CycleSpan(self.now, end, alone), member)
        if threads > 1:  # what is compiled is compiled here, where its time is known (`jit.compile_times`)
            on_threads(1, lambda member: advance(*state, CycleSpan(self.now, self.now, alone), member))
        return on_threads(threads, task)
