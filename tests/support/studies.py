"""Studies that run in seconds."""

from pathlib import Path

COLLECTIVES = """
title = "Algorithms"
command = "collective"

[options]
collective = "ar"

[grid]
topology = ["ring:4", "full:4"]
sizes = ["1M", "2M", "4M"]

[[plots]]
x = "sizes"
y = ["runs.0.collective_ns"]
series = "topology"
"""


def written(folder: Path, study: str) -> Path:
    file = folder / "study.toml"
    file.write_text(study)
    return file
