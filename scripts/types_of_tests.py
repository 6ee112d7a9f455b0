"""Check names, attributes and arguments in tests/ and bench/ by mypy.

    python scripts/types_of_tests.py

`tests/mypy.ini` has the settings. Kernels and funcs are left out: to mypy they are Python, with
annotations that are no types. Classes of structs are dataclasses to it, though they also have the
attributes of struct types, and all their members have defaults. Prints what is wrong; the exit code
is 0 if nothing is.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path

import octants as qd

REPOSITORY = Path(__file__).parent.parent
LANGUAGE = {"kernel", "func", "real_func", "pyfunc", "data_oriented", "dataclass", "struct_class"}
"""Decorators of the language: what they decorate is not checked."""
MESSAGE = re.compile(r"(?P<path>[^:]+):(?P<line>\d+): error: (?P<text>.*)$")
NOT_MEANT = re.compile(
    r"Star unpack"  # `x[(*I, 1)]`, which is no error
    r"|not iterable|\"(NdarrayAnnotation|Template)\" has no"  # functions given to the frontend
    r"|Module has no attribute \"(tools|torch|jax)\""  # imported when they are used
    r"|\"(object|Device)\" has no attribute"  # of parameters of tests, and of one backend's device
    r"|\"(type\[float\]|NDArray\[.*\])\" has no attribute"  # types of the language, numpy's arrays
    r"|\"(Kernel|Func)\[.*\]\" has no attribute \"__"  # of the function
    r"|\"__call__\" of \"(Kernel|BoundKernel|Gradient)\""  # `qd_stream`, and calls that are errors
)
ABOUT_CLASS = re.compile(
    r"Missing positional arguments? .* in call to \"(?P<called>\w+)\""
    r"|\"type\[(?P<owner>\w+)\]\" has no attribute \"(?P<attribute>\w+)\""
)
"""What mypy says of a class of structs, which is a dataclass to it."""
A_TYPE = qd.types.struct(member=qd.f32)
LEFT_OUT = "tests/compat/programs", "tests/type_checkers"
"""Programs of peers, whose functions have attributes; mistakes for a test of its own."""


@functools.cache
def lines_of_kernels(path: Path) -> frozenset[int]:
    """The lines of a file that are of kernels, funcs, and classes of the language."""
    nodes = [
        node
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
        and any(_name(mark) in LANGUAGE for mark in node.decorator_list)
    ]
    return frozenset(line for n in nodes for line in range(n.lineno, (n.end_lineno or 0) + 1))


@functools.cache
def classes_of_structs(path: Path) -> frozenset[str]:
    """The names of the classes of a file that `octants.dataclass` makes struct types."""
    return frozenset(
        node.name
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        and any(ast.unparse(mark) == "qd.dataclass" for mark in node.decorator_list)
    )


def is_right_of_structs(text: str, path: Path) -> bool:
    """Whether a message is about what a class of structs can do, and a dataclass cannot."""
    match = ABOUT_CLASS.search(text)
    if match is None or (match["called"] or match["owner"]) not in classes_of_structs(path):
        return False
    return not match["attribute"] or hasattr(A_TYPE, match["attribute"])


def _name(mark: ast.expr) -> str:
    """The last name of a decorator: "kernel" for ``@qd.kernel(graph=True)``."""
    called = mark.func if isinstance(mark, ast.Call) else mark
    return called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")


def wrong(output: str, repository: Path = REPOSITORY) -> list[str]:
    """The messages of mypy that are about Python."""
    found = []
    for line in output.splitlines():
        match = MESSAGE.match(line)
        if match is None or NOT_MEANT.search(line):
            continue
        path = repository / match["path"]
        if path.is_relative_to(repository / "src"):  # checked on its own, by stricter settings
            continue
        if any(path.is_relative_to(repository / folder) for folder in LEFT_OUT):
            continue
        is_checked = int(match["line"]) not in lines_of_kernels(path)
        if is_checked and not is_right_of_structs(match["text"], path):
            found.append(line)
    return found


def main() -> int:
    """Run mypy and print what is wrong."""
    command = [sys.executable, "-m", "mypy", "--config-file", "tests/mypy.ini", "tests", "bench"]
    result = subprocess.run(command, cwd=REPOSITORY, capture_output=True, text=True, check=False)
    if result.returncode > 1 or result.stderr:
        print(result.stdout + result.stderr)
        return 2
    found = wrong(result.stdout)
    print("\n".join([*found, f"{len(found)} wrong in tests/ and bench/"]))
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
