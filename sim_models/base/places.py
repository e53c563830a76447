"""Places of the sources: folders side by side in a checkout, one inside the other in site-packages. Plain and light."""

from importlib.util import find_spec
from pathlib import Path


def source_folders() -> dict[str, Path]:
    """Return the folders of the package `t3sim` and of its part `t3sim.rtl`."""
    return {"t3sim": Path(__file__).parents[1], "t3sim.rtl": Path(find_spec("t3sim.rtl").origin).parent}
