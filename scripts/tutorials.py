"""A hook of mkdocs: runs the tutorials, and makes pages of them, with notebooks to download.

A tutorial is a script in docs/tutorials, in cells: a line ``# %% [markdown]`` begins text, ``# %%``
begins code. Jupyter's kernel runs them, and what a cell prints or draws is on the page. An error
in a cell ends the build.

    python scripts/tutorials.py FOLDER        writes the executed notebooks to a folder
"""

from __future__ import annotations

import base64
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.structure.files import File
from nbclient import NotebookClient

FOLDER = Path(__file__).parent.parent / "docs" / "tutorials"
SECONDS = 60  # for a cell
CELL = re.compile(r"^# %%( \[markdown\])?\n", re.MULTILINE)


def cells(text: str) -> Iterator[tuple[str, str]]:
    """The cells of a script: "markdown" or "code", and the text."""
    before, *parts = CELL.split(text)
    if before.strip():
        raise ValueError(f"a tutorial begins with a cell, not with {before[:40]!r}")
    for mark, body in zip(parts[::2], parts[1::2], strict=True):
        if not mark:
            yield "code", body.strip("\n")
            continue
        lines = body.strip("\n").splitlines()
        if not all(line.startswith("# ") or line == "#" for line in lines):
            raise ValueError(f"a cell of text has a line that is no comment: {body!r}")
        yield "markdown", "\n".join(line[2:] for line in lines)


def executed(script: Path) -> Any:
    """The notebook of a script, with what its cells print and draw.

    Raises:
        CellExecutionError: a cell raises an error.
    """
    notebook = nbformat.v4.new_notebook(
        metadata={"kernelspec": {"name": "python3", "display_name": "Python 3"}}
    )
    for number, (kind, text) in enumerate(cells(script.read_text())):
        make = nbformat.v4.new_code_cell if kind == "code" else nbformat.v4.new_markdown_cell
        notebook.cells.append(make(text, id=f"{script.stem}-{number}"))
    with tempfile.TemporaryDirectory() as folder:
        resources = {"metadata": {"path": folder}}
        quiet = ["--IPKernelApp.log_level=ERROR"]
        NotebookClient(
            notebook, timeout=SECONDS, resources=resources, extra_arguments=quiet
        ).execute()
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # the times of day
    return notebook


def page(notebook: Any, name: str) -> tuple[str, dict[str, bytes]]:
    """The page of a notebook as Markdown, and its pictures by name."""
    parts, pictures = [], {}
    for cell in notebook.cells:
        parts.append(
            cell.source if cell.cell_type == "markdown" else _fenced(cell.source, "python")
        )
        for output in cell.get("outputs", ()):
            data = output.get("data", {})
            if "image/png" in data:
                picture = f"{name}-{len(pictures) + 1}.png"
                pictures[picture] = base64.b64decode(data["image/png"])
                parts.append(f"![what the cell draws]({picture})")
            elif text := output.get("text") or data.get("text/plain"):
                parts.append(_fenced(text.rstrip(), "text"))
    title, *rest = parts
    heading, _, introduction = title.partition("\n")
    note = f"*Run it yourself: [script](source/{name}.py), [notebook]({name}.ipynb).*"
    return "\n\n".join([heading, note, introduction.strip(), *rest]) + "\n", pictures


def _fenced(text: str, language: str) -> str:
    return f"```{language}\n{text}\n```"


def on_files(files: Any, config: Any) -> Any:
    """Replace each script by its page, its pictures, its notebook and a copy of it."""
    for script in sorted(FOLDER.glob("*.py")):
        name = script.stem
        files.remove(files.get_file_from_path(f"tutorials/{name}.py"))
        notebook = executed(script)
        text, pictures = page(notebook, name)
        made: dict[str, str | bytes] = {
            f"{name}.md": text,
            f"{name}.ipynb": nbformat.writes(notebook),
        }
        made |= {f"source/{name}.py": script.read_text(), **pictures}
        for path, content in made.items():
            files.append(File.generated(config, f"tutorials/{path}", content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Let links to the scripts lead to their pages."""
    return re.sub(r"\((tutorials/\w+)\.py\)", r"(\1.md)", markdown)


def main(folder: Path) -> None:
    """Write the executed notebooks to a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    for script in sorted(FOLDER.glob("*.py")):
        nbformat.write(executed(script), folder / f"{script.stem}.ipynb")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
