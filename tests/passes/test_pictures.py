"""The Before/After pictures in the docstrings of the passes are executed."""

from __future__ import annotations

import importlib
import pkgutil
import re
import textwrap
from types import ModuleType

import pytest

from octants import passes
from octants.autodiff import forward, reverse
from octants.autodiff.improve import loop_unswitching, narrow_counters, recorded_results
from octants.ir.printer import to_text
from octants.ir.verifier import verify
from octants.simplify import constant_folding_and_cse, dead_code
from tests.ir.parser import parse


def pictures(module: ModuleType) -> list[tuple[str, str]]:
    """The pairs of Before and After texts in a module's docstring, as whole modules."""
    blocks = re.findall(
        r"^(Before|After)::\n\n((?:    .*\n|\n)+)", module.__doc__ or "", re.MULTILINE
    )
    texts = [textwrap.dedent(text).strip() + "\n" for _, text in blocks]
    pairs = zip(texts[::2], texts[1::2], strict=True)
    return [(whole(before), whole(after, before)) for before, after in pairs]


OF_PASSES = [
    (module, name)
    for _, path, _ in pkgutil.walk_packages(passes.__path__, "octants.passes.")
    for module, name in [(importlib.import_module(path), path.rpartition(".")[2])]
    if hasattr(module, name) and "\nAfter::\n" in (module.__doc__ or "")
]
PICTURES = [
    *OF_PASSES,
    (constant_folding_and_cse, "fold"),
    (dead_code, "prune"),
    (reverse, "reverse"),
    (forward, "forward"),
    (recorded_results, "record_results"),
    (loop_unswitching, "make_versions"),
    (narrow_counters, "narrow_counters"),
]
"""The modules with pictures, and the functions that these are of."""

TASK = re.compile(r"^(serial|parallel \((%2: \w+) < (.*)\)) {\n((?:  .*\n)*)}\n", re.MULTILINE)


def whole(text: str, before: str = "") -> str:
    """The text of a module, with what a picture leaves out: `octants.passes` says what that is."""
    if text.startswith("kernel"):
        return text
    if not text.startswith("array"):
        text = TASK.split(before)[0] + text
    return "kernel @k\n" + TASK.sub(_task, text)


def _task(found: re.Match[str]) -> str:
    kind, item, extent, body = found.groups()
    head = "serial @k_0 {\n"
    if kind != "serial":
        bounds = f"  %0: i32 = constant<0>()\n  %1: i32 = {extent}\n  yield(%0, %1)\n"
        head = f"parallel @k_0 {{\n{bounds}}} {{ ({item}):\n"
    return f"{head}{body}  yield()\n}}\n"


@pytest.mark.parametrize(("module", "name"), PICTURES, ids=[name for _, name in PICTURES])
def test_picture(module: ModuleType, name: str) -> None:
    pairs = pictures(module)
    assert pairs
    for before, after in pairs:
        parsed = parse(before)
        verify(parsed)
        transformed = getattr(module, name)(parsed)
        if hasattr(transformed, "module"):
            transformed = transformed.module
        result = parsed if transformed is None else transformed
        verify(result)
        assert to_text(result) == to_text(parse(after)) != to_text(parse(before))
