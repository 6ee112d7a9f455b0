"""Where the source of functions is found, and where errors point to."""

from __future__ import annotations

import ast
import contextlib
import linecache
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from octants.diagnostics.exceptions import OctantsCompilationError, OctantsError
from octants.frontend import build
from octants.frontend.syntax.source import find_source
from octants.types.scalars import f32, i32
from octants.types.specialisation_signature import ScalarType
from tests.frontend.frontend_programs import compile_kernel, define, func, launch


def decorated(*_: Any, **__: Any):
    return lambda function: function


class Outer:
    class Inner:
        # A comment before the decorators.
        @decorated(
            "of several lines",
            key=")",
        )
        @staticmethod
        def method(n):
            """A docstring
            that is indented less."""
            text = """
less still
"""
            return n + len(text)


def test_indented_functions() -> None:
    assert find_source(Outer.Inner.method).tree.name == "method"
    built = build(Outer.Inner.method, [ScalarType(i32)])
    assert launch(built, 1)[0] == 13

    def local(n):
        return n * 2  # noqa: E704

    assert launch(compile_kernel(local, 4), 4)[0] == 8


def test_a_docstring_alone() -> None:
    @decorated()
    def documented(n):
        """Wait."""

    assert find_source(documented).tree.name == "documented"


def lines_of(error: OctantsError) -> list[str]:
    """The lines of the source that the message shows, and what is under the carets."""
    assert error.diagnostic is not None
    found = []
    for label in error.diagnostic.labels:
        line = linecache.getline(label.span.file, label.span.line)
        found.append(line[label.span.column : label.span.end_column])
    return found


def test_places_are_those_of_the_file() -> None:
    def kernel(n):
        return "äöü", undefined_name, n  # type: ignore[name-defined]  # noqa: F821

    with pytest.raises(OctantsError) as caught:
        compile_kernel(kernel, 1)
    assert lines_of(caught.value) == ["undefined_name"]
    assert f"{__file__}:" in str(caught.value)


def test_places_in_called_functions() -> None:
    @func
    def helper(n):
        return n + missing  # noqa: F821

    def kernel(n):
        return helper(n)

    with pytest.raises(OctantsError) as caught:
        compile_kernel(kernel, 1)
    assert lines_of(caught.value) == ["missing"]
    assert "in `helper`" in str(caught.value)


def test_notebook_cells() -> None:
    kernel = define("\n\nif True:\n    def kernel(n):\n        return n + 1\n", file="<cell 1>")
    assert launch(compile_kernel(kernel, 4), 4)[0] == 5
    with pytest.raises(OctantsError, match="<cell 2>:3"):
        compile_kernel(define("\ndef kernel(n):\n    return m\n", file="<cell 2>"), 1)


def test_a_file_that_has_changed(tmp_path: Path) -> None:
    file = tmp_path / "changed.py"
    file.write_text("def kernel(n):\n    return n\n")
    namespace: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    file.write_text("\n# moved\ndef kernel(n, m):\n    return n\n")
    with pytest.raises(OctantsCompilationError, match="source of `kernel` cannot be found"):
        compile_kernel(namespace["kernel"], 1)


EDITED = """
@func
def doubled(x):
    return x * 2

def plain(x):
    return x + 1.0

minus = lambda x: x - 3

class A:
    def value(self, n):
        return 1

class B:
    def value(self, n):
        return 2

def kernel(n):
    return doubled(n) + plain(n) + minus(n) + 10 * A().value(n) + 100 * B().value(n)
"""


@pytest.mark.parametrize("moved", ["", "\n# a comment\n", "\nclass Another:\n    pass\n\n"])
def test_a_file_whose_lines_have_moved(tmp_path: Path, moved: str) -> None:
    file = tmp_path / "moved.py"
    namespace = _imported(file, EDITED)
    file.write_text(moved + EDITED)
    assert launch(compile_kernel(namespace["kernel"], 1), 1)[0] == 212.0


@pytest.mark.parametrize(
    ("before", "after", "name"),
    [
        ("x * 2", "x * 3", "doubled"),
        ("x * 2", "x + 2", "doubled"),
        ("1.0", "1", "plain"),
        ("x - 3", "x + 3", "<lambda>"),
        ("return 2", "return 1", "value"),
        ("def kernel", "def broken(:", "kernel"),
    ],
)
def test_a_file_that_computes_something_else(
    tmp_path: Path, before: str, after: str, name: str
) -> None:
    """What Python would run is not what the file says now, so nothing is compiled."""
    file = tmp_path / "edited.py"
    namespace = _imported(file, EDITED)
    file.write_text(EDITED.replace(before, after))
    with pytest.raises(OctantsCompilationError, match=f"source of `{name}` cannot be found"):
        compile_kernel(namespace["kernel"], 1)


ALIKE = """
def whole():
    def kernel(n):
        x: i32 = n
        return x
    return kernel

def halves():
    def kernel(n):
        x: f32 = n
        return x
    return kernel
"""


@pytest.mark.parametrize("moved", ["", "# a comment\n"])
def test_functions_of_a_new_file_that_differ_in_annotations_only(
    tmp_path: Path, moved: str
) -> None:
    """Python makes no bytecode of the annotations of local variables."""
    if moved and sys.version_info < (3, 11):
        pytest.skip("codes have no qualified names")
    file = tmp_path / "alike.py"
    namespace = _imported(file, ALIKE) | {"i32": i32, "f32": f32}
    file.write_text(moved + ALIKE)
    found = [find_source(namespace[name]()) for name in ("whole", "halves")]
    kinds = [ast.unparse(each.tree.body[0]) for each in found]
    assert kinds == ["x: i32 = n", "x: f32 = n"]


