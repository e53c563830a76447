"""The text that nccl-tests and rccl-tests print, as measured rows.

A line of results has size, count, type, operation and root (old versions: not all of them), then time (us), algorithm
and bus bandwidth (GB/s) and wrong elements (old versions: the largest error), out of place and again in place. Which
collective it was follows from a line that names the test, or from bus over algorithm bandwidth.
"""

import re

from ..errors import shown
from .readers import MB, size_name
from .requests import BadRows, Collective, Measured, Unread

_NUMBER = r"(?:-?\d{1,15}(?:\.\d{0,15})?(?:e[+-]\d\d)?|N/A)"  # older versions print the error as 2e-07
#: What mpirun --tag-output and srun --label put before a line.
_TAG = re.compile(r"^(?:\[\d+,\d+\](?:<\w+>)?:?|\d+:)\s?")
_RESULT = re.compile(rf"\s*(\d{{1,15}})\s+\d{{1,15}}\s+[a-z]\w*(?:\s+([a-z]\w*))?((?:\s+{_NUMBER})+)\s*", re.ASCII)
_RANK = re.compile(r"#\s+Rank\s+\d+.*\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*\S)?")
_TESTS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
          "alltoall": "all_to_all", "sendrecv": "send_recv", "broadcast": "broadcast", "reduce": "reduce"}
_TEST = re.compile(r"\b(\w+)_perf\b")


def read_log(text: str, name: str, gpu: str | None = None) -> list[Measured | Unread]:
    """Read a log; `gpu`: of a log that does not name its GPUs. Raises `BadRows`."""
    found: list[Measured | Unread] = []
    hosts: list[str] = []
    library = "RCCL" if "rccl" in text.lower() else "NCCL"
    seen, named, running = gpu, _TEST.search(text), True
    for number, tagged in enumerate(text.splitlines(), 1):
        line = _TAG.sub("", tagged)
        if rank := _RANK.search(line):
            if not running:
                hosts, running = [], True  # another test's ranks begin
            hosts.append(rank[1])
            seen = gpu or rank[2] or seen
            continue
        if test := _TEST.search(line):
            named = test
        result = _RESULT.fullmatch(line)
        if result is None:
            continue
        running = False
        fields = result[3].split()
        fields = fields[len(fields) % 2:]  # two halves alike; before them the root
        numbers = [float("nan") if one == "N/A" else float(one) for one in fields]
        if len(numbers) < 3:
            raise BadRows(f"{name}, line {number}: {shown(line.strip())} has no time, algbw and busbw")
        if not hosts or seen is None:
            raise BadRows(f"{name}, line {number}: the log has no line `#  Rank ... device ... GPU` before its results"
                          if not hosts else f"{name}: the log does not name its GPUs: give the machine, too")
        size, (us, algorithm, bus) = int(result[1]), numbers[:3]
        if not size or not us > 0:
            continue
        if named and named[1] not in _TESTS:
            raise BadRows(f"{name}: {shown(named[0])} has no model: {', '.join(f'{one}_perf' for one in _TESTS)}")
        kind = _TESTS[named[1]] if named else _by_ratio(bus / algorithm if algorithm else 0.0, len(hosts), result[2])
        quantity = "collective from 1 MB" if size >= MB else "collective below 1 MB"
        if kind == "send_recv":
            quantity = "send and receive"
        nodes = len(set(hosts))
        scenario = f"{kind} on {len(hosts)} GPUs{f' of {nodes} nodes' if nodes > 1 else ''}, {size_name(size)}"
        if fields[3:] and fields[3].isdigit() and int(fields[3]):
            found.append(Unread(name, seen, scenario, "the test itself found wrong values", name))
            continue
        found.append(Measured(name, seen, quantity, scenario,
                              Collective(kind, len(hosts), nodes, size, library), 1e3 * us, name))
    if not found:
        raise BadRows(f"{name}: no line of results of nccl-tests or rccl-tests: "
                      "size, count, type, redop, root, time, algbw, busbw")
    return found


def _by_ratio(ratio: float, gpus: int, operation: str | None) -> str:
    """Return the collective whose bus bandwidth is this many times its algorithm bandwidth."""
    one_pass = (gpus - 1) / gpus
    if abs(ratio - 2 * one_pass) < abs(ratio - one_pass) and operation not in (None, "none"):
        return "all_reduce"
    return "all_gather" if operation in (None, "none") else "reduce_scatter"
