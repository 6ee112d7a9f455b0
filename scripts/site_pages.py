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
LINK = re.compile(
    r"(!?\[(?:[^\[\]]|\[[^\]]*\])*\])\((?!https?://|#|mailto:)([^)\s#]+)(#[^)\s]*)?\)"
)
FENCE = re.compile(r"^( *```\w+) .*$", re.MULTILINE)
SOURCE = re.compile(r'src="(?!https?://)([^"]+)"')


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root, and the files that pages link to."""
    for name, page in PAGES.items():
        text = (ROOT / name).read_text()
        files.append(File.generated(config, page, content=_moved_to_docs(text)))
    for file in list(files.documentation_pages()):
        if config.repo_url:
            break
        for _, path, _ in LINK.findall(file.content_string):
            target = ROOT / "docs" / path
            name = f"source/{path.removeprefix('../')}"
            is_elsewhere = path.startswith("../") and path[3:] not in PAGES
            if is_elsewhere and target.is_file() and files.get_file_from_path(name) is None:
                files.append(File.generated(config, name, abs_src_path=str(target.resolve())))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, **_: Any) -> str:
    """Let links to files of the checkout lead to where the site has them.

    What the tests of the pages read behind the language of a block is left out.
    """

    def link(match: re.Match[str]) -> str:
        text, path, anchor = match[1], match[2], match[3] or ""
        if not path.startswith("../") or "/" in page.file.src_uri:  # `..` of a tutorial is docs/
            return match[0]
        inside = path[3:]
        if inside in PAGES:
            return f"{text}({PAGES[inside]}{anchor})"
        if config.repo_url:
            return f"{text}({config.repo_url.rstrip('/')}/blob/main/{inside}{anchor})"
        if (ROOT / inside).is_dir():
            return text[1:-1]
        return f"{text}(source/{inside})"

    return LINK.sub(link, FENCE.sub(r"\1", markdown))


def _moved_to_docs(text: str) -> str:
    """A page of the root with the links that it has as a page of docs/."""

    def moved(path: str) -> str:
        return posixpath.relpath(path, "docs")

    text = LINK.sub(lambda m: f"{m[1]}({moved(m[2])}{m[3] or ''})", text)
    return SOURCE.sub(lambda m: f'src="{moved(m[1])}"', text)
