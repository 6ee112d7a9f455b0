"""What leaves the key of a kernel unchanged, what does not, and what is never cached."""

from __future__ import annotations

from typing import Any

import pytest

import octants as qd
from octants.compile_profile import profiled
from tests.cache.sessions import Sessions

SQUARES = """
x = qd.field(qd.f32, shape=4)
@qd.kernel
def f():
    for i in x:
        x[i] = i * i
f()
result = x.to_numpy().tolist()
"""


def test_another_field_of_the_same_layout_is_the_same_kernel(sessions: Sessions) -> None:
    text = """
    a = qd.field(qd.f32, shape=(2, 3), needs_grad=True)
    b = qd.field(qd.f32, shape=(2, 3), needs_grad=True)
    x = a
    @qd.kernel
    def f():
        for i, j in x:
            x[i, j] = 1.0
    f()
    result = [float(a[0, 0]), float(b[0, 0])]
    """
    assert sessions.run(text).result == [1.0, 0.0]
    other = sessions.run(text.replace("x = a", "x = b"))
    assert other.result == [0.0, 1.0]
    assert other.builds == 0


def test_what_stands_behind_a_kernel_makes_no_difference(sessions: Sessions) -> None:
    sessions.run(SQUARES)
    later = sessions.run(SQUARES + "\nUNUSED = 1\n")
    assert (later.builds, later.result) == (0, [0.0, 1.0, 4.0, 9.0])


def test_loops_over_what_is_iterated_as_python_does(sessions: Sessions) -> None:
    text = """
    numbers, names = [1, 2], {"a": 1}
    @qd.kernel
    def f() -> qd.i32:
        total = 0
        for i, j in qd.static(qd.ndrange(2, (1, 3))):
            total += i * j
        for k, number in qd.static(enumerate(zip(numbers, reversed(numbers)))):
            total += k * number[0]
        for name, n in qd.static(names.items()):
            total += n
        return total
    result = f()
    """
    assert sessions.run(text).result == 6
    again = sessions.run(text)
    assert (again.builds, again.result) == (0, 6)


def test_what_the_kernel_does_not_read_makes_no_difference(sessions: Sessions) -> None:
    text = (
        "class Config: pass\nc = Config()\nc.n = 1\nc.m = 1\n"
        """
@qd.kernel
def f() -> qd.i32:
    return c.n
result = f()
"""
    )
    sessions.run(text)
    assert sessions.run(text.replace("c.m = 1", "c.m = 2")).builds == 0


OPTIONS: list[dict[str, Any]] = [
    {"default_fp": qd.f64},
    {"default_ip": qd.i64},
    {"debug": True},
    {"check_out_of_bound": True},
    {"opt_level": 0},
    {"deterministic": True},
    {"ad_stack_size": 7},
    {"ad_stack_budget_bytes": 1 << 10},
    {"fast_math": False},
    {"simd": "always"},
]


@pytest.mark.parametrize("changed", OPTIONS, ids=lambda each: next(iter(each)))
def test_options_that_change_kernels(changed: dict[str, Any], sessions: Sessions) -> None:
    first = sessions.run(SQUARES)
    other = sessions.run(SQUARES, **changed)
    assert other.builds == 1
    assert other.result == first.result
    assert sessions.run(SQUARES, **changed).builds == 0
    assert sessions.run(SQUARES).builds == 0


def test_default_types_are_heard(sessions: Sessions) -> None:
    text = """
    @qd.kernel
    def f() -> float:
        return 0.1
    result = f()
    """
    assert sessions.run(text).result != 0.1
    assert sessions.run(text, default_fp=qd.f64).result == 0.1


def test_options_that_do_not_change_kernels(sessions: Sessions) -> None:
    sessions.run(SQUARES)
    assert sessions.run(SQUARES, random_seed=5, log_level="critical").builds == 0


def test_no_cache(sessions: Sessions) -> None:
    sessions.run(SQUARES, offline_cache=False)
    assert not sessions.cache.exists()
    assert sessions.run(SQUARES, offline_cache=False).builds == 1