def _imported(file: Path, text: str) -> dict[str, Any]:
    file.write_text(text)
    namespace: dict[str, Any] = {"func": func}
    exec(compile(text, str(file), "exec"), namespace)
    return namespace


def test_redefinitions_are_told_apart() -> None:
    results = []
    for value in (1, 2):
        kernel = define(f"def kernel(n):\n    return n + {value}\n", file="<same>")
        results.append(launch(compile_kernel(kernel, 1), 1)[0])
    assert results == [2, 3]


def test_closures_that_are_not_filled_yet() -> None:
    def kernel(n):
        return n + later

    with pytest.raises(OctantsError, match="`later` is not defined"):
        compile_kernel(kernel, 1)
    later = 3
    assert launch(compile_kernel(kernel, 1), 1)[0] == 4


def test_a_function_is_parsed_once() -> None:
    sources = {find_source(Outer.Inner.method) for _ in range(3)}
    assert len(sources) == 1


# -- programs that are in no file ------------------------------------------------------------------

PROGRAM = """
import octants as qd
qd.init(arch=qd.python, log_level=qd.ERROR)
square = qd.func(lambda v: v * v)
@qd.kernel
def k(n: qd.i32) -> qd.i32:
    return square(n) + 1
print(k(3))
"""
WRONG = PROGRAM.replace("+ 1", "+ m")
ANOTHER = """
exec('''



@qd.kernel
def k(n: qd.i32) -> qd.i32:
    return n + 5
''')
print(k(3))
"""


def run_python(*arguments: str, **given: Any) -> subprocess.CompletedProcess[str]:
    command = (sys.executable, *arguments)
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, **given)


def test_a_program_of_the_command_line() -> None:
    assert run_python("-c", PROGRAM).stdout == "10\n"
    wrong = run_python("-c", PROGRAM.replace("+ 1", "+ m"))
    assert "<string>:7" in wrong.stderr
    assert "return square(n) + m" in wrong.stderr


def test_a_program_of_a_redirected_file(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    with (tmp_path / "program.py").open() as stdin:
        assert run_python(stdin=stdin).stdout == "10\n"


def test_a_program_of_a_pipe_has_no_source() -> None:
    found = run_python("-", input=PROGRAM)
    assert "OCT102" in found.stderr
    assert "does not keep what it reads from a pipe" in found.stderr


def test_code_of_exec_is_not_taken_for_the_program_around_it() -> None:
    """Both have a kernel `k` in line 5, in programs that Python calls `<string>`."""
    assert run_python("-c", PROGRAM + ANOTHER).stdout == "10\n8\n"
    unknown = ANOTHER.replace("exec('''", "exec(''.join(reversed('''", 1)
    body = ANOTHER.split("'''")[1]
    unknown = unknown.replace(body, body[::-1]).replace("''')", "''')))", 1)
    found = run_python("-c", PROGRAM + unknown)
    assert found.stdout == "10\n"
    assert "OCT102" in found.stderr


@pytest.mark.parametrize("future", ["", "from __future__ import annotations\n"])
@pytest.mark.parametrize("given", ["literal", "local", "global"])
def test_programs_of_exec(tmp_path: Path, given: str, future: str) -> None:
    """Two of them, with kernels that differ, whose errors show their own lines."""
    texts = {
        "literal": (repr(PROGRAM), repr(WRONG)),
        "local": ("one", "two"),
        "global": ("ONE", "TWO"),
    }
    one, two = texts[given]
    (tmp_path / "program.py").write_text(
        f"{future}ONE, TWO = {PROGRAM!r}, {WRONG!r}\n"
        "def main():\n    one, two = ONE, TWO\n"
        f"    exec({one}, dict(globals()))\n    exec({two}, dict(globals()))\n"
        "main()\n"
    )
    found = run_python(str(tmp_path / "program.py"))
    assert found.stdout == "10\n", found.stderr
    assert re.search(r"OCT110: `m` is not defined\n +--> <exec \d+>:7 in `k`\n7 \| ", found.stderr)
    assert "    return square(n) + m" in found.stderr


@pytest.mark.skipif(os.name != "posix", reason="it needs a terminal")
def test_programs_at_the_prompt(tmp_path: Path) -> None:
    pty = pytest.importorskip("pty")
    pytest.importorskip("readline")
    host, terminal = pty.openpty()
    environment = {**os.environ, "PYTHON_HISTORY": str(tmp_path / "history"), "TERM": "dumb"}
    environment |= {"HOME": str(tmp_path), "PYTHON_BASIC_REPL": "1"}
    programs = [text.strip().replace("\nprint", "\n\nprint") for text in (PROGRAM, WRONG)]
    with subprocess.Popen(
        [sys.executable, "-q"], stdin=terminal, stdout=terminal, stderr=terminal, env=environment
    ) as process:
        os.close(terminal)
        os.write(host, "\n".join([*programs, "exit()", ""]).encode())
        shown = b""
        with contextlib.suppress(OSError):  # the terminal is closed
            while part := os.read(host, 4096):
                shown += part
        process.wait(60)
    os.close(host)
    text = shown.decode().replace("\r", "")
    assert "\n10\n" in text, text
    assert "OCT110: `m` is not defined" in text, text
    assert "|     return square(n) + m" in text, text
