"""The compiler's own interface, as its page shows it."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from t3sim import rtlsim
from t3sim.rtl.blocks import BLOCKS
from t3sim.testbenches.geometries import GEOMETRIES

pytestmark = pytest.mark.builds_rtl
PAGE = Path(__file__).resolve().parents[2] / "docs" / "how-to" / "simulate-your-own-design.md"


def test_the_pages_example_prints_what_it_says():
    program, output = re.findall(r"```(?:python|text)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=100)
    assert (ran.stdout, ran.returncode) == (output, 0), ran.stderr


@pytest.fixture(scope="module")
def design():
    return rtlsim.compile(BLOCKS["line_router"](GEOMETRIES["small"]))


def test_fields_are_set_and_read_by_name(design):
    with design.simulator() as router:
        fields = [f"{port.name}.{leaf}" for port in design.ports.inputs.values() for leaf in port.fields]
        assert len(fields) > 5
        for name in fields:
            router.set(name, 1)
            assert router.get(name) == 1
            port, lsb, width = design.ports.place(name)
            router.set(name, -1)
            assert router.get(name) == (1 << width) - 1
            assert router.get(port.name) >> lsb & (1 << width) - 1 == (1 << width) - 1
            router.set(name, 0)
            assert not router.inputs.any(), name


def test_names_and_values_that_cannot_be_are_refused(design):
    output = next(iter(design.ports.outputs))
    name, port = next(iter(design.ports.inputs.items()))
    with design.simulator() as router:
        with pytest.raises(KeyError):
            router.set("nothing", 0)
        for wrong, value in ((output, 0), (name, 1 << port.width), (name, -1 << port.width)):
            with pytest.raises(ValueError):
                router.set(wrong, value)
        assert not router.inputs.any()
