"""Shrinks a failing program to a smaller one that fails in the same way.

Greedy: every statement is deleted or replaced by its body, every expression by one of its parts or
by a constant, as long as the oracle still accepts the program and the same kinds of problem remain.
"""

from __future__ import annotations

import ast
import copy
from collections.abc import Callable, Iterator

from octants.fuzz.program import Program

Test = Callable[[Program], bool]
Change = Callable[[ast.Module], None]


def shrink(program: Program, fails: Test, budget: int = 400) -> Program:
    """The smallest program found within so many tries."""
    best = program.with_source(ast.unparse(ast.parse(program.source)) + "\n")
    if not fails(best):
        return program
    tree, changes, position, progress = *_changes(best), 0, False
    for _ in range(budget):
        if position >= len(changes):
            if not progress:
                break
            position, progress = 0, False
        candidate = _apply(tree, changes[position]) if changes else None
        if candidate is None or len(candidate) >= len(best.source):
            position += 1
        elif fails(best.with_source(candidate)):
            best, progress = best.with_source(candidate), True
            tree, changes = _changes(best)
        else:
            position += 1
    return _without_unused_arrays(_with_fewer_launches(best, fails), fails)


def _with_fewer_launches(program: Program, fails: Test) -> Program:
    """Drop launches and host writes, last first."""
    for position in reversed(range(len(program.launches))):
        fewer = program.launches[:position] + program.launches[position + 1 :]
        smaller = Program(**{**program.__dict__, "launches": fewer})
        if smaller.kernels and fails(smaller):
            program = smaller
    return program


def _changes(program: Program) -> tuple[ast.Module, list[Change]]:
    tree = ast.parse(program.source)
    return tree, [*_statement_sites(tree), *_expression_sites(tree)]


def _apply(tree: ast.Module, change: Change) -> str | None:
    """The source after a change; None if that is no program."""
    changed = copy.deepcopy(tree)
    change(changed)
    return _text(changed)


def _without_unused_arrays(program: Program, fails: Test) -> Program:
    """Drop arrays that no kernel names."""
    for name in list(program.inputs):
        tree = ast.parse(program.source)
        kept = [node for node in tree.body if not (_is_array(node) and name in _names(node))]
        if any(name in _names(node) for node in kept):
            continue
        if any(name in arguments for _, arguments in program.launches):
            continue
        smaller = program.with_source(ast.unparse(ast.Module(kept, [])) + "\n")
        for part in ("inputs", "weights", "direction"):
            others = {key: value for key, value in getattr(smaller, part).items() if key != name}
            setattr(smaller, part, others)
        if fails(smaller):
            program = smaller
    return program


def _names(node: ast.stmt) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _text(tree: ast.Module) -> str | None:
    try:
        return ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    except (ValueError, AttributeError):
        return None


_Path = tuple[tuple[str, int | None], ...]


def _walk(node: ast.AST, path: _Path = ()) -> Iterator[tuple[_Path, ast.AST]]:
    yield path, node
    for name, value in ast.iter_fields(node):
        if isinstance(value, ast.AST):
            yield from _walk(value, (*path, (name, None)))
        elif isinstance(value, list):
            for number, item in enumerate(value):
                if isinstance(item, ast.AST):
                    yield from _walk(item, (*path, (name, number)))


def _follow(tree: ast.AST, path: _Path) -> ast.AST:
    node = tree
    for name, number in path:
        value = getattr(node, name)
        node = value if number is None else value[number]
    return node


def _replace(path: _Path, make: Callable[[ast.AST], list[ast.stmt] | ast.expr]) -> Change:
    """A change that puts something else where a path leads."""

    def change(tree: ast.Module) -> None:
        parent, (name, number) = _follow(tree, path[:-1]), path[-1]
        new = make(_follow(tree, path))
        if isinstance(new, list):
            body = getattr(parent, name)
            body[number : (number or 0) + 1] = new
            if not body and name == "body":
                body.append(ast.Pass())
        elif number is None:
            setattr(parent, name, new)
        else:
            getattr(parent, name)[number] = new

    return change


# -- statements ------------------------------------------------------------------------------------


def _statement_sites(tree: ast.Module) -> Iterator[Change]:
    """Deletions of statements, large ones first; then bodies in place of what holds them."""
    found = [
        (path, node)
        for path, node in _walk(tree)
        if isinstance(node, ast.stmt) and path and not _is_fixed(node)
    ]
    for path, _ in sorted(found, key=lambda entry: -_size(entry[1])):
        yield _replace(path, lambda _: [])
    for path, node in found:
        if isinstance(node, (ast.If, ast.For, ast.While)):
            yield _replace(path, lambda old: list(getattr(old, "body")))  # noqa: B009
            if node.orelse:
                yield _replace(path, lambda old: list(getattr(old, "orelse")))  # noqa: B009


def _is_fixed(node: ast.AST) -> bool:
    return isinstance(node, (ast.Pass, ast.Import, ast.ImportFrom)) or _is_array(node)


def _is_array(node: ast.AST) -> bool:
    """Arrays and their layouts stay: the program's inputs have their names."""
    text = ast.unparse(node) if isinstance(node, ast.Assign | ast.Expr) else ""
    return any(maker in text for maker in ("field(", "ndarray(", ".place("))


def _size(node: ast.AST) -> int:
    return sum(1 for _ in ast.walk(node))


# -- expressions -----------------------------------------------------------------------------------


def _expression_sites(tree: ast.Module) -> Iterator[Change]:
    """Expressions replaced by their parts or by constants, large ones first."""
    found = [
        (path, node)
        for path, node in _walk(tree)
        if isinstance(node, ast.expr) and _is_value(tree, path) and _size(node) > 1
    ]
    for path, node in sorted(found, key=lambda entry: -_size(entry[1])):
        for number, part in enumerate(ast.iter_child_nodes(node)):
            if isinstance(part, ast.expr) and not isinstance(node, ast.Attribute):
                yield _replace(path, lambda old, k=number: _child(old, k))  # type: ignore[misc]
        yield _replace(path, lambda _: ast.Constant(1))
        yield _replace(path, lambda _: ast.Constant(0.5))


def _child(node: ast.AST, number: int) -> ast.expr:
    part = list(ast.iter_child_nodes(node))[number]
    assert isinstance(part, ast.expr)
    return part


def _is_value(tree: ast.Module, path: _Path) -> bool:
    """Whether an expression stands in a function's body and is not a target or a callee."""
    if len(path) < 3 or path[1][0] != "body":
        return False
    node = tree
    for name, number in path:
        if name in ("targets", "target", "func", "decorator_list", "annotation", "returns"):
            return False
        value = getattr(node, name)
        node = value if number is None else value[number]
    return True
