"""Places of the sources: folders side by side in a checkout, one inside the other in site-packages. Plain and light."""

from importlib.util import find_spec
from pathlib import Path


def source_folders() -> dict[str, Path]:
    """Return the folders of the package `t3sim` and of its parts that lie beside it in a checkout."""
    parts = {name: Path(find_spec(name).origin).parent for name in ("t3sim.rtl", "t3sim.testbenches")}
    return {"t3sim": Path(__file__).parents[1], **parts}
