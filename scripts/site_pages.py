"""Pages of the site that the hardware itself writes: one per block, with its contract, its ports and a waveform.

A hook of mkdocs. A block's ports are those of its signature at the machine's own geometry; its waveform is a recording
of its testbench (`docs/waves/BLOCK.json`, made by `make waves`).
"""

import inspect
import json
from collections.abc import Iterator
from pathlib import Path

import wavedrom
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

from t3sim.cosim.hierarchy import signature_ports
from t3sim.machine import load_machine
from t3sim.rtl import blocks
from t3sim.rtl.geometry import Geometry

ROOT = Path(__file__).resolve().parents[1]
WAVES = ROOT / "docs" / "waves"


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put the blocks' pages where the navigation has an empty list for them."""
    for section in config.nav:
        if isinstance(section, dict) and "Blocks" in section:
            section["Blocks"] = ["blocks/index.md", *(f"blocks/{name}.md" for name in sorted(blocks.BLOCKS))]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the blocks."""
    geometry = load_machine().geometry()
    names = sorted(blocks.BLOCKS)
    for name in names:
        files.append(File.generated(config, f"blocks/{name}.md", content=page(name, geometry)))
    index = "# Blocks\n\nEvery block by itself: its contract, its ports on the machine of table 1, a waveform.\n\n"
    index += "".join(f"- [{name}]({name}.md): {first_line(name)}\n" for name in names)
    files.append(File.generated(config, "blocks/index.md", content=index))
    return files


def block_class(name: str) -> type:
    """The component's class, also of a block that a function makes."""
    made = blocks.BLOCKS[name]
    return made if isinstance(made, type) else next(
        found for used in made.__code__.co_names if isinstance(found := getattr(blocks, used, None), type))


def first_line(name: str) -> str:
    return (inspect.getdoc(inspect.getmodule(block_class(name))) or "").splitlines()[0]


def page(name: str, geometry: Geometry) -> str:
    """Markdown of a block's page."""
    kind = block_class(name)
    source = Path(inspect.getfile(kind)).relative_to(ROOT).as_posix()
    rows = "\n".join(f"| `{port}` | {count} | {way} | {bits} |" for port, count, way, bits in ports(name, geometry))
    head = "| port | how many | direction | bits |\n|---|--:|---|--:|"
    return (f"# {name}\n\n{first_line(name)} Source: `{source}`; testbench: `testbenches/tb_{name}.py`; what is "
            f"tested: [verification](../verification.md).\n\n## Contract\n\n{inspect.getdoc(kind)}\n\n"
            f"## Ports\n\nOn the machine `t3-table1`.\n\n{head}\n{rows}\n{waveform(name)}")


def ports(name: str, geometry: Geometry) -> Iterator[tuple[str, int, str, int]]:
    """Name, how many there are of it, direction and width; an array's ports are one row."""
    found: dict[tuple[str, str, int], int] = {}
    for path, (value, direction) in signature_ports(blocks.BLOCKS[name](geometry)).items():
        words = ["[ ]" if word.isdigit() else word for word in path.split("__")]
        key = ".".join(words).replace(".[ ]", "[ ]"), direction.name.lower(), len(value)
        found[key] = found.get(key, 0) + 1
    return ((port, count, way, bits) for (port, way, bits), count in found.items())


def waveform(name: str) -> str:
    """Of the block's testbench, as an SVG in the page."""
    wave = json.loads((WAVES / f"{name}.json").read_text(encoding="utf-8"))
    drawn = wavedrom.render(json.dumps(wave)).tostring()
    return (f"\n## Waveform\n\nThe testbench's first cycles with something to see, recorded by `make waves`: "
            f"{wave['foot']['text']}.\n\n<div style=\"overflow-x: auto; background: white\">{drawn}</div>\n")
