"""The text that nccl-tests and rccl-tests print, as measured rows.

A test prints its ranks, then lines of results: size, count, type, operation and root (old versions: not all of them),
then time (us), algorithm and bus bandwidth (GB/s) and wrong elements (old versions: the largest error), out of place
and again in place. Launchers write labels and times before a line, so it is looked for wherever it begins.
"""

import re
from dataclasses import dataclass, field

from t3sim.analytic.validation.readers import MB, size_name
from t3sim.analytic.validation.requests import BadRows, Collective, Measured, Unread
from t3sim.base.errors import shown

_SETUP = re.compile(r"\bnThread\s+\d{1,6}\s+nGpus\s+(\d{1,3})\b(?:.*\bgraph: (\d))?")
_COLOUR = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
_RANK = re.compile(r"#\s+Rank\s+(\d{1,9})(?:\s+Group\s+(\d+))?\b.*\bon\s+(\S+)\s+device\s+\d+\s+\[[^\]]*\]\s*(.*\S)?")
_HEADER = re.compile(r"#\s+(?:size|bytes)\s+(?:count|N)\s+type\b.*")
_NUMBER = r"(?:-?\d{1,15}(?:\.\d{0,15})?(?:e[+-]\d\d)?|N/A)"  # older versions print the error as 2e-07
_RESULT = re.compile(rf"(?<![\d.])(\d{{1,15}})\s+\d{{1,15}}\s+[a-z]\w*(?:\s+([a-z]\w*))?((?:\s+{_NUMBER})+)"
                     r"(?:\s+\d{4}-\d\d-\d\d\S*(?: [\d:.]+)?)?\s*$", re.ASCII)
#: The beginning of a line of results, in lines that others wrote into.
_BEGUN = re.compile(r"(?<![\d.])\d{1,15}\s+\d{1,15}\s+[a-z]\w*\s+(?:none|sum|prod|min|max|avg|mulsum)\b", re.ASCII)
#: A program, not the folder that it is in; containers of NGC call it all_reduce_perf_mpi.
_TEST = re.compile(r"(?<![a-z0-9])(all_reduce|all_gather|reduce_scatter|alltoallv?|sendrecv|broadcast|reduce|gather|"
                   r"scatter|hypercube)_perf(?:_mpi)?(?![\w/])")
_KINDS = {"all_reduce": "all_reduce", "all_gather": "all_gather", "reduce_scatter": "reduce_scatter",
          "alltoall": "all_to_all", "sendrecv": "send_recv", "broadcast": "broadcast", "reduce": "reduce"}


@dataclass
class _LogTest:
    """One test: the programs that lines before its results name, its ranks and its results."""

    tests: list[str]
    hosts: dict[tuple[str | None, int], str]  #: by group and rank
    gpu: str | None
    thread_gpus: int = 1  #: GPUs that a thread calls for
    graph: bool = False  #: its calls are replayed
    named: bool = False  #: by its own lines, not by those of the table before
    ranked: bool = False
    headed: bool = False
    results: list[tuple[str, re.Match[str]]] = field(default_factory=list)  #: each with its file and line


def read_log(text: str, name: str, gpu: str | None = None) -> list[Measured | Unread]:
    """Read a log; `gpu`: of a log that does not name its GPUs. Raises `BadRows`."""
    if re.match(r'\s*(?:\[\s*)?\{\s*"', text):
        raise BadRows(f"{name}: a JSON report is not read: give the text that nccl-tests or rccl-tests prints")
    rows_read: list[Measured | Unread] = []
    tables = [_LogTest([], {}, gpu)]
    for number, coloured in enumerate(text.splitlines(), 1):
        line, position, table = _COLOUR.sub("", coloured), f"{name}, line {number}", tables[-1]
        rank, header, tests = _RANK.search(line), _HEADER.search(line), _TEST.findall(line)
        if table.results and (rank or header or "nThread" in line or tests and "concluded" not in line):
            table = _LogTest(table.tests, table.hosts, table.gpu, table.thread_gpus, table.graph)
            tables.append(table)
        if "nThread" in line:
            table.ranked = False  # of a test that ended before its results
            if setup := _SETUP.search(line):
                table.thread_gpus, table.graph = int(setup[1]), setup[2] not in (None, "0")
        if tests:
            table.tests, table.named = tests, True
        if header:
            table.headed = True
            if "cputime" in header[0]:
                raise BadRows(f"{position}: the test reports CPU time (-C), not the time of a collective")
        if rank:
            if not table.ranked or table.headed:
                table.hosts, table.ranked, table.headed = {}, True, False
            at = rank[2], int(rank[1])
            if at in table.hosts:
                raise BadRows(f"{position}: rank {at[1]} appears twice, on {shown(table.hosts[at])} and "
                              f"{shown(rank[3])}: each process ran a test of its own, as nccl-tests does without MPI=1")
            table.hosts[at] = rank[3]
            table.gpu = gpu or rank[4] or table.gpu
        elif result := _RESULT.search(line):
            table.results.append((position, result))
            if not table.hosts:
                raise BadRows(f"{position}: the log has no line `#  Rank ... device ... GPU` before its results")
            if table.gpu is None:
                raise BadRows(f"{name}: the log does not name its GPUs: give the machine as well")
        elif _BEGUN.search(line):
            rows_read.append(Unread(name, table.gpu or "", position,
                                    f"{position}: the line of results is not whole", name))
    library = "RCCL" if "rccl" in text.lower() else "NCCL"
    rows = [row for table in tables if table.results for row in _rows(table, name, library)]
    if not rows:
        raise BadRows(f"{name}: no line of results of nccl-tests or rccl-tests: "
                      "size, count, type, redop, root, time, algbw, busbw")
    return rows_read + rows


