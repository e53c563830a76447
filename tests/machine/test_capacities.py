"""What can wait at each place, in requests and bytes."""


import pytest

from t3sim.cli import main
from t3sim.machine import load_machine
from t3sim.runs.capacities import capacities

KIB = 1 << 10


@pytest.mark.parametrize("name", ["t3-table1", "t3-accelsim"])
def test_both_machines_hold_as_many_bytes_as_gpgpusim(name):
    """SM7_QV100: 64 requests of 32 bytes in a scheduler's queue, in each of two partition queues before a channel."""
    held = {one.place: one for one in capacities(load_machine(name))}
    assert held["DRAM queue of a channel"].size_bytes == 64 * 32
    assert held["before a channel, of each stream"].size_bytes == 2 * 64 * 32
    assert held["cache's misses under way"].size_bytes >= 64 * 192 * 32


def test_a_slice_holds_as_many_bytes_as_gpgpusims():
    machine = load_machine({"extends": "t3-accelsim", "llc": {"slices": 64}})
    assert capacities(machine)[0].place == "loads at a slice of the cache"
    assert capacities(machine)[0].size_bytes == 64 * 32


def test_between_arbiter_and_banks_lie_as_many_bytes_as_in_gpgpusim():
    """Its latency queue takes a sector of 32 bytes per DRAM cycle for 100 core cycles; each of 16 banks holds one."""
    held = {one.place: one.size_bytes for one in capacities(load_machine("t3-accelsim"))}
    assert held["on the way to that queue"] == 72 * 32 >= 100 / 1.4 * 32 > held["on the way to that queue"] - 2 * 32
    assert held["at the banks of a channel, beside its queue"] == 16 * 32


@pytest.mark.parametrize(("name", "share"), [("t3-table1", 1 / 4), ("mi300x-t3", 1)])
def test_misses_never_use_up_their_registers(name, share):
    """What is before and in DRAM or its cache, and on the way back, is less than the registers hold."""
    machine = load_machine(name)
    held = {one.place: one.size_bytes for one in capacities(machine)}
    back = machine.dram.peak_bytes_per_cycle * machine.memory_clock_ghz * machine.llc.fill_latency_ns
    inside = held.get("in a slice of the memory cache", held["DRAM queue of a channel"])
    channel = held["before a channel, of each stream"] + inside + back
    assert machine.channels.count * channel < held["cache's misses under way"] * share


def test_the_command_prints_requests_and_bytes(capsys):
    assert main(["machines", "t3-table1"]) == 0
    (row,) = [line.split() for line in capsys.readouterr().out.splitlines() if line.startswith("DRAM queue")]
    assert row[-4:] == ["32", "64", "2,048", "dram.queue_entries"]


def test_the_command_writes_json(json_of):
    found = {one["key"]: one["size_bytes"] for one in json_of("machines", "t3-accelsim")}
    assert found["link.egress_buffer_bytes"] == 8 << 20 and found["dram.queue_entries"] == 2 * KIB


def test_an_unknown_machine_is_named(error_of):
    assert "'no-such' is neither a file nor one of" in error_of("machines", "no-such")
