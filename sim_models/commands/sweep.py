"""`t3 sweep`: a command over a grid or a list of settings."""

import contextlib
import re
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from t3sim.base.errors import BadInput, Failure, InFile
from t3sim.commands.flags import in_options
from t3sim.commands.options import (
    AllowCodeOption,
    JsonOption,
    folder_name,
    simulations_at_once,
    whole_number,
    write_results,
)

if TYPE_CHECKING:
    from t3sim.study.sweeps.point import Point
    from t3sim.study.sweeps.study import Study


def sweep(
    study: Annotated[str, typer.Argument(
        metavar="STUDY",
        help="A TOML file, or arbiters, crossover, direct, granularity, lateness, link-bandwidth, occupancy, regimes, "
        "regret, regret-repeated, starvation-limit, tiles-gpus, tiles-link, tracker-ways, unlike.")],
    out: Annotated[Path, typer.Option(
        metavar="DIR", parser=folder_name,
        help="Folder for results.parquet, report.html and plots; an interrupted sweep resumes there.")],
    jobs: Annotated[int | None, typer.Option(
        metavar="N", parser=whole_number, help="Simulations at once. Default: the number of cores.")] = None,
    shard: Annotated[str | None, typer.Option(
        metavar="I/N", help="Run part I of N of a job array: every N-th point from the I-th on.")] = None,
    scheduler: Annotated[str | None, typer.Option(
        metavar="ADDRESS", help="A Dask cluster that shares DIR: tcp://127.0.0.1:8786, or tls://HOST:PORT.")] = None,
    allow_code: AllowCodeOption = False,
    json: JsonOption = None,
) -> None:
    """Run a command over a grid or a list of settings, resumable, here, in job arrays or on a cluster."""
    from t3sim.papers.pipeline import check_out
    from t3sim.study.sweeps.cluster import check_address
    from t3sim.study.sweeps.study import load_study
    from t3sim.study.sweeps.sweep import sweep as run_sweep
    from t3sim.study.tasks.progress import show_progress

    if jobs is not None and scheduler is not None:
        raise BadInput(f"--jobs {jobs} does not go with --scheduler: the cluster's workers say how many run at once")
    jobs = simulations_at_once(jobs)
    part = _shard(shard)
    if scheduler is not None:
        check_address(scheduler)
    described = load_study(study)
    points = points_of(described, allow_code)  # refuses before a folder is made
    is_new = not out.exists()
    check_out(out)
    try:
        with show_progress() as monitor:
            swept = run_sweep(described, points, out, monitor, jobs, part, scheduler)
    except Failure:
        for folder in (out / "cache", out) if is_new else ():
            with contextlib.suppress(OSError):  # it keeps what is finished
                folder.rmdir()
        raise
    except KeyboardInterrupt:
        print(f"t3: finished results are kept: the same command with --out {out} resumes", file=sys.stderr)
        raise
    content = {"study": described.title, "points": swept.points, "done": swept.finished_points,
               "kept": swept.stored_points, "failed": len(swept.failures), "simulations": swept.simulations,
               "compared": [asdict(one) for one in swept.regrets], "regimes": [asdict(one) for one in swept.regimes]}
    if write_results(content, json):
        print(f"{described.title}: {swept.finished_points} of {swept.points} points; {out / 'results.parquet'}, "
              f"{out / 'report.html'}")
        if swept.regrets:
            _show(described.compare, swept.regrets)
    if swept.failures:
        first = swept.failures[0]
        raise Failure(f"{len(swept.failures)} points failed, see {out / 'failures.log'}; "
                      f"{first.label}: {first.message}")


def points_of(study: "Study", allow_code: bool = False) -> "list[Point]":
    """Make the points of a study ready. Raises BadInput for the first that cannot be run.

    `allow_code`: it may name functions that no installed part has.
    """
    from t3sim.commands.command_points import CommandPoint
    from t3sim.study.sweeps.scenario_point import ScenarioPoint

    points: list[Point] = []
    for values in study.points_settings():
        try:
            points.append(ScenarioPoint(values, allow_code) if study.command == "run" else
                          CommandPoint(study.command, values))
        except BadInput as error:
            raise InFile(f"{study.place_of(error)}{in_options(str(error), ('allow_code',))}") from None
    return points


def _show(compare, compared) -> None:
    from t3sim.base.console import output_console, print_table

    columns = (compare.over, f"slower than {compare.against}, mean", "at most",
               f"up to {compare.slower_percent:g} % slower", f"within {compare.within_percent:g} % of the best",
               "slower than the best, at most",
               *([f"over {compare.average.rpartition('.')[2]}, mean", "at most"] if compare.average else ()))
    print_table(f"{compare.by} over {compared[0].cases} cases", columns, [
        (str(row.value), f"{row.mean_percent:+.2f} %", f"{row.worst_percent:+.2f} %",
         f"{row.unharmed_percent:.0f} % of cases", f"{row.good_percent:.0f} % of cases",
         f"{row.behind_best_percent:.2f} %",
         *([f"{row.spread_percent:.2f} %", f"{row.worst_spread_percent:.2f} %"] if compare.average else ()))
        for row in compared], output_console())


def _shard(text: str | None):
    from t3sim.study.sweeps.sweep import Shard

    if text is None:
        return Shard()
    match = re.fullmatch(r"([0-9]{1,6})/([0-9]{1,6})", text)
    if not match or not 1 <= int(match[1]) <= int(match[2]):
        raise BadInput(f"--shard {text!r} is not a part such as 2/8: the first number must be 1 to the second")
    return Shard(int(match[1]), int(match[2]))
