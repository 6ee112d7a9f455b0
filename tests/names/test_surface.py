"""What Quadrants' public names take, have and return, Octants' do too, but for DIFFERENCES.

`quadrants_public.txt` and `quadrants_results.txt` are what `scripts/quadrants_surface.py` lists of
Quadrants 1.3.3. Where Quadrants is installed, tests compare it with the lists.
"""

from __future__ import annotations

import enum
import fnmatch
import functools
import importlib.util
import inspect
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import octants as qd
from tests.names.test_absent_names import patterns as absent_names

HERE = Path(__file__).parent
SCRIPT = HERE.parent.parent / "scripts" / "quadrants_surface.py"
LINES = (HERE / "quadrants_public.txt").read_text().splitlines()
RESULTS = (HERE / "quadrants_results.txt").read_text().splitlines()

DIFFERENCES = {
    # Objects that programs get by other calls than that of their class.
    "qd.*Field(*": "made by `qd.field`",
    "qd.SNode(*": "made by `root.dense`",
    "qd.Stream(*": "made by `create_stream`",
    "qd.Event(*": "made by `create_event`",
    # Parts of that compiler that have public names.
    "<*>.host_accessor": "how a field is read from the host",
    "<*>.host_accessors": "how a field is read from the host",
    "<*>.is_host_access": "how a field is read from the host",
    "<*>.vars": "expressions of that compiler",
    "<*>.ptr": "expressions of that compiler",
    "<dtype>.*": "expressions of that compiler",
    "<*>.wrapper*": "how a decorator keeps its function",
    "<*>.fn*": "how a decorator keeps its function",
    "<*>.is_pure": "how a decorator keeps its function",
    "<func>.grad": "an attribute of each decorated function; a func has none",
    "<func>.resume*": "an attribute of each decorated function; a func has none",
    "<kernel>.*": "how a decorator keeps its function",
    "<builder>.empty": "progress of a builder",
    "<builder>.finalized": "progress of a builder",
    "<builder>.root": "the blocks of a builder are made by its methods",
    "<* type>.*": "how a type passes values to that compiler, and gets them back",
    "<ndrange>.*": "how that compiler runs through it",
    "<quantised *>.to_string": "print the type",
    "qd.types.*.check_matched*": "how that compiler matches an argument",
    "qd.types.*.to_dlpack*": "of the annotation; arrays have it",
    "qd.*.subscript*": "how that compiler indexes",
    "qd.QuadrantsRuntimeTypeError.get*": "how that compiler words an error",
    "qd.tools.*PLYWriter.print_header*": "a part of `export`",
    "qd.simt.block.make_expr_group*": "a helper of that compiler",
    "qd.simt.block.quadrants_scope*": "a helper of that compiler",
    "qd.init(*": "options but the first three have to be named; `_test_mode` is private",
    # A decorator stands above a function, and is given it by position.
    "qd.kernel(*": "a decorator",
    "qd.func(*": "a decorator",
    "qd.pure(*": "a decorator",
    "qd.pyfunc(*": "a decorator",
    "*real_func(*": "a decorator",
    "qd.ad.no_grad(*": "a decorator",
    "qd.ad.grad_replaced(*": "a decorator",
    # What means nothing without it, or is `self`.
    "qd.types.vector(*": "a vector has a length",
    "qd.types.matrix(*": "a matrix has a shape",
    "qd.linalg.*SparseMatrixBuilder(*": "a matrix has a shape",
    "*.determinant(a)": "`self`",
    "<root>.parent*": "the root has no parent",
    "*ensor*.fill(*value)": "`val`, as that of fields and ndarrays",
    "qd.static_print*": "it prints as `print` does",
    "qd.MatrixTensor.*": "an annotation; what `qd.Matrix.tensor` makes has it",
    "qd.VectorTensor.*": "an annotation; what `qd.Vector.tensor` makes has it",
    "<struct field>.dtype": "members have it",
    "<struct field>.layout": "members have it",
    "<struct field>.struct_methods": "methods are those of the elements",
    "<struct field>.to_dlpack*": "members have it",
    "qd.StructField.to_dlpack*": "members have it",
    # Better errors.
    "qd.ad.*.insert*": "an error that says what to do",
    "qd.ad.FwdMode.recover_kernels*": "an error that says what to do",
}
"""Patterns of lines that Octants need not have, and why."""


