"""Plots of pages: few bytes, and the same picture."""

import io
import re
from xml.etree import ElementTree

from t3sim.base import plots


def test_a_plot_is_smaller_than_matplotlibs_and_draws_as_much():
    raw = io.StringIO()

    def draw():
        figure, axes = plots.figure(2.0)
        axes.plot([1, 2, 3], [1.23456789, 2, 3], "o", label="times")
        axes.bar([1], [1], hatch="//")
        axes.legend()
        figure.savefig(raw, format="svg", metadata={"Date": None})
        return figure

    svg, png = plots.render("name", draw)
    assert png.startswith(b"\x89PNG") and len(svg) < 0.8 * len(raw.getvalue())
    for pattern in (r"scale\([^)]*\)", r"<use", r"<path"):
        assert sorted(re.findall(pattern, svg)) == sorted(re.findall(pattern, raw.getvalue())) != []
    ids = re.findall(r'\bid="([^"]+)"', svg)
    assert ids and len(ids) == len(set(ids)) and all(one.startswith("name-") for one in ids)
    assert set(re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg)) and {
        one or other for one, other in re.findall(r'href="#([^"]+)"|url\(#([^)]+)\)', svg)} == set(ids)
    assert not [element for element in ElementTree.fromstring(svg).iter() if element.tag.endswith("}g")
                and not element.attrib]
