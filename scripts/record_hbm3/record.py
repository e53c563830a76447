"""Record what DRAMsim3 and Ramulator 2.1 make of the traces of `t3 hbm-replay --machine hbm3-reference`.

    g++ -O2 -std=c++14 -DCMD_TRACE -DFMT_HEADER_ONLY=1 -Isrc -Iext/fmt/include -Iext/headers -o dramsim3 dramsim3.cc \\
        src/{bankstate,channel_state,command_queue,common,configuration,controller,dram_system,hmc}.cc \\
        src/{memory_system,refresh,simple_stats,timing}.cc                # in DRAMsim3, commit 29817593 (MIT licence)
    patch -p1 < per_bank.patch                                            # then the same again as dramsim3-per-bank
    g++ -O2 -std=c++20 -Isrc -Iext/yaml-cpp/include -o ramulator ramulator.cc libramulator.so
                                                                          # in Ramulator 2.1, commit c5b1c3a4 (MIT)
    PYTHONPATH=RAMULATOR/python python scripts/record_hbm3/record.py FOLDER_OF_THE_THREE
    PYTHONPATH=RAMULATOR/python python scripts/record_hbm3/record.py FOLDER speed > docs/results/dram-speed.csv
                                                                          # dramsim3 without -DCMD_TRACE

DRAMsim3 has a refresh per bank whose distances are mixed up: the other banks wait for the refresh of all (tRFC), the
bank itself for nothing. The patch gives each its own, tRFCb and, in tPPD, which HBM does not use, tRREFD.
"""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

from t3sim.gpu.hbm.address import line_of
from t3sim.machine import load_machine
from t3sim.machine.dram import Dram
from t3sim.testbenches.hbm_replay import recorded
from t3sim.testbenches.hbm_replay.configurations import RECORDED, configured
from t3sim.testbenches.hbm_replay.recorded.traces import decode, text
from t3sim.testbenches.hbm_replay.replay import replay
from t3sim.testbenches.hbm_replay.validation import with_fr_fcfs

INI = """[dram_structure]
protocol = HBM
bankgroups = {d.bank_groups}
banks_per_group = {d.banks_per_group}
rows = {d.rows_per_bank}
columns = 64
device_width = 64
BL = 4
[timing]
tCK = 0.625
CL = {d.cl_cycles}
CWL = {d.cwl_cycles}
tRCDRD = {d.trcdrd_cycles}
tRCDWR = {d.trcdwr_cycles}
tRP = {d.trp_cycles}
tRAS = {d.tras_cycles}
tRFC = {d.trfc_cycles}
tRFCb = {d.trfc_cycles}
tREFI = {d.trefi_cycles}
tREFIb = {d.refresh_interval_cycles}
tPPD = {d.trrefd_cycles}
tRRD_S = {d.trrd_s_cycles}
tRRD_L = {d.trrd_l_cycles}
tWTR_S = {d.twtr_s_cycles}
tWTR_L = {d.twtr_l_cycles}
tFAW = {d.tfaw_cycles}
tWR = {d.twr_cycles}
tCCD_S = {d.tccd_s_cycles}
tCCD_L = {d.tccd_l_cycles}
tRTP = {d.trtp_cycles}
tRTRS = {d.trtrs_cycles}
[system]
channel_size = 512
channels = 1
bus_width = 64
address_mapping = {order}
queue_structure = PER_BANK
row_buf_policy = OPEN_PAGE
refresh_policy = {policy}
cmd_queue_size = {d.command_queue_entries_per_bank}
trans_queue_size = {d.read_queue_entries}
unified_queue = False
[other]
epoch_period = 1000000000
output_level = 0
"""
FIELDS = {"row": "ro", "bank_group": "bg", "bank": "ba", "column": "co"}
COMMANDS = {"activate": "ACT", "precharge": "PRE", "read": "RD", "write": "WR", "refresh": "REF",
            "refresh_bank": "REFPB"}


def trace_text(lines, ops, cycles) -> str:
    """Write requests of 32 bytes, one column each."""
    return text(lines, ops, cycles, 32)


def run_dramsim3(folder: Path, dram: Dram, requests: str, scratch: Path) -> subprocess.CompletedProcess[str]:
    per_bank = dram.refresh == "per_bank"
    order = "ch" + "ra" + "".join(FIELDS[field] for field in dram.address_fields)
    (scratch / "d.ini").write_text(INI.format(
        d=dram, order=order, policy="BANK_LEVEL_STAGGERED" if per_bank else "RANK_LEVEL_STAGGERED"))
    (scratch / "trace").write_text(requests)
    return subprocess.run([folder / ("dramsim3-per-bank" if per_bank else "dramsim3"), "d.ini", "trace", "."],
                          cwd=scratch, capture_output=True, text=True, check=True)


