"""The site of the documentation: its navigation names every page, and no link leads nowhere."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

REPOSITORY = Path(__file__).parent.parent
FROM_THE_ROOT = {"index.md", "changelog.md", "contributing.md"}


class Page(HTMLParser):
    """The links of a page, and what can be linked to on it."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.links: list[str] = []
        self.anchors: set[str] = set()
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if value and name in ("href", "src"):
                self.links.append(value)
            elif value and name == "id":
                self.anchors.add(value)


def test_the_navigation_names_every_page_once() -> None:
    text = (REPOSITORY / "mkdocs.yml").read_text().partition("\nnav:\n")[2]
    named = re.findall(r"([\w-]+\.md)$", text, re.MULTILINE)
    pages = {page.name for page in (REPOSITORY / "docs").glob("*.md")}
    scripts = {f"{script.stem}.md" for script in (REPOSITORY / "docs/tutorials").glob("*.py")}
    assert len(scripts) >= 4
    assert sorted(named) == sorted(pages | scripts | FROM_THE_ROOT)


def test_the_gallery_shows_every_example() -> None:
    """Each has a picture of less than 100 kB, and no picture is left over."""
    page = (REPOSITORY / "docs/examples.md").read_text()
    shown = dict(
        re.findall(r"!\[[^]]*\]\((images/examples/[^)]+)\).*?\.\./examples/(\w+)\.py", page)
    )
    assert set(shown.values()) == {each.stem for each in (REPOSITORY / "examples").glob("*.py")}
    pictures = {REPOSITORY / "docs" / path for path in shown}
    assert pictures == set((REPOSITORY / "docs/images/examples").iterdir())
    assert all(0 < picture.stat().st_size < 100_000 for picture in pictures)
    assert sum(picture.suffix == ".webp" for picture in pictures) >= 6


def test_links_of_the_site(tmp_path: Path) -> None:
    """The tutorials run for it, and are pages with what they draw, and notebooks."""
    for package in ("material", "nbclient", "ipykernel"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--strict", "-d", str(tmp_path)]
    result = subprocess.run(command, cwd=REPOSITORY, check=False, capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr
    pages = {path: Page(path.read_text()) for path in tmp_path.rglob("*.html")}
    assert len(pages) > 30
    lost = []
    for path, page in pages.items():
        for link in page.links:
            parts = urlsplit(link)
            if parts.scheme or path.name == "404.html":
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                lost.append(f"{path.name}: {link}")
            elif parts.fragment and target in pages:
                if unquote(parts.fragment) not in pages[target].anchors:
                    lost.append(f"{path.name}: {link}")
    assert not lost, "\n".join(lost)
    for script in (REPOSITORY / "docs/tutorials").glob("*.py"):
        notebook = json.loads((tmp_path / f"tutorials/{script.stem}.ipynb").read_text())
        outputs = [output for cell in notebook["cells"] for output in cell.get("outputs", ())]
        kinds = {output["output_type"] for output in outputs}
        assert "stream" in kinds
        assert "error" not in kinds
    for name in ("index.html", "examples.html", "tutorials/hit_a_target.html"):
        assert any(link.endswith(".png") for link in pages[tmp_path / name].links)
