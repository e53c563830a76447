"""`scripts/browse_site.py` finds what is wrong with a page, where there is a browser."""

import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "scripts"))
import browse_site

HEAD = ("<!DOCTYPE html><meta name=viewport content='width=device-width'>"
        "<style>:root{color-scheme:light dark;background:Canvas}</style>")


@pytest.mark.slow
@pytest.mark.skipif(not any(map(shutil.which, browse_site.BROWSERS)), reason="there is no browser here")
def test_pages_that_are_wide_faint_or_without_their_picture_are_found(tmp_path, monkeypatch):
    (tmp_path / "good.html").write_text(f"{HEAD}<main><p>text</p></main>")
    (tmp_path / "wide.html").write_text(f"{HEAD}<main><div style='width:900px'>text</div></main>")
    (tmp_path / "bad.html").write_text(
        f"{HEAD}<main><p style='color:#999;background:#fff'>text</p><img src=none.png></main>")
    (tmp_path / "night.html").write_text(
        f"{HEAD}<style>@media (prefers-color-scheme: dark) {{ p {{ color: #333; background: #000 }} }}</style>"
        "<main><p>text</p></main>")
    monkeypatch.setattr(browse_site, "SITE", tmp_path)
    pages = [f"/{name}.html" for name in ("good", "wide", "bad", "night")]
    narrow = browse_site.browse(pages, 400, "light")
    assert not narrow["/good.html"] and not narrow["/night.html"]
    assert len(narrow["/wide.html"]) == 1 and narrow["/wide.html"][0].endswith(" wide")
    assert narrow["/bad.html"][0] == "no picture: none.png" and narrow["/bad.html"][1].startswith("2.8 to 1: p.-")
    wide = browse_site.browse(pages, 1400, "dark")
    assert not wide["/wide.html"] and wide["/night.html"][0].startswith("1.7 to 1: p.-")
