"""Proofs that take seconds; all of them: `make formal`."""

import re

import pytest
from amaranth.hdl import Fragment

from t3sim.rtl.blocks import BLOCKS
from t3sim.testbenches.formal import prove as command
from t3sim.testbenches.formal.broken import Broken
from t3sim.testbenches.formal.campaign import PROPERTIES, prove
from t3sim.testbenches.formal.property import Property, Search
from t3sim.testbenches.formal.spec import streams
from t3sim.testbenches.geometries import GEOMETRIES

pytestmark = pytest.mark.builds_rtl

QUICK = [item for item in PROPERTIES if item.quick]


def name(item: Property) -> str:
    return f"{item.block}: {item.name}"


@pytest.mark.slow
@pytest.mark.parametrize("item", QUICK, ids=name)
def test_property_holds_and_can_fail(item):
    """A quick proof, and the first broken design that it must catch; the others, and elsewhere: `make formal`."""
    told = prove(item, broken=item.broken[:1], searches=item.searches[:1])
    assert told["ok"], told["why"]


@pytest.mark.parametrize("item", PROPERTIES, ids=name)
def test_every_claim_has_a_broken_design(item):
    spec = item.spec(geometry=item.searches[0].geometry)
    Fragment.get(spec.m, None)  # it is used: Amaranth warns of what is not
    assert {broken.claim for broken in item.broken} == spec.claims


BROKEN = list({(b.file, b.old, b.new): b for item in PROPERTIES for b in item.broken}.values())


def test_every_broken_design_still_applies():
    """Its line is in the RTL once, and the changed file is Python."""
    assert BROKEN
    for broken in BROKEN:
        compile(broken.text(), broken.file, "exec")


@pytest.mark.slow
@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.what)
def test_broken_design_still_loads(broken):
    """With the line changed the package is whole."""
    with broken.load() as package:
        assert package.blocks.BLOCKS.keys() == BLOCKS.keys()


#: What they are offered they offer on in the same cycle, as their own proofs say: the rule is their source's.
PASS_ON = {"ingress"}


def test_every_block_with_an_output_stream_has_a_stream_proof():
    blocks = {block: make(GEOMETRIES["least"]) for block, make in BLOCKS.items()}
    for block in blocks.values():
        Fragment.get(block, None)
    assert {item.block for item in PROPERTIES if item.name == "streams hold"} == {
        name for name, block in blocks.items() if streams(block)} - PASS_ON


def test_a_proof_says_why_it_is_smaller():
    assert not [name(item) for item in PROPERTIES
                if (item.bounded or item.geometry != "default") and not item.reason]


def test_broken_designs_fail_on_the_geometry_that_is_proved_or_it_says_why_not():
    assert not [name(item) for item in PROPERTIES
                if (item.geometry in [search.geometry for search in item.searches]) == bool(item.unsearched)]


@pytest.mark.slow
def test_a_property_that_a_broken_design_passes_fails_the_run(monkeypatch, capsys, tmp_path):
    arbiter = next(item for item in PROPERTIES if item.block == "arbiter")
    harmless = Broken("nothing is broken", arbiter.broken[0].claim, "arbiter/mca.py", "def grants(view: View):",
                      "def grants(view):")
    hollow = Property("hollow", "arbiter", "", arbiter.specify, (harmless, *arbiter.broken[1:]),
                      searches=(Search("small", 4),))
    monkeypatch.setattr(command, "PROPERTIES", [hollow])
    assert command.main(["--json", str(tmp_path / "formal.json")]) == 1
    assert "not caught on small: nothing is broken" in capsys.readouterr().out


@pytest.mark.slow
def test_a_property_that_does_not_hold_fails_the_run(monkeypatch, capsys, tmp_path):
    def never_both(spec, _):
        spec.claim("compute is never granted", ~spec.design.grant_compute)

    wrong = Property("wrong", "arbiter", "", never_both, ())
    monkeypatch.setattr(command, "PROPERTIES", [wrong])
    assert command.main(["--json", str(tmp_path / "formal.json")]) == 1
    told = capsys.readouterr().out
    assert "FAILED" in told and "no broken design shows" in told


def test_a_changed_line_is_missed():
    with pytest.raises(ValueError, match=re.escape("rtl/track/tracker.py has 'no such line' 0 times")), \
            Broken("gone", "", "track/tracker.py", "no such line", "").load():
        pass


def test_an_unknown_block_is_refused(capsys):
    with pytest.raises(SystemExit):
        command.main(["trackr"])
    assert "there is no proof about 'trackr'" in capsys.readouterr().err


def test_specifications_explain_themselves():
    assert not [name(item) for item in PROPERTIES if not item.statement]
