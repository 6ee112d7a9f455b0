"""What tests that patch name of Octants' internals exists.

Tests put faults into the compiler by `monkeypatch.setattr(Backward, "_reverse_if", ...)`, and many
of these run seldom. So the names are looked up here, without running them: the attributes of
modules and classes that such a file imports, the texts given to `setattr`, and keys of tables.
`scripts/types_of_tests.py` checks what objects have, and arguments.
"""

from __future__ import annotations

import ast
import functools
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

REPOSITORY = Path(__file__).parent.parent
MISSING = object()


@functools.cache
def imported(module: str, name: str | None = None) -> Any:
    """A module of Octants, or what another one imports from it."""
    try:
        found = importlib.import_module(module)
    except ImportError:
        return MISSING
    return found if name is None else attribute(found, name)


def attribute(owner: Any, name: str) -> Any:
    """What an owner has of that name, a submodule perhaps; MISSING if it has none."""
    if hasattr(owner, name):
        return getattr(owner, name)
    if hasattr(owner, "__path__"):
        return imported(f"{owner.__name__}.{name}")
    return MISSING


def internals(nodes: list[ast.AST]) -> dict[str, Any]:
    """The modules and classes of Octants that a file imports, and never binds otherwise."""
    found: dict[str, Any] = {}
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and not is_read(n)}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("octants"):
            for one in node.names:
                found[one.asname or one.name] = imported(node.module or "", one.name)
    return {name: value for name, value in found.items() if name not in bound}


def is_read(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Load)


def looked_up(node: ast.expr, known: dict[str, Any]) -> Any:
    """What an expression of names stands for; None if that is not known before it runs."""
    if isinstance(node, ast.Name):
        return known.get(node.id)
    if isinstance(node, ast.Attribute):
        owner = looked_up(node.value, known)
        is_owner = isinstance(owner, type) or hasattr(owner, "__path__") or is_module(owner)
        return attribute(owner, node.attr) if owner is not MISSING and is_owner else None
    return None


def exists(name: str) -> bool:
    """Whether a dotted name stands for something."""
    package, *rest = name.split(".")
    return functools.reduce(attribute, rest, imported(package)) is not MISSING


def is_module(value: Any) -> bool:
    return isinstance(value, type(ast))


def has_field(owner: Any, name: str) -> bool:
    """Whether a class declares an attribute that its objects have."""
    return any(name in getattr(one, "__annotations__", {}) for one in getattr(owner, "__mro__", ()))


def wrong_names(path: Path, text: str) -> Iterator[str]:
    """The names in a file that stand for nothing."""
    nodes = list(ast.walk(ast.parse(text)))
    known = internals(nodes)
    for node in nodes:
        where = f"{path.name}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Attribute) and looked_up(node, known) is MISSING:
            if not has_field(looked_up(node.value, known), node.attr):
                yield f"{where}: {ast.unparse(node)}"
        if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
            continue
        if len(node.args) < 2 or any(k.arg == "raising" for k in node.keywords):
            continue
        first, second = node.args[:2]
        if node.func.attr == "setattr" and isinstance(second, ast.Constant):
            owner = looked_up(first, known)
            if owner is not None and attribute(owner, second.value) is MISSING:
                if not has_field(owner, second.value):
                    yield f"{where}: {ast.unparse(first)}.{second.value!s}"
        if node.func.attr == "setattr" and isinstance(first, ast.Constant):
            if first.value.startswith("octants.") and not exists(first.value):
                yield f"{where}: {first.value!s}"
        if node.func.attr == "setitem":
            table, key = looked_up(first, known), looked_up(second, known)
            if isinstance(table, dict) and isinstance(key, type) and key not in table:
                yield f"{where}: {ast.unparse(first)}[{ast.unparse(second)}]"


def test_names_in_files_that_patch_exist() -> None:
    files = {path: path.read_text() for path in sorted((REPOSITORY / "tests").rglob("*.py"))}
    patching = {k: v for k, v in files.items() if "setattr(" in v or "setitem(" in v}
    assert len(patching) > 50
    assert not [problem for path, text in patching.items() for problem in wrong_names(path, text)]


def test_a_wrong_name_is_found() -> None:
    text = """\
from octants.autodiff.emit import backward_sweep
from octants.autodiff.emit.backward_sweep import Backward
from octants.ir import ops

def stale(patch):
    patch.setattr(Backward, "_reverse_nothing", None)
    patch.setattr(Backward, "_reverse_loop", None)
    patch.setattr(Backward, "depth", 0, raising=False)
    patch.setattr("octants.autodiff.reverse.nothing", None)
    patch.setitem(backward_sweep._REVERSE, ops.Shape, None)
    patch.setitem(backward_sweep._REVERSE, ops.Nothing, None)
    return Backward._reversed_if
"""
    found = [problem.partition(": ")[2] for problem in wrong_names(Path("stale.py"), text)]
    assert sorted(found) == [
        "Backward._reverse_nothing",
        "Backward._reversed_if",
        "backward_sweep._REVERSE[ops.Shape]",
        "octants.autodiff.reverse.nothing",
        "ops.Nothing",
    ]
