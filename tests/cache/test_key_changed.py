"""A kernel comes from the cache exactly if building it would give the same.

Each program is run twice, then in a version that means something else, then as it was: the second
and the last run must build nothing, the third must, and each must give what Python would mean.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.cache.sessions import Sessions

HEAD = """
import math
import types
import numpy as np
x = qd.field(qd.f32, shape=3)
y = qd.field(qd.f32, shape=3)
"""

# Name: a program, what to replace in it and by what, the results before and after.
CHANGES: dict[str, tuple[str, str, str, Any, Any]] = {
    "global number": (
        """
        N = 2
        @qd.kernel
        def f() -> qd.i32:
            return N * 10
        result = f()
        """,
        "N = 2",
        "N = 3",
        20,
        30,
    ),
    "type of a global": (
        """
        N = 2
        @qd.kernel
        def f() -> qd.f32:
            return N / 4 + (1 if qd.static(isinstance(N, float)) else 0)
        result = f()
        """,
        "N = 2",
        "N = 2.0",
        0.5,
        1.5,
    ),
    "sign of zero": (
        """
        N = 0.0
        @qd.kernel
        def f() -> qd.f32:
            return qd.atan2(N, -1.0)
        result = round(f(), 3)
        """,
        "N = 0.0",
        "N = -0.0",
        3.142,
        -3.142,
    ),
    "closure": (
        """
        def make(n):
            @qd.kernel
            def f() -> qd.i32:
                return n + 1
            return f
        result = make(4)()
        """,
        "make(4)",
        "make(5)",
        5,
        6,
    ),
    "global of a func": (
        """
        N = 2
        @qd.func
        def g():
            return N * 10
        @qd.kernel
        def f() -> qd.i32:
            return g() + 1
        result = f()
        """,
        "N = 2",
        "N = 3",
        21,
        31,
    ),
    "text of a func": (
        """
        @qd.func
        def g():
            return 10
        @qd.kernel
        def f() -> qd.i32:
            return g() + 1
        result = f()
        """,
        "return 10",
        "return 20",
        11,
        21,
    ),
    "text of a func of a func": (
        """
        @qd.func
        def h():
            return 10
        @qd.func
        def g():
            return h()
        @qd.kernel
        def f() -> qd.i32:
            return g() + 1
        result = f()
        """,
        "return 10",
        "return 20",
        11,
        21,
    ),
    "another func of the same name": (
        """
        def make(n):
            if n == 1:
                @qd.func
                def g():
                    return 10
            else:
                @qd.func
                def g():
                    return 20
            return g
        g = make(1)
        @qd.kernel
        def f() -> qd.i32:
            return g()
        result = f()
        """,
        "make(1)",
        "make(2)",
        10,
        20,
    ),
    "closure of a func": (
        """
        def make(n):
            @qd.func
            def g():
                return n
            return g
        g = make(1)
        @qd.kernel
        def f() -> qd.i32:
            return g()
        result = f()
        """,
        "make(1)",
        "make(2)",
        1,
        2,
    ),
    "default of a func": (
        """
        N = 3
        @qd.func
        def g(n=N):
            return n
        @qd.kernel
        def f() -> qd.i32:
            return g()
        result = f()
        """,
        "N = 3",
        "N = 4",
        3,
        4,
    ),
    "annotation of a func": (
        """
        KIND = qd.i32
        @qd.func
        def g(a: KIND):
            return a
        @qd.kernel
        def f() -> qd.f32:
            return g(2.5)
        result = f()
        """,
        "KIND = qd.i32",
        "KIND = qd.f32",
        2.0,
        2.5,
    ),
    "text of a Python function": (
        """
        def g(a):
            return a * 10
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return g(a)
        result = f(2)
        """,
        "a * 10",
        "a * 20",
        20,
        40,
    ),
    "global of a Python function": (
        """
        N = 2
        def g(a):
            return a * N
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return g(a)
        result = f(2)
        """,
        "N = 2",
        "N = 3",
        4,
        6,
    ),
    "closure of a Python function of a Python function": (
        """
        def make(n):
            def h(a):
                return a * n
            return h
        h = make(2)
        def g(a):
            return h(a) + 1
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return g(a)
        result = f(2)
        """,
        "make(2)",
        "make(3)",
        5,
        7,
    ),
    "default of a Python function": (
        """
        def g(a, n=2):
            return a * n
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return g(a)
        result = f(2)
        """,
        "n=2",
        "n=3",
        4,
        6,
    ),
    "Python function that works on arrays": (
        """
        N = 2
        def g():
            x[0] = N
        @qd.kernel
        def f():
            g()
        f()
        result = float(x[0])
        """,
        "N = 2",
        "N = 3",
        2.0,
        3.0,
    ),
    "array of a Python function": (
        """
        z = x
        def h():
            z[0] += 1.0
        def g():
            h()
        @qd.kernel
        def f():
            g()
        f()
        result = [float(x[0]), float(y[0])]
        """,
        "z = x",
        "z = qd.field(qd.f32, shape=4)",
        [1.0, 0.0],
        [0.0, 0.0],
    ),
    "method of a callable object": (
        """
        class Scale:
            def __init__(self, n):
                self.n = n
            def __call__(self, a):
                return a * self.n
        scale = Scale(2)
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return scale(a)
        result = f(2)
        """,
        "Scale(2)",
        "Scale(3)",
        4,
        6,
    ),
    "text of a method of a callable object": (
        """
        class Scale:
            def __call__(self, a):
                return a * 2
        scale = Scale()
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return scale(a)
        result = f(2)
        """,
        "a * 2",
        "a * 3",
        4,
        6,
    ),
    "text of a method of an object in a list": (
        """
        class Scale:
            def __call__(self, a):
                return a * 2
        scales = [Scale()]
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            total = 0
            for scale in qd.static(scales):
                total += scale(a)
            return total
        result = f(2)
        """,
        "a * 2",
        "a * 3",
        4,
        6,
    ),
    "text of a method that a method calls": (
        """
        class Scale:
            def __call__(self, a):
                return self.twice(a)
            def twice(self, a):
                return a * 2
        scale = Scale()
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return scale(a)
        result = f(2)
        """,
        "a * 2",
        "a * 3",
        4,
        6,
    ),
    "text of an ordinary method": (
        """
        class Scale:
            def twice(self, a):
                return a * 2
        scale = Scale()
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return scale.twice(a)
        result = f(2)
        """,
        "a * 2",
        "a * 3",
        4,
        6,
    ),
    "text of a callable template argument": (
        """
        class Scale:
            def __call__(self, a):
                return a * 2
        @qd.kernel
        def f(scale: qd.template(), a: qd.i32) -> qd.i32:
            return scale(a)
        result = f(Scale(), 2)
        """,
        "a * 2",
        "a * 3",
        4,
        6,
    ),
    "text of a Python function as a template argument": (
        """
        def g(a):
            return a * 2
        @qd.kernel
        def f(g: qd.template(), a: qd.i32) -> qd.i32:
            return g(a)
        result = f(g, 2)
        """,
        "a * 2",
        "a * 3",
        4,
        6,
    ),
    "text of a decorated Python function": (
        """
        import functools
        def g(a):
            return a * 2
        @functools.wraps(g)
        def h(a):
            return g(a) + 1
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return h(a)
        result = f(2)
        """,
        "a * 2",
        "a * 3",
        5,
        7,
    ),
    "argument of a partial": (
        """
        import functools
        def g(n, a):
            return a * n
        h = functools.partial(g, 2)
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return h(a)
        result = f(2)
        """,
        "partial(g, 2)",
        "partial(g, 3)",
        4,
        6,
    ),
    "text of a function of a partial": (
        """
        import functools
        def g(n, a):
            return a * n
        h = functools.partial(g, 2)
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return h(a)
        result = f(2)
        """,
        "a * n",
        "a + 5 * n",
        4,
        12,
    ),
    "lambda of a global": (
        """
        g = lambda a: a * 2
        @qd.kernel
        def f(a: qd.i32) -> qd.i32:
            return g(a)
        result = f(2)
        """,
        "a * 2",
        "a * 3",
        4,
        6,
    ),
    "body at the same lines": (
        """
        @qd.kernel
        def f() -> qd.i32:
            return 1
        result = f()
        """,
        "return 1",
        "return 2",
        1,
        2,
    ),
    "attribute of a module": (
        """
        settings = types.ModuleType("settings")
        settings.N = 5
        @qd.kernel
        def f() -> qd.i32:
            return settings.N
        result = f()
        """,
        "settings.N = 5",
        "settings.N = 6",
        5,
        6,
    ),
    "attribute of a nested object": (
        """
        config = types.SimpleNamespace(inner=types.SimpleNamespace(N=5))
        @qd.kernel
        def f() -> qd.i32:
            return config.inner.N
        result = f()
        """,
        "N=5",
        "N=6",
        5,
        6,
    ),
    "attribute of self": (
        """
        @qd.data_oriented
        class Solver:
            def __init__(self, n):
                self.n = n
            @qd.kernel
            def f(self) -> qd.i32:
                return self.n
        result = Solver(7).f()
        """,
        "Solver(7)",
        "Solver(8)",
        7,
        8,
    ),
    "attribute of the class": (
        """
        @qd.data_oriented
        class Solver:
            n = 7
            @qd.kernel
            def f(self) -> qd.i32:
                return self.n
        result = Solver().f()
        """,
        "n = 7",
        "n = 8",
        7,
        8,
    ),
    "func that is a method": (
        """
        @qd.data_oriented
        class Solver:
            def __init__(self, n):
                self.n = n
            @qd.func
            def g(self, k):
                return self.n + k
            @qd.kernel
            def f(self) -> qd.i32:
                return self.g(1)
        result = Solver(7).f()
        """,
        "self.n + k",
        "self.n * k",
        8,
        7,
    ),
    "property": (
        """
        @qd.data_oriented
        class Solver:
            @property
            def n(self):
                return 7
            @qd.kernel
            def f(self) -> qd.i32:
                return self.n
        result = Solver().f()
        """,
        "return 7",
        "return 8",
        7,
        8,
    ),
    "absence of an attribute": (
        """
        @qd.data_oriented
        class Solver:
            def __init__(self, n):
                self.m = n
            @qd.kernel
            def f(self) -> qd.i32:
                r = 1
                if qd.static(hasattr(self, "n")):
                    r = 2
                return r
        result = Solver(7).f()
        """,
        "self.m = n",
        "self.n = n",
        1,
        2,
    ),
    "default of getattr": (
        """
        config = types.SimpleNamespace(m=1)
        @qd.kernel
        def f() -> qd.i32:
            return getattr(config, "n", 5)
        result = f()
        """,
        "(m=1)",
        "(n=1)",
        5,
        1,
    ),
    "method of a subclass": (
        """
        @qd.data_oriented
        class Base:
            @qd.func
            def g(self):
                return 1
            @qd.kernel
            def f(self) -> qd.i32:
                return self.g()
        class Derived(Base):
            @qd.func
            def g(self):
                return 2
        result = Base().f()
        """,
        "= Base()",
        "= Derived()",
        1,
        2,
    ),
    "list in static": (
        """
        LIST = [1, 2, 3]
        @qd.kernel
        def f() -> qd.i32:
            total = 0
            for k in qd.static(LIST):
                total += k
            return total
        result = f()
        """,
        "[1, 2, 3]",
        "[1, 2, 4]",
        6,
        7,
    ),
    "nested tuple in static": (
        """
        PAIRS = ((1, 2), (3, 4))
        @qd.kernel
        def f() -> qd.i32:
            total = 0
            for a, b in qd.static(PAIRS):
                total += a * b
            return total
        result = f()
        """,
        "(3, 4)",
        "(3, 5)",
        14,
        17,
    ),
    "dictionary in static": (
        """
        TABLE = {"a": 1, "b": 2}
        @qd.kernel
        def f() -> qd.i32:
            return TABLE["b"]
        result = f()
        """,
        '"b": 2',
        '"b": 3',
        2,
        3,
    ),
    "matrix": (
        """
        M = qd.Matrix([[1.0, 2.0], [3.0, 4.0]])
        @qd.kernel
        def f() -> qd.f32:
            return (M @ qd.Vector([1.0, 1.0])).sum()
        result = f()
        """,
        "4.0]]",
        "5.0]]",
        10.0,
        11.0,
    ),
    "numpy array": (
        """
        A = np.array([1.0, 2.0])
        @qd.kernel
        def f() -> qd.f32:
            return A[1]
        result = f()
        """,
        "2.0]",
        "3.0]",
        2.0,
        3.0,
    ),
    "dtype": (
        """
        DT = qd.i8
        @qd.kernel
        def f() -> qd.i32:
            return qd.cast(300, DT)
        result = f()
        """,
        "qd.i8",
        "qd.i16",
        44,
        300,
    ),
    "matrix type": (
        """
        V = qd.types.vector(2, qd.i32)
        @qd.kernel
        def f() -> qd.f32:
            return V(2.5).sum()
        result = f()
        """,
        "qd.i32)",
        "qd.f32)",
        4.0,
        5.0,
    ),
    "enumeration": (
        """
        import enum
        class Mode(enum.IntEnum):
            A = 1
            B = 2
        MODE = Mode.A
        @qd.kernel
        def f() -> qd.i32:
            r = 0
            if qd.static(MODE == Mode.A):
                r = 5
            return r
        result = f()
        """,
        "MODE = Mode.A",
        "MODE = Mode.B",
        5,
        0,
    ),
    "name that hides a builtin": (
        """
        @qd.kernel
        def f() -> qd.i32:
            return abs(-3)
        PLACE = 1
        result = f()
        """,
        "PLACE = 1",
        "def seven(a):\n    return 7\nabs = qd.func(seven)",
        3,
        7,
    ),
    "which field": (
        """
        x.fill(1.0)
        y.fill(2.0)
        A, B = x, y
        @qd.kernel
        def f() -> qd.f32:
            A[0] = 5.0
            return B[0]
        result = f()
        """,
        "A, B = x, y",
        "A, B = x, x",
        2.0,
        5.0,
    ),
    "shape of a field": (
        """
        z = qd.field(qd.f32, shape=4)
        @qd.kernel
        def f() -> qd.i32:
            total = 0
            for i in range(z.shape[0]):
                total += 1
            return total
        result = f()
        """,
        "shape=4",
        "shape=5",
        4,
        5,
    ),
    "type of a field": (
        """
        z = qd.field(qd.f32, shape=4)
        @qd.kernel
        def f():
            for i in z:
                z[i] = qd.cast(2.5, z.dtype)
        f()
        result = float(z[0])
        """,
        "qd.f32, shape=4",
        "qd.i32, shape=4",
        2.5,
        2.0,
    ),
    "layout of a field": (
        """
        z = qd.field(qd.i32)
        w = qd.field(qd.i32)
        qd.root.dense(qd.i, 2).place(z, w)
        @qd.kernel
        def f():
            for i in z:
                z[i] = i + 1
        f()
        result = [int(z[0]), int(z[1]), int(w[0]), int(w[1])]
        """,
        "place(z, w)",
        "place(z); qd.root.dense(qd.i, 2).place(w)",
        [1, 2, 0, 0],
        [1, 2, 0, 0],
    ),
    "offset of a field": (
        """
        z = qd.field(qd.i32)
        qd.root.dense(qd.i, 4).place(z, offset=(-2,))
        @qd.kernel
        def f():
            for i in z:
                z[i] = i
        f()
        result = z.to_numpy().tolist()
        """,
        "(-2,)",
        "(-1,)",
        [-2, -1, 0, 1],
        [-1, 0, 1, 2],
    ),
    "gradient of a field": (
        """
        NEEDS = False
        z = qd.field(qd.f32, shape=2, needs_grad=NEEDS)
        w = qd.field(qd.f32, shape=2, needs_grad=True)
        @qd.kernel
        def f():
            for i in z:
                w[i] = z[i] * 3.0
        w.grad.fill(1.0)
        f()
        f.grad()
        result = float(z.grad[0]) if NEEDS else None
        """,
        "NEEDS = False",
        "NEEDS = True",
        None,
        3.0,
    ),
    "template argument": (
        """
        @qd.kernel
        def f(n: qd.template()) -> qd.i32:
            return n * 2
        result = f(3)
        """,
        "f(3)",
        "f(4)",
        6,
        8,
    ),
    "func as a template argument": (
        """
        @qd.func
        def one():
            return 1
        @qd.func
        def two():
            return 2
        @qd.kernel
        def f(g: qd.template()) -> qd.i32:
            return g()
        result = f(one)
        """,
        "f(one)",
        "f(two)",
        1,
        2,
    ),
    "struct type": (
        """
        @qd.dataclass
        class Ball:
            r: qd.f32
            @qd.func
            def area(self):
                return self.r * 2.0
        @qd.kernel
        def f() -> qd.f32:
            return Ball(3.0).area()
        result = f()
        """,
        "* 2.0",
        "* 4.0",
        6.0,
        12.0,
    ),
    "struct": (
        """
        S = qd.Struct(a=1, b=qd.Vector([2, 3]))
        @qd.kernel
        def f() -> qd.i32:
            return S.a + S.b[1]
        result = f()
        """,
        "a=1",
        "a=2",
        4,
        5,
    ),
    "property of a struct type": (
        """
        @qd.dataclass
        class Ball:
            r: qd.f32
            @property
            def area(self):
                return self.r * 2.0
        @qd.kernel
        def f() -> qd.f32:
            return Ball(3.0).area
        result = f()
        """,
        "* 2.0",
        "* 4.0",
        6.0,
        12.0,
    ),
    "property of a base of a struct type": (
        """
        class Round:
            r: qd.f32
            @property
            def area(self):
                return self.r * 2.0
        @qd.dataclass
        class Ball(Round):
            mass: qd.f32
        @qd.kernel
        def f() -> qd.f32:
            return Ball(3.0, 1.0).area
        result = f()
        """,
        "* 2.0",
        "* 4.0",
        6.0,
        12.0,
    ),
    "function that a property calls": (
        """
        def double(x):
            return x * 2.0
        @qd.dataclass
        class Ball:
            r: qd.f32
            @property
            def area(self):
                return double(self.r)
        @qd.kernel
        def f() -> qd.f32:
            return Ball(3.0).area
        result = f()
        """,
        "* 2.0",
        "* 4.0",
        6.0,
        12.0,
    ),
    "property of a Python dataclass": (
        """
        import dataclasses
        @dataclasses.dataclass
        class Pair:
            a: float
            @property
            def twice(self):
                return self.a * 2.0
        @qd.kernel
        def f(p: Pair) -> qd.f32:
            return p.twice
        result = f(Pair(1.0))
        """,
        "* 2.0",
        "* 4.0",
        2.0,
        4.0,
    ),
    "default of a Python dataclass": (
        """
        import dataclasses
        @dataclasses.dataclass
        class Pair:
            a: float
            b: float = 2.0
        @qd.kernel
        def f(n: qd.f32) -> qd.f32:
            p = Pair(n)
            return p.a + p.b
        result = f(1.0)
        """,
        "= 2.0",
        "= 4.0",
        3.0,
        5.0,
    ),
    "method of a Python dataclass": (
        """
        import dataclasses
        @dataclasses.dataclass
        class Pair:
            a: float
            @qd.func
            def twice(self):
                return self.a * 2.0
        @qd.kernel
        def f(n: qd.f32) -> qd.f32:
            p = Pair(n)
            return p.twice()
        result = f(1.0)
        """,
        "* 2.0",
        "* 4.0",
        2.0,
        4.0,
    ),
    "named tuple": (
        """
        import collections
        Sizes = collections.namedtuple("Sizes", "n m")
        sizes = Sizes(2, 3)
        @qd.kernel
        def f() -> qd.i32:
            total = sizes.m
            for k in qd.static(sizes):
                total += k
            return total
        result = f()
        """,
        "(2, 3)",
        "(2, 4)",
        8,
        10,
    ),
    "whether two names are one object": (
        """
        class Box:
            n = 1
        a, b = Box(), Box()
        c = a
        @qd.kernel
        def f() -> qd.i32:
            return qd.static(1 if a is c else 0)
        result = f()
        """,
        "c = a",
        "c = b",
        1,
        0,
    ),
    "objects in a list": (
        """
        class Part:
            def __init__(self, n):
                self.n = n
        PARTS = [Part(1), Part(2)]
        @qd.kernel
        def f() -> qd.i32:
            total = 0
            for p in qd.static(PARTS):
                total += p.n
            return total
        result = f()
        """,
        "Part(2)]",
        "Part(3)]",
        3,
        4,
    ),
    "fields in a list": (
        """
        x.fill(1.0)
        y.fill(2.0)
        BOTH = [x, y]
        @qd.kernel
        def f() -> qd.f32:
            total = 0.0
            for z in qd.static(BOTH):
                total += z[0]
            return total
        result = f()
        """,
        "[x, y]",
        "[y, y]",
        3.0,
        4.0,
    ),
}


def program(text: str) -> str:
    lines = text.strip("\n").split("\n")
    indent = len(lines[0]) - len(lines[0].lstrip())
    return HEAD + "\n".join(line[indent:] for line in lines)


@pytest.mark.parametrize("name", CHANGES)
def test_change(name: str, sessions: Sessions) -> None:
    text, old, new, before, after = CHANGES[name]
    first = program(text)
    assert first.count(old) == 1
    other = first.replace(old, new)

    cold = sessions.run(first)
    assert cold.result == before
    assert cold.builds == 1

    warm = sessions.run(first)
    assert warm.result == before
    assert (warm.builds, warm.compiled) == (0, 0)

    changed = sessions.run(other)
    assert changed.result == after
    assert changed.builds == 1

    for text, expected in ((first, before), (other, after)):
        again = sessions.run(text)
        assert again.result == expected
        assert (again.builds, again.compiled) == (0, 0)
    assert not [each for run in (cold, warm, changed) for each in run.warned]