def test_what_is_to_be_printed_is_compiled(
    sessions: Sessions, capfd: pytest.CaptureFixture[str]
) -> None:
    sessions.run(SQUARES)
    assert sessions.run(SQUARES, print_ir=True).builds == 1
    assert "kernel @f" in capfd.readouterr().out


def test_what_is_profiled_is_compiled(sessions: Sessions) -> None:
    sessions.run(SQUARES)
    with profiled() as profile:
        assert sessions.run(SQUARES).builds == 1
    assert profile.kernels


def test_the_interpreter_keeps_nothing(sessions: Sessions) -> None:
    sessions.run(SQUARES, arch="python")
    assert sessions.run(SQUARES, arch="python").builds == 1


def test_kernels_of_one_name(sessions: Sessions) -> None:
    text = """
    def first():
        @qd.kernel
        def f() -> qd.i32:
            return 1
        return f
    def second():
        @qd.kernel
        def f() -> qd.i32:
            return 2
        return f
    result = [first()(), second()()]
    """
    for builds in (2, 0):
        run = sessions.run(text)
        assert (run.result, run.builds) == ([1, 2], builds)


def test_kernels_made_in_a_loop(sessions: Sessions) -> None:
    text = """
    kernels = []
    for n in range(4):
        def make(n):
            @qd.kernel
            def f() -> qd.i32:
                return n
            return f
        kernels.append(make(n))
    result = [f() for f in kernels]
    """
    for builds in (4, 0):
        run = sessions.run(text)
        assert (run.result, run.builds) == ([0, 1, 2, 3], builds)


def test_the_same_text_in_another_file(sessions: Sessions) -> None:
    """Messages name the file."""
    text = """
    @qd.kernel
    def f(n: qd.i32):
        assert n == 1, "not one"
    try:
        f(2)
        qd.sync()
    except qd.OctantsAssertionError as error:
        result = str(error)
    """
    assert "one.py" in sessions.run(text, "one.py", debug=True).result
    assert "other.py" in sessions.run(text, "other.py", debug=True).result
    again = sessions.run(text, "one.py", debug=True)
    assert "one.py:4" in again.result
    assert again.builds == 0


def test_a_kernel_that_moved_in_its_file(sessions: Sessions) -> None:
    text = """
    @qd.kernel
    def f(n: qd.i32):
        assert n == 1, "not one"
    try:
        f(2)
        qd.sync()
    except qd.OctantsAssertionError as error:
        result = str(error)
    """
    assert "program.py:4" in sessions.run(text, debug=True).result
    assert "program.py:5" in sessions.run("\n" + text, debug=True).result


def test_a_global_that_changes_while_the_program_runs(sessions: Sessions) -> None:
    text = """
    N = 1
    @qd.kernel
    def f() -> qd.i32:
        return N
    result = [f()]
    N = 2
    result.append(f())
    N = 1
    result.append(f())
    """
    for builds in (2, 0):
        run = sessions.run(text)
        assert (run.result, run.builds) == ([1, 2, 1], builds)


def test_a_global_of_a_python_function_that_changes(
    sessions: Sessions,
) -> None:
    text = """
    N = 1
    def g(a):
        return a * N
    def h():
        x[0] = N
    x = qd.field(qd.i32, shape=2)
    @qd.kernel
    def f(a: qd.i32) -> qd.i32:
        h()
        return g(a)
    result = [f(2), x[0]]
    N = 5
    result += [f(2), x[0]]
    """
    for builds in (2, 0):
        run = sessions.run(text)
        assert (run.result, run.builds) == ([2, 1, 10, 5], builds)


def test_what_is_read_depends_on_what_was_read(sessions: Sessions) -> None:
    text = """
    class Config: pass
    c = Config()
    c.mode, c.a, c.b = 0, 10, 20
    @qd.kernel
    def f() -> qd.i32:
        r = 0
        if qd.static(c.mode == 0):
            r = c.a
        else:
            r = c.b
        return r
    result = f()
    """
    variants = {"0, 10, 20": 10, "1, 10, 20": 20, "1, 11, 20": 20, "0, 11, 20": 11, "1, 11, 21": 21}
    builds = [sessions.run(text.replace("0, 10, 20", each)).builds for each in variants]
    assert builds == [1, 1, 0, 1, 1]
    for each, expected in variants.items():
        run = sessions.run(text.replace("0, 10, 20", each))
        assert (run.result, run.builds) == (expected, 0)


