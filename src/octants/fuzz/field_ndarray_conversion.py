"""Transforms programs without changing results: ndarrays to fields, and fields to ndarrays."""

from __future__ import annotations

import ast

from octants.fuzz.program import HOST_WRITES, Program, Text


def as_fields(program: Program) -> Program | None:
    """The program with a field in place of each ndarray, passed as a template."""
    if "qd.BufferView" in program.source or "boundary=" in program.source:  # of ndarrays only
        return None
    tree = ast.parse(program.source)
    changed = False
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == "ndarray":
            node.attr = "field"
            changed = True
        annotated = node.annotation if isinstance(node, ast.arg | ast.AnnAssign) else None
        if annotated is not None and "ndarray(" in ast.unparse(annotated):
            node.annotation = ast.parse("qd.template()", mode="eval").body  # type: ignore[attr-defined]
    return program.with_source(ast.unparse(tree) + "\n") if changed else None


def as_ndarrays(program: Program) -> Program | None:
    """The program with an ndarray in place of each field that only kernels name."""
    tree = ast.parse(program.source)
    made = [node for node in tree.body if isinstance(node, ast.Assign) and _is_movable(node)]
    kernels = {n.name: n for n in tree.body if isinstance(n, ast.FunctionDef) and _is_kernel(n)}
    others = [node for node in tree.body if node not in made and node not in kernels.values()]
    taken = {name for node in others for name in _names(node)}
    given = {text for _, values in program.launches for text in values if isinstance(text, str)}
    moved = {
        name: node
        for node in made
        if (name := ast.unparse(node.targets[0])) not in taken | given
        and any(name in _names(kernel) for kernel in kernels.values())
        and "." not in name
    }
    if not moved or any(isinstance(v, Text) for _, values in program.launches for v in values):
        return None
    annotations = {name: _become_ndarray(node) for name, node in moved.items()}
    added: dict[str, list[str]] = {}
    for name, kernel in kernels.items():
        added[name] = [one for one in moved if one in _names(kernel)]
        for one in added[name]:
            annotation = ast.parse(annotations[one], mode="eval").body
            kernel.args.args.append(ast.arg(one, annotation))
    launches = [(k, (*values, *added.get(k, ()))) for k, values in program.launches]
    source = ast.unparse(ast.fix_missing_locations(tree)) + "\n"
    return Program(**{**program.__dict__, "source": source, "launches": launches})


def _is_movable(node: ast.Assign) -> bool:
    """Whether a statement makes a field that an ndarray can stand for."""
    text = ast.unparse(node.value)
    shape = "shape=" in text and "shape=()" not in text
    plain = "layout=" not in text and "order=" not in text
    return text.startswith("qd.") and ".field(" in f".{text}" and shape and plain


def _is_kernel(node: ast.FunctionDef) -> bool:
    return any(ast.unparse(mark) == "qd.kernel" for mark in node.decorator_list)


def _names(node: ast.AST) -> set[str]:
    return {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}


def _become_ndarray(node: ast.Assign) -> str:
    """Change the statement that makes a field; gives the annotation of the argument."""
    call = node.value
    assert isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute)
    call.func.attr = "ndarray"
    texts = [ast.unparse(argument) for argument in call.args]
    shape = next(k.value for k in call.keywords if k.arg == "shape")
    rank = len(shape.elts) if isinstance(shape, ast.Tuple) else 1
    maker = {1: "{}", 2: "qd.types.vector({}, {})", 3: "qd.types.matrix({}, {}, {})"}[len(texts)]
    return f"qd.types.ndarray({maker.format(*texts)}, {rank})"


def ndarrays_of(program: Program) -> list[str]:
    """Names of ndarrays; none if the host writes one, or if other arrays share their memory."""
    if "qd.BufferView" in program.source or "qd.from_dlpack" in program.source:
        return []
    tree = ast.parse(program.source)
    names = [
        ast.unparse(node.targets[0])
        for node in tree.body
        if isinstance(node, ast.Assign) and "ndarray(" in ast.unparse(node.value)
    ]
    written = {
        name
        for kernel, values in program.launches
        if kernel in HOST_WRITES
        for name in values[:2]
        if isinstance(name, str)
    }
    return [] if written & set(names) else names
