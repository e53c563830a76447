"""Caches that tests have for themselves."""

from pathlib import Path


def share_verilators_own(cache: Path, private: Path) -> None:
    """What is made of Verilator's own sources is the same for all designs, and takes long."""
    for kind in ("runtime", "headers"):
        for entry in cache.glob(f"{kind}-*[!l]"):  # not what is being made, *.partial
            (private / entry.name).symlink_to(entry)