# -- what is never kept ----------------------------------------------------------------------------

NEVER_KEPT = {
    "a Python function": """
        def g(): return 3
        @qd.kernel
        def f() -> qd.i32:
            return qd.static(g())
        """,
    "an operator of a class": """
        class Number:
            def __add__(self, other): return 3
        n = Number()
        @qd.kernel
        def f() -> qd.i32:
            return qd.static(n + 1)
        """,
    "items of a class": """
        class Box:
            def __getitem__(self, k): return 3
        box = Box()
        @qd.kernel
        def f() -> qd.i32:
            return box[0]
        """,
    "iteration of a class": """
        class Box:
            def __iter__(self): return iter([1, 2])
        box = Box()
        @qd.kernel
        def f() -> qd.i32:
            total = 0
            for k in qd.static(box):
                total += k
            return total
        """,
    "truth of a class": """
        class Box:
            def __bool__(self): return True
        box = Box()
        @qd.kernel
        def f() -> qd.i32:
            r = 2
            if qd.static(box):
                r = 3
            return r
        """,
    "random numbers": """
        import numpy as np
        @qd.kernel
        def f() -> qd.i32:
            return qd.static(int(np.random.rand()) + 3)
        """,
    "Python's expressions": """
        n = 3
        @qd.kernel
        def f() -> qd.i32:
            return qd.static({"a": n}["a"])
        """,
    "what says something while it is compiled": """
        @qd.kernel
        def f() -> qd.i32:
            qd.static_print("compiling")
            return 3
        """,
    "the text of an object": """
        class Box: pass
        box = Box()
        @qd.kernel
        def f() -> qd.i32:
            print(box)
            return 3
        """,
    "a property that is another object each time": """
        class Inner: n = 3
        class Box:
            @property
            def inner(self): return Inner()
        box = Box()
        @qd.kernel
        def f() -> qd.i32:
            return box.inner.n + box.inner.n - 3
        """,
    "items of a subclass of list": """
        class Doubled(list):
            def __iter__(self): return iter([1, 2])
        numbers = Doubled([5])
        @qd.kernel
        def f() -> qd.i32:
            total = 0
            for k in qd.static(numbers):
                total += k
            return total
        """,
    "an operator of a subclass of int": """
        class Number(int):
            def __add__(self, other): return 3
        n = Number(1)
        @qd.kernel
        def f() -> qd.i32:
            return qd.static(n + n)
        """,
    "objects in an array of numpy": """
        import numpy as np
        class Box: n = 3
        boxes = np.array([Box()], dtype=object)
        @qd.kernel
        def f() -> qd.i32:
            return boxes[0].n
        """,
    "the members of an enumeration": """
        import enum
        class Mode(enum.IntEnum):
            A = 1
            B = 2
        @qd.kernel
        def f() -> qd.i32:
            total = 0
            for mode in qd.static(Mode):
                total += mode
            return total
        """,
    "a class that decides what is of it": """
        class Meta(type):
            def __instancecheck__(cls, value): return True
        class Box(metaclass=Meta): pass
        @qd.kernel
        def f() -> qd.i32:
            return qd.static(3 if isinstance(1, Box) else 0)
        """,
}


@pytest.mark.parametrize("name", NEVER_KEPT)
def test_never_kept(name: str, sessions: Sessions, capfd: pytest.CaptureFixture[str]) -> None:
    lines = [line[8:] for line in NEVER_KEPT[name].strip("\n").split("\n")]
    text = "\n".join([*lines, "result = f()"])
    for _ in range(2):
        assert sessions.run(text).builds == 1
    kept = {path.stem.partition("-")[2] for path in sessions.cache.glob("*.octants")}
    assert kept <= {"target", "support"}, "only what the first kernel of a process asks for"
    capfd.readouterr()
