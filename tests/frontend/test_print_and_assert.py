"""``print`` and ``assert``: the texts that a kernel makes."""

from __future__ import annotations

import numpy as np
import pytest

from octants import interpreter
from octants.diagnostics.exceptions import OctantsTypeError
from octants.ir import ops
from octants.lang.directives import static
from octants.types.matrix_values import Vector
from tests.frontend.frontend_programs import compile_kernel, define, launch, printed, run


def test_values_of_all_sorts() -> None:
    def kernel(x, n):
        v = Vector([1.5, 2.5])
        print("x =", x[0], n, v, sep=" ")
        print()
        print("a", 1, 2.5, None, (n, "b"), [x[0]], sep="-")
        print(f"{x[0]:.3f} and {n:>4d} {n + 1} {{}} {'c'!r} {v:.1f}")
        print("{} {:.2f} {name:03d}".format(n, x[0], name=n))  # noqa: UP032
        print("%d %.2f %s" % (n, x[0], n))  # noqa: UP031

    assert printed(kernel, np.array([0.25]), 7) == [
        "x = 0.25 7 [1.5, 2.5]",
        "",
        "a-1-2.5-None-(7, 'b')-[0.25]",
        "0.250 and    7 8 {} 'c' [1.5, 2.5]",
        "7 0.25 007",
        "7 0.25 7",
    ]


def test_lines_are_assembled_from_prints() -> None:
    def kernel(x, n):
        print("row", n, end=": ")
        for k in range(3):
            print(x[k], end="" if static(False) else ", ")
        print(end="")
        print()
        print("a", n, sep=None, end=None)
        print("two\nlines", end="|", flush=True)

    assert printed(kernel, np.arange(3.0), 7) == [
        "row 7: 0.0, 1.0, 2.0, ",
        "a 7",
        "two",
        "lines|",
    ]


def test_a_print_of_nothing_is_no_operation() -> None:
    built = compile_kernel(define("def kernel(n):\n    print(end='')\n    print('', end='')\n"), 1)
    assert not any(isinstance(op, ops.Print) for op in built.module.walk())


def test_a_print_is_one_operation() -> None:
    def kernel(n):
        print("n is", n, f"{n:5d}!", 3)

    (op,) = [op for op in compile_kernel(kernel, 1).module.walk() if isinstance(op, ops.Print)]
    assert op.parts == ("n is ", ("",), " ", ("5d",), "! 3\n")
    assert op.location is not None


@pytest.mark.parametrize(
    "call", ["f'{n:.2q}'", "n, end=n", "n, sep=0", "n, file=0", "'{} {}'.format(n)"]
)
def test_wrong_formats(call: str) -> None:
    with pytest.raises(OctantsTypeError):
        compile_kernel(define(f"def kernel(n):\n    print({call})\n"), 1)


def test_assertions_are_for_debug_mode() -> None:
    def kernel(n):
        assert n > 2
        return n

    assert run(kernel, 1) == 1
    built = compile_kernel(kernel, 1, debug=True)
    assert launch(built, 3)[0] == 3
    with pytest.raises(interpreter.AssertionFailed, match="n > 2"):
        launch(built, 1)


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ("'wrong {}'", "wrong {}"),
        ("f'n is {n:3d}, {{}}'", "n is   1, {}"),
        ("'n is {}, {}'.format(n, n + 1)", "n is 1, 2"),
        ("('n is', n, 'now')", "n is 1 now"),
        ("'%d!' % n", "1!"),
    ],
)
def test_messages_of_assertions(message: str, text: str) -> None:
    kernel = define(f"def kernel(n):\n    assert n == 3, {message}\n")
    built = compile_kernel(kernel, 1, debug=True)
    with pytest.raises(interpreter.AssertionFailed) as caught:
        launch(built, 1)
    assert str(caught.value) == text
