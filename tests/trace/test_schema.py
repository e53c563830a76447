"""Codes of a trace's events are those of the hardware."""

from t3sim.rtl.layouts import Source
from t3sim.trace.schema import SOURCES


def test_sources_are_those_of_the_hardware():
    assert list(SOURCES) == [source.name.lower() for source in Source]
