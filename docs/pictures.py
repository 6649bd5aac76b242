"""Makes the pictures of the README, the front page and the start again: ``make pictures``.

It needs Chromium, and for the paper's maps the paper's data. Each picture of a report keeps the numbers that it shows
as text, so that a test can compare them with what the code gives.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from PIL.PngImagePlugin import PngInfo
from playwright.sync_api import sync_playwright

DOCS = Path(__file__).parent
WIDTH = 1200


def main() -> None:
    """Make all pictures."""
    photograph(DOCS / "_build" / "live" / "report-documents.html", DOCS / "images" / "report-documents.png")
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder, "paper")
        subprocess.run([sys.executable, "-m", "onmf", "reproduce", "images", "--out", out], check=True)
        for picture in [*out.glob("maps-*.png"), out / "spectra.png"]:
            shutil.copy(picture, DOCS / "paper")


def photograph(report: Path, target: Path) -> None:
    """Take a picture of a report, down to the end of its map."""
    chromium = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if chromium is None:
        sys.exit("The pictures need Chromium: apt-get install chromium")
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": WIDTH, "height": 2000})
        page.goto(report.as_uri())
        page.wait_for_function("document.querySelectorAll('#legend li').length > 0")
        end = page.locator("#map").bounding_box()
        shown = page.locator("#overview").inner_text()
        page.screenshot(path=target, clip={"x": 0, "y": 0, "width": WIDTH, "height": end["y"] + end["height"]})
        browser.close()
    text = PngInfo()
    text.add_text("Description", " ".join(shown.split()))
    with Image.open(target) as picture:
        picture.save(target, pnginfo=text, optimize=True)


if __name__ == "__main__":
    main()