OTHER_DEFAULTS = {
    "*.field(methods)": "None is {}",
    "*.field(name)": "no name is shown where there is none",
    "*emplate(element_type)": "None is any type",
    "qd.linalg.*(dtype)": "f32, the same; None is the type of the matrix",
}
"""Parameters whose defaults differ, and why."""

OTHER_RESULTS = {
    "<*field>.dual: *Field": "None without a dual",
    "<struct field>.grad: StructField": "None without a gradient",
    "<block>.parent(): _Root": "an `SNode` like any block",
    "<block>.ptr: SNodeCxx": "the block itself: there is no other object",
    "<builder>.place(): NoneType": "the block, as that of a block",
}
"""Members of another type, and why."""


@functools.cache
def surface() -> Any:
    spec = importlib.util.spec_from_file_location("quadrants_surface", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@functools.cache
def made(prefix: str) -> Any:
    return eval(surface().OBJECTS[prefix], {"qd": qd, "kernel": surface().kernel})


def found(name: str) -> Any:
    """What a name stands for here; a method of a class with its ``self``."""
    of_object = re.fullmatch(r"(<.*>)\.(\w+)", name)
    if of_object:
        return getattr(made(of_object[1]), of_object[2])
    *path, last = name.split(".")[1:]
    owner = functools.reduce(getattr, path, qd)
    value = getattr(owner, last)
    if isinstance(owner, type) and not isinstance(value, type):
        static = inspect.getattr_static(owner, last)
        return value if isinstance(static, (staticmethod, classmethod)) else static
    return value


def parameters(text: str) -> list[str]:
    """The parameters of a line, in order; defaults that are tuples hold no commas."""
    return [one for one in text.split("(", 1)[1][:-1].split(", ") if one]


def fits(theirs: str, ours: Any) -> bool:
    """Whether each call that Quadrants' parameters allow binds the same arguments here.

    `*args` with `**kwargs` are passed on there, and have names here.
    """
    if isinstance(ours, enum.EnumMeta):
        return True  # each version of Python describes the constructor of an enumeration otherwise
    try:
        own = inspect.signature(ours).parameters
    except (TypeError, ValueError):
        return True  # as little is known of it as of a C function
    kinds = {p.kind for p in own.values()}
    takes_any = inspect.Parameter.VAR_KEYWORD in kinds
    takes_more = inspect.Parameter.VAR_POSITIONAL in kinds
    by_position = [p for p in own.values() if p.kind <= p.POSITIONAL_OR_KEYWORD]
    is_named = False
    needed = {p.name for p in own.values() if p.default is p.empty and p.kind not in (2, 4)}
    for position, one in enumerate(parameters(theirs)):
        name, _, default = one.partition("=")
        if name.startswith("**"):
            continue
        if name.startswith("*"):
            is_named = True
            if name != "*" and not takes_more and "**" not in theirs:
                return False
            continue
        if name in own:
            needed.discard(name)
            if default and own[name].default is inspect.Parameter.empty:
                return False
        elif not takes_any:
            return False
        if not is_named and not takes_more:
            if position >= len(by_position) or by_position[position].name != name:
                return False
    return not needed or takes_more


@functools.cache
def differing() -> list[str]:
    """The lines that Octants does not fit; a class, an object or a module that is absent is one."""
    qd.init(arch=qd.cpu, log_level="error")
    lines: list[str] = []
    absent: set[str] = set()
    for line in LINES:
        name = line.partition("(")[0]
        if name.rpartition(".")[0] in absent:
            absent.add(name)
            continue
        try:
            value = found(name)
        except (AttributeError, qd.OctantsError):
            absent.add(name)
            lines.append(line)
        else:
            if "(" in line and not fits(line, value):
                lines.append(line)
    return lines


def test_what_differs_has_a_reason() -> None:
    patterns = [*DIFFERENCES, *(f"{one}*" for row in absent_names() for one in row)]
    lines = [line for line in differing() if not matches(line, patterns)]
    assert lines == []
    for one in DIFFERENCES:
        assert fnmatch.filter(differing(), one), f"{one} does not differ"
    assert len(LINES) > 1300


def matches(line: str, patterns: list[str]) -> bool:
    return any(fnmatch.fnmatchcase(line, one) for one in patterns)


@pytest.mark.parametrize(
    ("theirs", "ours", "is_fit"),
    [
        ("f(a, b=1)", lambda a, b=2, c=3: None, True),
        ("f(a, b=1)", lambda b, a=2: None, False),
        ("f(a, b=1)", lambda a, b: None, False),
        ("f(a)", lambda x: None, False),
        ("f(a)", lambda a, b: None, False),
        ("f(a, b)", lambda a, **named: None, False),
        ("f(*, b=1)", lambda a=0, b=1: None, True),
        ("f(*things)", lambda *others: None, True),
        ("f(*things)", lambda others: None, False),
    ],
)
def test_calls_that_fit(theirs: str, ours: Any, is_fit: bool) -> None:
    assert fits(theirs, ours) == is_fit


@pytest.mark.skipif(
    importlib.util.find_spec("quadrants") is None, reason="compares with the installed Quadrants"
)
def test_the_list_is_that_of_the_installed_quadrants() -> None:
    found = subprocess.run(
        [sys.executable, str(SCRIPT)], capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines() == LINES


def defaults() -> list[str]:
    """The parameters with a default that have another one here, as ``name(parameter)``."""
    other = []
    for line in LINES:
        name = line.partition("(")[0]
        if line in differing() or "=" not in line:
            continue
        try:
            own = inspect.signature(found(name)).parameters
        except (AttributeError, TypeError, ValueError, qd.OctantsError):
            continue
        for one in parameters(line):
            parameter, _, theirs = one.partition("=")
            ours = own[parameter].default if theirs and parameter in own else None
            if theirs and parameter in own and surface().default(ours) != f"={theirs}":
                other.append(f"{name}({parameter})")
    return other


def test_other_defaults_have_a_reason() -> None:
    assert [one for one in defaults() if not matches(one, [*OTHER_DEFAULTS])] == []
    for one in OTHER_DEFAULTS:
        assert fnmatch.filter(defaults(), one), f"{one} does not differ"


def test_everything_has_a_docstring() -> None:
    lines = [line.partition("(")[0] for line in LINES if line not in differing() and "(" in line]
    without = []
    for name in lines:
        try:
            value = found(name)
        except (AttributeError, qd.OctantsError):
            continue
        if not (getattr(value, "__doc__", None) or "").strip():
            without.append(name)
    assert without == []
    assert len(lines) > 500


@functools.cache
def other_results() -> list[str]:
    """The lines of RESULTS of which Octants has the name, and another type."""
    ours = dict(surface().results(qd))
    other = []
    for line in RESULTS:
        name, _, theirs = line.partition(": ")
        if "Tensor" in theirs and importlib.util.find_spec("torch") is None:
            continue
        kinds = [kind.replace("Octants", "Quadrants") for kind in ours.get(name, [theirs])]
        if theirs not in kinds and not theirs.startswith("raises "):
            other.append(line)
    return other


def test_other_results_have_a_reason() -> None:
    assert [
        one for one in other_results() if not matches(one, [*OTHER_RESULTS, *DIFFERENCES])
    ] == []
    for one in OTHER_RESULTS:
        assert fnmatch.filter(other_results(), one), f"{one} does not differ"
    assert len(RESULTS) > 200


@pytest.mark.skipif(
    importlib.util.find_spec("quadrants") is None, reason="compares with the installed Quadrants"
)
def test_the_results_are_those_of_the_installed_quadrants() -> None:
    found = subprocess.run(
        [sys.executable, str(SCRIPT), "results"], capture_output=True, text=True, check=True
    )
    assert found.stdout.splitlines() == RESULTS
