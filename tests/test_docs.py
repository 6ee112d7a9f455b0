"""The code on every page runs, prints what the page says, and no link leads nowhere.

The ``python`` blocks of a page run in order in one namespace, in a process of its own. A ``text``
block right after one of them is what it prints; ``...`` in it stands for anything. A block that
begins with ```` ```python needs=torch ```` is left out where that is not installed, and one with
``needs=vulkan`` where there is no such device. Those with ``needs=several_gpus`` run in
``tests/api/test_several_devices.py``.
"""

from __future__ import annotations

import doctest
import importlib.util
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scripts import api_reference

from octants.backends.table import obstacle_to
from octants.target import Arch
from tests.devices import ON_GPU

REPOSITORY = Path(__file__).parent.parent
PAGES = [REPOSITORY / "README.md", *sorted((REPOSITORY / "docs").glob("*.md"))]
MARK = "=== block ==="

FENCE = re.compile(r"^```(\w*)(?: needs=(\w+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Snippet:
    """A block of code, and what it prints if the page says so."""

    line: int
    code: str
    output: str | None


def snippets_of(text: str) -> list[Snippet]:
    fences = list(FENCE.finditer(text))
    result = []
    for number, fence in enumerate(fences):
        if fence[1] != "python" or (fence[2] and not is_here(fence[2])):
            continue
        after = fences[number + 1] if number + 1 < len(fences) else None
        says = (
            after is not None
            and after[1] == "text"
            and not text[fence.end() : after.start()].strip()
        )
        output = after[3] if after is not None and says else None
        result.append(Snippet(text.count("\n", 0, fence.start()) + 1, fence[3], output))
    return result


def is_here(need: str) -> bool:
    """Whether there is a device for an arch, or a package."""
    if need in Arch.__members__:
        return not obstacle_to(need)
    return importlib.util.find_spec(need) is not None


def run(snippets: list[Snippet], folder: Path, name: str) -> list[str]:
    """What each snippet prints."""
    script = folder / f"{name}.py"
    parts = (f"print({MARK!r}, flush=True)\n{snippet.code}" for snippet in snippets)
    script.write_text("\n".join(parts))
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    result = subprocess.run(
        [sys.executable, script.name],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout.split(MARK + "\n")[1:]


def same_text(expected: str, printed: str) -> bool:
    flags = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    return doctest.OutputChecker().check_output(expected.strip(), printed.strip(), flags)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_page_does_what_it_says(page: Path, tmp_path: Path) -> None:
    is_of_the_cpu = page.name in ("architecture.md", "profiler.md") or "inside" in page.name
    if is_of_the_cpu and ON_GPU:
        pytest.skip("it shows what the CPU runs, and in which order its times are")
    snippets = snippets_of(page.read_text())
    for snippet, printed in zip(snippets, run(snippets, tmp_path, page.stem), strict=True):
        if snippet.output is not None:
            where = f"{page.name}:{snippet.line}"
            assert same_text(snippet.output, printed), f"{where} prints\n{printed}"


def test_first_pages_show_code() -> None:
    for name in ("README", "getting-started", "language", "autodiff"):
        (page,) = (page for page in PAGES if page.stem == name)
        assert snippets_of(page.read_text()), page


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    text = FENCE.sub("", page.read_text())
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        path, _, anchor = target.partition("#")
        if "://" in target:
            continue
        file = (page.parent / path) if path else page
        assert file.exists(), f"{page.name}: {target}"
        if anchor:
            assert anchor in anchors(file.read_text()), f"{page.name}: {target}"


def anchors(text: str) -> set[str]:
    """The anchors that the headings of a page give, as GitHub makes them."""
    headings = re.findall(r"^#+ +(.*)$", FENCE.sub("", text), re.MULTILINE)
    plain = (re.sub(r"[^\w\- ]", "", heading.lower()) for heading in headings)
    return {heading.strip().replace(" ", "-") for heading in plain}


SYSTEMS = ("octants", "by hand", "quadrants", "taichi", "warp", "jax")


def test_speed_in_the_readme_was_measured() -> None:
    text = (REPOSITORY / "README.md").read_text()
    files = dict(re.findall(r"\[(CPU|GPU)\]\((bench/results/[\w.-]+)\)", text))
    results = {which: json.loads((REPOSITORY / file).read_text()) for which, file in files.items()}
    rows = re.findall(r"^\| (\w+) \| (CPU, one thread|H200) \| (.*) \|$", text, re.MULTILINE)
    assert len(rows) == 6
    for workload, machine, cells in rows:
        which = "CPU" if machine.startswith("CPU") else "GPU"
        measured = gradient_times(results[which], workload)
        for system, cell in zip(SYSTEMS, cells.split(" | "), strict=True):
            if cell in ("-", "failed"):
                assert system not in measured, (workload, system)
                continue
            number = float(cell.strip("*ms "))
            exact = measured[system] / (1 if system == "octants" else measured["octants"])
            assert number == pytest.approx(exact, rel=0.01), (workload, machine, system)


def gradient_times(results: Any, workload: str) -> dict[str, float]:
    """Milliseconds of a backward run, by the system."""
    (row,) = (
        row
        for row in results["rows"]
        if row["measure"] == "backward" and row["subject"].split(",")[0] == workload
    )
    which = "least" if "cuda" in row["numbers"] else "median"
    times = {
        system: numbers[which]
        for system, numbers in row["numbers"].items()
        if isinstance(numbers, dict)
    }
    times["by hand"] = times.pop("cuda", None) or times.pop("c-simd")
    return times


def test_commands_of_the_pages_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (REPOSITORY / "Makefile").read_text(), re.MULTILINE))
    for page in PAGES:
        for command in re.findall(
            r"\bmake ([a-z-]+)`|^make ([a-z-]+)$", page.read_text(), re.MULTILINE
        ):
            assert (command[0] or command[1]) in targets, f"{page.name}: make {command}"


def test_reference_is_up_to_date() -> None:
    written = (REPOSITORY / "docs" / "api.md").read_text()
    assert written == api_reference.page(), "make docs writes docs/api.md"


def test_a_wrong_output_is_noticed(tmp_path: Path) -> None:
    text = "```python\nx = 1\n```\n\n```python\nprint(x, 2)\n```\n\n```text\n1 3\n```\n"
    snippets = snippets_of(text)
    assert [snippet.output for snippet in snippets] == [None, "1 3\n"]
    printed = run(snippets, tmp_path, "page")
    assert printed[1] == "1 2\n"
    assert not same_text("1 3\n", printed[1])
    assert same_text("1 ...\n", printed[1])
