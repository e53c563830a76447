"""Opens every page of the built site in a browser, 1400 and 400 pixels wide, light and dark, and says what is wrong.

`make site`, then `python scripts/browse_site.py [PAGE ...]`. Wrong is a page that is wider than its window, a picture
that does not load, and text that stands out too little (4.5 to 1, WCAG's AA; 3 to 1 where it is large).
"""

import argparse
import functools
import http.server
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

SITE = Path(__file__).resolve().parents[1] / "build" / "site"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
WIDTHS, SCHEMES = (1400, 400), {"light": 1, "dark": 0}  #: as the browser counts its schemes
_LEAST_WINDOW = 500  #: a browser's window is no narrower; a frame in it may be
_SECONDS = 300

#: Loads each page in a frame, which has the width that the page sees, and reports what it finds.
_LOOK = """<!DOCTYPE html><meta charset="utf-8"><body style="margin:0"><script>
const channel = value => value <= 0.03928 ? value / 12.92 : ((value + 0.055) / 1.055) ** 2.4;
const luminance = ([r, g, b]) => [r, g, b].map(v => channel(v / 255)).reduce((sum, v, i) =>
  sum + v * [0.2126, 0.7152, 0.0722][i], 0);
const canvas = document.createElement("canvas").getContext("2d", {willReadFrequently: true});
const rgba = colour => {
  canvas.clearRect(0, 0, 1, 1); canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1);
  const [r, g, b, a] = canvas.getImageData(0, 0, 1, 1).data; return [r, g, b, a / 255];
};
const over = (top, below) => [0, 1, 2].map(i => top[i] * top[3] + below[i] * (1 - top[3]));
function ground(element, window) {
  const layers = [];
  for (let at = element; at; at = at.parentElement) {
    const colour = rgba(window.getComputedStyle(at).backgroundColor);
    if (colour[3] > 0) layers.push(colour);
    if (colour[3] === 1) break;
  }
  return layers.reverse().reduce((below, top) => over(top, below), [255, 255, 255]);
}
function faint(document, window) {
  const found = new Set();
  for (const element of document.querySelectorAll("main *, article *, nav a, h1")) {
    const own = [...element.childNodes].some(node => node.nodeType === 3 && node.textContent.trim());
    if (!own || element.closest("svg, .headerlink, script, style, noscript") || !element.offsetParent) continue;
    const style = window.getComputedStyle(element), below = ground(element, window);
    if (style.visibility === "hidden" || +style.opacity === 0) continue;
    const [a, b] = [luminance(over(rgba(style.color), below)), luminance(below)].sort((x, y) => y - x);
    const large = parseFloat(style.fontSize) >= 24 || parseFloat(style.fontSize) >= 18.7 && +style.fontWeight >= 700;
    const ratio = (a + 0.05) / (b + 0.05);
    if (ratio < (large ? 3 : 4.5)) found.add(`${ratio.toFixed(1)} to 1: ${element.tagName.toLowerCase()}.` +
      `${element.className || "-"} (${element.textContent.trim().slice(0, 20)})`);
  }
  return [...found].slice(0, 5);
}
async function look(page, width) {
  const frame = document.createElement("iframe");
  frame.style = `width:${width}px;height:900px;border:0`;
  const loaded = new Promise(done => frame.onload = done);
  frame.src = page;
  document.body.replaceChildren(frame);
  await loaded;
  await new Promise(done => setTimeout(done, 150));
  const root = frame.contentDocument.documentElement, wrong = [];
  if (root.scrollWidth > root.clientWidth) wrong.push(`${root.scrollWidth} wide`);
  for (const image of frame.contentDocument.images) if (image.complete && !image.naturalWidth)
    wrong.push(`no picture: ${image.getAttribute("src")}`);
  return [...wrong, ...faint(frame.contentDocument, frame.contentWindow)];
}
(async () => {
  const found = {};
  for (const page of PAGES) {
    try { found[page] = await look(page, WIDTH); } catch (error) { found[page] = [`${error}`]; }
  }
  await fetch("/found", {method: "POST", body: JSON.stringify(found)});
})();
</script>"""


class Server(http.server.SimpleHTTPRequestHandler):
    """Serves the site, the page that looks at it, and takes what that finds."""

    def __init__(self, *given, look: str, found: dict, done: threading.Event) -> None:
        self.look, self.found, self.done = look, found, done
        super().__init__(*given, directory=str(SITE))

    def do_GET(self) -> None:
        if self.path != "/look":
            return super().do_GET()
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        return self.wfile.write(self.look.encode())

    def do_POST(self) -> None:
        self.found.update(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.send_response(204)
        self.end_headers()
        self.done.set()

    def log_message(self, *_) -> None:
        """Say nothing of each request."""


def browser() -> str:
    """Return the browser's program. Exits with one line if there is none."""
    found = os.environ.get("BROWSER_PROGRAM") or next(filter(None, map(shutil.which, BROWSERS)), None)
    return found or sys.exit(f"no browser: install one of {', '.join(BROWSERS)}, or name it in BROWSER_PROGRAM")


def command(scheme: str, width: int, home: str) -> list[str]:
    return [browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={home}",
            f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}",
            f"--window-size={max(width, _LEAST_WINDOW)},900"]


def browse(pages: list[str], width: int, scheme: str) -> dict[str, list[str]]:
    """Return what is wrong with each page. Raises TimeoutError if the browser does not come to an end."""
    found: dict[str, list[str]] = {}
    done = threading.Event()
    look = _LOOK.replace("PAGES", json.dumps(pages)).replace("WIDTH", str(width))
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(
        Server, look=look, found=found, done=done))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        opened = subprocess.Popen([*command(scheme, width, home), "--remote-debugging-port=0",
                                   f"http://127.0.0.1:{server.server_port}/look"],
                                  stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        ended = done.wait(_SECONDS)
        opened.terminate()
        opened.wait()
    server.shutdown()
    if not ended:
        raise TimeoutError(f"no answer from the browser within {_SECONDS} s")
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("pages", nargs="*", help="start/index.html, ...; all if none")
    pages = parser.parse_args().pages or sorted(path.relative_to(SITE).as_posix() for path in SITE.rglob("*.html"))
    if not pages:
        sys.exit(f"{SITE} has no pages: make site")
    wrong = 0
    for scheme in SCHEMES:
        for width in WIDTHS:
            for page, found in browse([f"/{page}" for page in pages], width, scheme).items():
                wrong += len(found)
                for one in found:
                    print(f"{page}, {width} pixels, {scheme}: {one}")
    print(f"{len(pages)} pages, {len(WIDTHS)} widths, {len(SCHEMES)} schemes: {wrong or 'nothing'} wrong")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
