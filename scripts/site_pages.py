"""Hooks of mkdocs: what the site of the documentation has besides the pages in docs/.

README.md is its first page; CHANGELOG.md and CONTRIBUTING.md are pages, too. Links to other files
of the checkout lead to the repository if `repo_url` in mkdocs.yml names one, else to copies that
the site holds; a link to a folder is then only its text.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parent.parent
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
}
COPIES = "source/"  # the folder of the site that holds copies of files of the checkout
LINK = re.compile(
    r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?!https?://|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)"
)
FENCE = re.compile(r"^( *```\w+) .*$", re.MULTILINE)
SOURCE = re.compile(r'src="(?!https?://)([^"]+)"')


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root, and the files that pages link to, and that those link to."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text()
        files.append(File.generated(config, page, content=_moved_to_docs(text)))
    pages = [] if config.repo_url else list(files.documentation_pages())
    for file in pages:  # grows: a copied page may have links, too
        for _, path, _ in LINK.findall(file.content_string):
            target = _linked(path, file)
            place = _place(target)
            is_copied = place is not None and place.startswith(COPIES)
            if is_copied and files.get_file_from_path(place) is None:
                copy = File.generated(config, place, abs_src_path=str(ROOT / target))
                files.append(copy)
                if copy.is_documentation_page():
                    pages.append(copy)
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Let links to files of the checkout lead to where the site has them.

    What the tests of the pages read behind the language of a block is left out.
    """
    here = posixpath.dirname(page.file.src_uri)

    def link(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        target = _linked(path, page.file)
        place = _place(target)
        if target.startswith("docs/") and not page.file.src_uri.startswith(COPIES):
            return match[0]  # mkdocs follows it, and checks it
        if config.repo_url and target not in PAGES:
            return f"{text}({config.repo_url.rstrip('/')}/blob/main/{target}{anchor})"
        if place is None:
            return text[1:-1] if (ROOT / target).is_dir() else match[0]
        anchor = "" if place.startswith(COPIES) and not place.endswith(".md") else anchor
        return f"{text}({posixpath.relpath(place, here or '.')}{anchor})"

    return LINK.sub(link, FENCE.sub(r"\1", markdown))


def _linked(path: str, file: File) -> str:
    """The path in the checkout of what a page of the site links to by a relative path."""
    uri = file.src_uri
    source = uri.removeprefix(COPIES) if uri.startswith(COPIES) else f"docs/{uri}"
    return posixpath.normpath(posixpath.join(posixpath.dirname(source), path))


def _place(target: str) -> str | None:
    """Where the site has a file of the checkout; None for folders, and for what is not there."""
    if target in PAGES:
        return PAGES[target]
    if target.startswith("docs/"):
        return target.removeprefix("docs/")
    return COPIES + target if (ROOT / target).is_file() else None


def _moved_to_docs(text: str) -> str:
    """A page of the root with the links that it has as a page of docs/."""

    def moved(path: str) -> str:
        return posixpath.relpath(path, "docs")

    text = LINK.sub(lambda m: f"{m[1]}({moved(m[2])}{m[3] or ''})", text)
    return SOURCE.sub(lambda m: f'src="{moved(m[1])}"', text)