def _rows(table: _LogTest, name: str, library: str) -> list[Measured | Unread]:
    """Return a table's results. Raises `BadRows`."""
    group = next(iter(table.hosts))[0]  # the first process prints, and its group's results
    hosts = [host for (other, _), host in table.hosts.items() if other == group]
    gpus, nodes, groups = len(hosts), len({*hosts}), len({other for other, _ in table.hosts})
    first_position, gpu = table.results[0][0], table.gpu or ""
    ranks = {rank for _, rank in table.hosts}
    if missing := [rank for rank in range(len(ranks)) if rank not in ranks]:
        raise BadRows(f"{first_position}: the log has no line of rank {missing[0]}")
    if gpus == 1:
        raise BadRows(f"{first_position}: the test ran on one GPU alone, so nothing was communicated "
                      "(several processes need nccl-tests built with MPI=1)")
    lines = []
    for position, result in table.results:
        fields = result[3].split()
        root = fields[0] if len(fields) % 2 else ""
        numbers = [float("nan" if one == "N/A" else one) for one in fields[len(fields) % 2:][:4]]
        if len(numbers) < 3:
            raise BadRows(f"{position}: {shown(result[0].strip())} has no time, algbw and busbw")
        lines.append((position, int(result[1]), root, numbers))
    if table.tests and not {*table.tests} & _KINDS.keys():
        raise BadRows(f"{name}: '{table.tests[0]}_perf' has no model: {', '.join(f'{one}_perf' for one in _KINDS)}")
    one_pass = (gpus - 1) / gpus
    ratios = {"all_reduce": 2 * one_pass, "sendrecv": 1.0, "broadcast": 1.0, "reduce": 1.0}

    def fits(ratio: float) -> bool:
        """Say whether this is the bus bandwidth over the algorithm bandwidth, as far as the digits tell."""
        return not any(abs(bus - ratio * algorithm) > 0.005 * bus + 0.01 * (1 + ratio)
                       for _, _, _, (_, algorithm, bus, *_) in lines)

    fitting_tests = [test for test in _KINDS if fits(ratios.get(test, one_pass))]
    reduces, rooted = table.results[0][1][2] not in (None, "none"), lines[0][2].isdigit()
    candidates = [test for test in fitting_tests if reduces == (test not in ("all_gather", "alltoall", "broadcast"))
                  and rooted == (test in ("broadcast", "reduce"))]
    if table.named and (stated := [test for test in table.tests if test in fitting_tests]):
        candidates = stated
    elif not candidates and (first := [test for test in table.tests if test not in ratios and fits(1.0)]):
        candidates = first  # the first versions' bus bandwidth is the algorithm bandwidth
    elif not candidates:
        _, _, _, (_, algorithm, bus, *_) = lines[-1]
        raise BadRows(f"{lines[-1][0]}: busbw / algbw is {bus / algorithm if algorithm else 0:.3f}, which no test with "
                      f"this operation has on {gpus} GPUs: are ranks missing?")
    test, *others = sorted(candidates, key=lambda one: one not in table.tests)
    kind, nodes_of = _KINDS[test], f" of {nodes} nodes" if nodes > 1 else ""
    guess = f" (a guess, or {' or '.join(others)})" if others else ""  # no line names the test
    group_of = f", one of {groups} groups" if groups > 1 else ""
    setup = ", ".join([*([f"{table.thread_gpus} GPUs per thread"] if table.thread_gpus > 1 else []),
                       *(["CUDA graph"] if table.graph else [])])
    rows: list[Measured | Unread] = []
    for position, size, _, (us, *others_read) in lines:
        scenario = f"{kind}{guess} on {gpus} GPUs{nodes_of}{group_of}, {size_name(size)}"
        if not size or not us > 0:
            rows.append(Unread(name, gpu, scenario, f"{position}: the line has no size or no time", name))
        elif others_read[2:] and others_read[2] >= 1:  # a smaller one is the largest error of an old version
            rows.append(Unread(name, gpu, scenario, "the test itself found wrong values", name))
        else:
            quantity = "collective from 1 MB" if size >= MB else "collective below 1 MB"
            rows.append(Measured(name, gpu, "send and receive" if kind == "send_recv" else quantity, scenario,
                                 Collective(kind, gpus, nodes, size, library, setup), 1e3 * us, name))
    return rows
