"""Give a checkout the address of its repository, and check that it is the version of a tag.

    python scripts/prepare_release.py https://github.com/OWNER/NAME v0.1.0

PyPI's page has no files beside it: links and pictures of the README become absolute, those of the
tag. `pyproject.toml` gets the addresses that PyPI shows. The release workflow runs this before the
build; the changes are not committed.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?://|#)([^)\s]+)\)")
IMAGE = re.compile(r'src="(?!https?://)([^"]+)"')


def absolute(text: str, repository: str, tag: str) -> str:
    """A page whose links and pictures are those of a tag of the repository."""

    def link(match: re.Match[str]) -> str:
        view = "raw" if match[1] else "blob"
        return f"{match[1]}{match[2]}({repository}/{view}/{tag}/{match[3]})"

    return IMAGE.sub(rf'src="{repository}/raw/{tag}/\1"', LINK.sub(link, text))


def urls(repository: str) -> str:
    """The table of addresses for `pyproject.toml`."""
    pages = {
        "Homepage": repository,
        "Documentation": f"{repository}/tree/main/docs",
        "Changelog": f"{repository}/blob/main/CHANGELOG.md",
        "Issues": f"{repository}/issues",
    }
    return "[project.urls]\n" + "".join(f'{name} = "{page}"\n' for name, page in pages.items())


def prepare(root: Path, repository: str, tag: str) -> None:
    """Change the README and `pyproject.toml` of a checkout.

    Raises:
        SystemExit: If the tag is not that of the version.
    """
    found = re.search(r'__version__ = "(.+)"', (root / "src/octants/version.py").read_text())
    version = found[1] if found else ""
    if tag != f"v{version}":
        raise SystemExit(f"the tag is {tag}, the version {version}")
    readme, project = root / "README.md", root / "pyproject.toml"
    readme.write_text(absolute(readme.read_text(), repository, tag))
    text = project.read_text()
    if "[project.urls]" not in text:
        text = text.replace("[project.scripts]", f"{urls(repository)}\n[project.scripts]")
    project.write_text(text)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    prepare(ROOT, sys.argv[1].rstrip("/"), sys.argv[2])