def dramsim3(folder: Path, dram: Dram, requests: str) -> tuple[list, list]:
    """Return (accepted, done) per request and every command as (cycle, name, bank group, bank)."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
        scratch = Path(name)
        ran = run_dramsim3(folder, dram, requests, scratch)
        served = [tuple(map(int, line.split())) for line in ran.stdout.splitlines() if line[:1].isdigit() or
                  line[:1] == "-"]
        commands = []
        for line in next(scratch.glob("*cmd.trace")).read_text().splitlines():
            cycle, kind, _, _, group, bank, *_ = line.split()
            commands.append((int(cycle), COMMANDS[kind], int(group), int(bank)))
    return served, commands


RAMULATORS = {"FRFCFS-q32": ("FRFCFS", 32)}


def run_ramulator(folder: Path, dram: Dram, places: list[tuple], name: str, scratch: Path, pseudo_channels: int = 1,
                  record: bool = True) -> subprocess.CompletedProcess[str]:
    import ramulator
    from ramulator.export import dict_to_yaml

    scheduler, entries = RAMULATORS[name]
    managers = ramulator.refresh_manager
    controller = ramulator.controller.HBM34(
        dram=ramulator.dram.HBM3(org_preset="HBM3_4Gb", timing_preset="HBM3_6400Mbps",
                                 pseudochannel=pseudo_channels, row=dram.rows_per_bank),
        scheduler=getattr(ramulator.scheduler, scheduler)(), row_policy=ramulator.row_policy.Open(),
        refresh_manager=managers.HBM34PerBankRefresh() if dram.refresh == "per_bank" else managers.AllBank(),
        addr_mapper=ramulator.addr_mapper.PassThroughAddrMapper(), read_buffer_size=entries,
        write_buffer_size=entries,
        controller_plugins=[ramulator.controller_plugin.CmdTraceRecorder(path=f"{scratch}/commands")] * record)
    memory = ramulator.memory_system.GenericDRAM(
        clock_ratio=1, controllers=[controller],
        channel_mapper=ramulator.channel_mapper.PassThroughChannelMapper())
    (scratch / "c.yaml").write_text(dict_to_yaml({
        "frontend": ramulator.frontend.External(clock_ratio=1).to_config(), "memory_system": memory.to_config()}))
    (scratch / "trace").write_text("".join(" ".join(map(str, place)) + "\n" for place in places))
    return subprocess.run([folder / "ramulator", "c.yaml", "trace"], cwd=scratch, capture_output=True, text=True,
                          check=True)


def ramulator(folder: Path, dram: Dram, places: list[tuple], name: str, pseudo_channels: int = 1) -> tuple[list, list]:
    """Return the same as `dramsim3`. Places are (pseudo channel, bank group, bank, row, column, R or W, cycle)."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder_name:
        scratch = Path(folder_name)
        ran = run_ramulator(folder, dram, places, name, scratch, pseudo_channels)
        served = [tuple(map(int, line.split())) for line in ran.stdout.splitlines()]
        names = {"PREpb": "PRE", "PREab": "PREA", "REFab": "REF", "REFpb": "REFPB"}
        commands = []
        for line in next(scratch.glob("commands*")).read_text().splitlines()[1:]:
            clock, kind, _, _, _, group, bank, *_ = line.split(",")
            commands.append(((int(clock) - 1) // 2, names.get(kind, kind), int(group), int(bank)))
    return served, commands


def places_of(trace, config: str) -> list[tuple]:
    """Return the places of a trace's requests."""
    groups, banks, rows, columns = decode(recorded.map_of(config), trace.lines)
    return [(0, *place) for place in zip(groups, banks, rows, columns, np.where(trace.ops, "W", "R"), trace.cycles)]


def counts(dram: Dram, served, commands) -> dict:
    """Count as results.json does: up to the last column command."""
    last = max(cycle for cycle, name, *_ in commands if name in ("RD", "WR"))
    end = max(cycle + (dram.read_data_cycles if name == "RD" else dram.write_data_cycles)
              for cycle, name, *_ in commands if name in ("RD", "WR"))
    number = {name: sum(one[1] == name and one[0] <= last for one in commands) for name in COMMANDS.values()}
    waits = [done - accepted for accepted, done in served if done >= 0]
    return {"cycles": end, "read_latency_cycles": round(sum(waits) / len(waits), 4) if waits else None,
            "activates": number["ACT"], "precharges": number["PRE"], "refreshes": number["REF"] + number["REFPB"],
            "reads": number["RD"], "writes": number["WR"]}


def shared_bus(folder: Path, dram: Dram, workload: str) -> dict:
    """Set two pseudo channels on one command bus beside one alone: the same requests to both, twice the entries."""
    def last(ran) -> int:
        return max(cycle for cycle, name, *_ in ran[1] if name in ("RD", "WR"))

    places = places_of(recorded.trace(workload, "bgil"), "bgil")
    both = [(channel, *place[1:]) for place in places for channel in (0, 1)]
    RAMULATORS["two"] = ("FRFCFS", 64)
    return {"workload": workload, "config": "bgil", "one": last(ramulator(folder, dram, places, "FRFCFS-q32")),
            "two": last(ramulator(folder, dram, both, "two", 2))}


def until_last(served: list, commands: list) -> dict:
    """Return what micro.json has of a run: its commands end with the last column."""
    last = max([one[0] for one in commands if one[1] in ("RD", "WR")], default=0)
    return {"accept": [one[0] for one in served], "data_return": [None if one[1] < 0 else one[1] for one in served],
            "commands": [one[:2] if one[1] in ("REF", "PREA") else one for one in commands if one[0] <= last]}


#: Streams, random addresses, hits of one bank group, conflicts, and a quarter and half of what the bus can take.
SPEED_WORKLOADS = ("seq_rd", "seq_wr", "rand_rd", "rand_rw50", "hits_1bg_rd", "conflict_rd", "load_bus25",
                   "load_bus50")


def print_speeds(folder: Path) -> None:
    """Print thousands of requests per second of a core, the best of three runs of the loop without its trace's file."""
    columns = ("workload", "requests", "DRAMsim3", "Ramulator 2.1", "t3sim as DRAMsim3", "t3sim FR-FCFS")
    table = csv.writer(sys.stdout, lineterminator="\n")
    table.writerow(columns)
    machine = load_machine("hbm3-reference").dram
    for workload in SPEED_WORKLOADS:
        trace, dram = recorded.trace(workload, "bgil"), configured(machine, "bgil")
        requests, places = trace_text(trace.lines, trace.ops, trace.cycles), places_of(trace, "bgil")
        best = dict.fromkeys(columns[2:], float("inf"))
        for _ in range(3):
            with tempfile.TemporaryDirectory(dir="/dev/shm") as name:
                seconds = (float(run_dramsim3(folder, dram, requests, Path(name)).stderr.split()[-1]),
                           float(run_ramulator(folder, dram, places, "FRFCFS-q32", Path(name), record=False)
                                 .stderr.split()[-1]),
                           replay(trace, dram).host_seconds, replay(trace, with_fr_fcfs(dram)).host_seconds)
            best = {column: min(best[column], one) for column, one in zip(best, seconds, strict=True)}
        size = trace.lines.size
        table.writerow([workload, size, *(round(size / one / 1000) for one in best.values())])
        sys.stdout.flush()


def main(folder: Path, only: list[str]) -> None:
    if only == ["speed"]:
        print_speeds(folder)
        return
    reference = load_machine("hbm3-reference").dram
    target = Path(recorded.__file__).parent / "hbm3"
    results = []
    for name, workload in recorded.workloads("hbm3").items():
        for config in RECORDED["hbm3"]:
            if only and name not in only or not (workload.get("held_out") or config in ("base", "refpb_bgil")):
                continue
            dram = configured(reference, config)
            trace = recorded.trace(name, config)
            served, commands = dramsim3(folder, dram, trace_text(trace.lines, trace.ops, trace.cycles))
            others = {one: counts(dram, *ramulator(folder, dram, places_of(trace, config), one))
                      for one in RAMULATORS} if workload.get("held_out") else {}
            results.append({"workload": name, "config": config, "DRAMsim3": counts(dram, served, commands),
                            "Ramulator2": others})
            print(results[-1], flush=True)
    pairs = [shared_bus(folder, configured(reference, "bgil"), name)
             for name in ("held_seq_rd", "held_seq_wr", "held_rand_wr0")]
    (target / "results.json").write_text('{"results": [\n' + ",\n".join(map(json.dumps, results))
                                         + '\n],\n"shared_command_bus": ' + json.dumps(pairs) + "}\n")
    cases = []
    for case in json.loads(Path(__file__).with_name("cases.json").read_text()):
        for config in RECORDED["hbm3"]:
            dram = configured(reference, config)
            requests = case["requests"]
            served, commands = dramsim3(folder, dram, trace_text(
                [line_of(dram, *place) for _, *place, _ in requests], [r[0] == "W" for r in requests],
                [r[5] for r in requests]))
            other = ramulator(folder, dram, [(0, *place, kind, cycle) for kind, *place, cycle in requests],
                              "FRFCFS-q32")
            cases.append({**case, "config": config, "DRAMsim3": until_last(served, commands),
                          "Ramulator2": until_last(*other)})
    lines = ",\n".join(json.dumps(case, separators=(",", ":")) for case in cases)
    (target / "micro.json").write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]).resolve(), sys.argv[2:])
