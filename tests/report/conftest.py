"""A browser without a window, and what it sees of a page."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import dataclass

import pytest

WIDTHS = (375, 1200)
"""A phone and a desktop. [pixels]"""
SCRIPT = """
addEventListener("load", () => {
  const frames = [...document.querySelectorAll("iframe")].map(frame => {
    const view = frame.contentWindow, root = frame.contentDocument.documentElement;
    return {wanted: root.clientWidth, taken: root.scrollWidth,
            ink: view.getComputedStyle(frame.contentDocument.body).color,
            paper: view.getComputedStyle(frame.contentDocument.body).backgroundColor,
            bars: frame.contentDocument.querySelectorAll("svg path").length,
            resources: view.performance.getEntriesByType("resource").map(one => one.name)};
  });
  document.body.innerHTML = "<pre id=seen>" + JSON.stringify(frames) + "</pre>";
});
"""


@dataclass(frozen=True)
class Seen:
    """What a browser makes of a page at each width."""

    wanted: list[int]
    taken: list[int]
    colours: list[tuple[str, str]]
    bars: list[int]
    resources: list[str]
    console: list[str]


Look = Callable[..., Seen]


@pytest.fixture(scope="session")
def look(tmp_path_factory) -> Look:
    """Show a page in headless Chromium; skipped where there is none."""
    program = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium")

    def seen(page: str, dark: bool = False) -> Seen:
        folder = tmp_path_factory.mktemp("chromium")
        opened = html.escape(page.replace("<details>", "<details open>"))
        frames = "".join(f'<iframe width="{width}" height="900" srcdoc="{opened}"></iframe>' for width in WIDTHS)
        path = folder / "host.html"
        path.write_text(f"<!doctype html><meta charset=utf-8><script>{SCRIPT}</script><body>{frames}")
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--enable-logging=stderr", "--hide-scrollbars"]
        options += [
            f"--user-data-dir={folder / 'profile'}",
            f"--blink-settings=preferredColorScheme={0 if dark else 1}",
        ]
        command = [program, *options, "--virtual-time-budget=4000", "--dump-dom", path.as_uri()]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
        found = re.search(r"<pre id=\"seen\">(.*?)</pre>", done.stdout, re.DOTALL)
        assert found is not None, done.stderr
        told = json.loads(html.unescape(found[1]))
        return Seen(
            [one["wanted"] for one in told],
            [one["taken"] for one in told],
            [(one["ink"], one["paper"]) for one in told],
            [one["bars"] for one in told],
            [name for one in told for name in one["resources"]],
            [line for line in done.stderr.splitlines() if "CONSOLE" in line],
        )

    return seen
