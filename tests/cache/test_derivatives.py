"""Whatever can be asked of a kernel gives the same from the cache, without anything compiled."""

from __future__ import annotations

from typing import Any

import pytest

from tests.cache.sessions import Sessions
from tests.seeds import each_once

PROGRAMS = {
    "bare gradient": """
        x = qd.field(qd.f32, shape=8, needs_grad=True)
        y = qd.field(qd.f32, shape=(), needs_grad=True)
        @qd.kernel
        def f(n: qd.i32):
            for i in x:
                v = x[i]
                for k in range(n):
                    v = qd.sin(v) * 0.95 + 0.01
                y[None] += v
        x.fill(0.5)
        f(10)
        y.grad[None] = 1.0
        f.grad(10)
        result = x.grad.to_numpy().tolist()
        """,
    "argument gradients": """
        y = qd.field(qd.f32, shape=3, needs_grad=True)
        @qd.kernel
        def f(a: qd.f32, v: qd.types.vector(2, qd.f32)):
            for i in y:
                y[i] = a * v[0] + v[1] * v[1]
        y.grad.fill(1.0)
        f(2.0, qd.Vector([3.0, 4.0]))
        given = f.grad.using(argument_gradients=True)(2.0, qd.Vector([3.0, 4.0]))
        result = [given["a"], given["v"].to_list()]
        """,
    "several adjoints": """
        import numpy as np
        vec = qd.types.ndarray(qd.f32, 1)
        @qd.kernel
        def f(a: qd.f32, x: vec, y: vec) -> qd.f32:
            total = 0.0
            for i in x:
                y[i] = a * qd.sin(x[i])
            for i in x:
                qd.atomic_max(y[0], a * x[i])
                total += x[i]
            return total
        @qd.kernel
        def logged(x: vec, y: vec, count: qd.types.ndarray(qd.i32, 0)):
            for i in x:
                k = qd.atomic_add(count[None], 1)
                y[k] = x[i] * x[i]
        given, rows = np.linspace(0.1, 0.7, 4).astype(np.float32), np.eye(4)
        result = []
        seeds = [rows, np.arange(4.0)], [np.ones((3, 4)) * [[1.0], [2.0], [3.0]], None]
        outs = {"y": "x"}, {"y": "x", "count": ((), np.int32)}
        for kernel, more, seed, out in zip((f, logged), ([0.5], []), seeds, outs):
            _, found = qd.ad.vjp(kernel, out=out)(*more, given, adjoints=seed)
            result.append({name: each.tolist() for name, each in found.items()})
        """,
    "function of PyTorch": """
        import torch
        array = qd.types.ndarray(qd.f32, 1)
        state = qd.field(qd.f32, shape=3, needs_grad=True)
        @qd.kernel
        def f(x: array, y: array):
            for i in x:
                state[i] = x[i] * x[i]
            for i in x:
                y[i] = state[i] * x[i]
        x = torch.tensor([1.0, 2.0, 3.0], requires_grad=True)
        qd.torch.function(f, out={"y": "x"})(x).sum().backward()
        result = x.grad.tolist()
        """,
    "returned value": """
        x = qd.field(qd.f32, shape=3, needs_grad=True)
        @qd.kernel
        def f() -> qd.f32:
            total = 0.0
            for i in x:
                total += x[i] * x[i]
            return total
        x.fill(2.0)
        with qd.ad.Tape(loss=f):
            r = f()
        result = [r, x.grad.to_numpy().tolist()]
        """,
    "returned vectors": """
        @qd.kernel
        def f(a: qd.f32) -> (qd.types.vector(2, qd.f32), qd.i32):
            return qd.Vector([a, 2.0 * a]), 7
        v, n = f(1.5)
        result = [v.to_list(), n]
        """,
    "overwritten array": """
        x = qd.field(qd.f32, shape=4, needs_grad=True)
        loss = qd.field(qd.f32, shape=(), needs_grad=True)
        @qd.kernel
        def step():
            for i in x:
                x[i] = qd.sin(x[i]) * x[i]
            for i in x:
                x[i] = x[i] * x[i]
        @qd.kernel
        def total():
            for i in x:
                loss[None] += x[i]
        x.fill(0.7)
        with qd.ad.Tape(loss=loss):
            for _ in range(3):
                step()
            total()
        result = [x.to_numpy().tolist(), x.grad.to_numpy().tolist()]
        """,
    "values that cross tasks": """
        x = qd.field(qd.f32, shape=4, needs_grad=True)
        loss = qd.field(qd.f32, shape=(), needs_grad=True)
        @qd.kernel
        def f():
            s = 0.0
            for i in x:
                s += x[i]
            for i in x:
                x[i] = x[i] * s
            for i in x:
                loss[None] += x[i] * x[i]
        x.fill(0.5)
        with qd.ad.Tape(loss=loss):
            f()
        result = [float(loss[None]), x.grad.to_numpy().tolist()]
        """,
    "what atomics return": """
        n = qd.field(qd.i32, shape=())
        x = qd.field(qd.f32, shape=6, needs_grad=True)
        y = qd.field(qd.f32, shape=6, needs_grad=True)
        loss = qd.field(qd.f32, shape=(), needs_grad=True)
        @qd.kernel
        def compact():
            for i in x:
                if x[i] > 0.0:
                    k = qd.atomic_add(n[None], 1)
                    y[k] = x[i] * x[i]
        @qd.kernel
        def total():
            for i in y:
                loss[None] += y[i]
        for i in range(6):
            x[i] = i - 2.0
        with qd.ad.Tape(loss=loss):
            compact()
            total()
        result = [float(loss[None]), x.grad.to_numpy().tolist()]
        """,
    "aliasing arguments": """
        @qd.kernel
        def f(a: qd.types.ndarray(), b: qd.types.ndarray()):
            for i in a:
                b[i] += a[i] * a[i]
        a = qd.ndarray(qd.f32, 3, needs_grad=True)
        loss = qd.field(qd.f32, shape=(), needs_grad=True)
        @qd.kernel
        def total(a: qd.types.ndarray()):
            for i in a:
                loss[None] += a[i]
        a.fill(2.0)
        with qd.ad.Tape(loss=loss):
            f(a, a)
            total(a)
        result = [a.to_numpy().tolist(), a.grad.to_numpy().tolist()]
        """,
    "trust and validation": """
        x = qd.field(qd.f32, shape=4, needs_grad=True)
        loss = qd.field(qd.f32, shape=(), needs_grad=True)
        @qd.kernel
        def f():
            for i in x:
                loss[None] += x[i] * x[i]
        x.fill(3.0)
        with qd.ad.Tape(loss=loss, on_overwrite="trust", validation=True):
            f()
        result = x.grad.to_numpy().tolist()
        """,
    "forward mode": """
        x = qd.field(qd.f32, shape=3, needs_dual=True)
        y = qd.field(qd.f32, shape=3, needs_dual=True)
        @qd.kernel
        def f():
            for i in x:
                y[i] = qd.exp(x[i])
        x.fill(0.5)
        with qd.ad.FwdMode(loss=y, param=x, seed=[1.0, 0.0, 2.0]):
            f()
        result = y.dual.to_numpy().tolist()
        """,
    "checkpointed steps": """
        x = qd.field(qd.f32, shape=2, needs_grad=True)
        loss = qd.field(qd.f32, shape=(), needs_grad=True)
        @qd.kernel
        def step():
            for i in x:
                x[i] = qd.sin(x[i]) + 0.1 * x[i]
        @qd.kernel
        def total():
            for i in x:
                loss[None] += x[i]
        x.fill(0.9)
        with qd.ad.Tape(loss=loss):
            qd.ad.checkpointed(lambda k: step(), 12, slots=3)
            total()
        result = [x.to_numpy().tolist(), x.grad.to_numpy().tolist()]
        """,
    "long loop in blocks": """
        x = qd.field(qd.f32, shape=2, needs_grad=True)
        y = qd.field(qd.f32, shape=2, needs_grad=True)
        @qd.kernel
        def f(n: qd.i32):
            for i in x:
                v = x[i]
                for _ in range(n):
                    v = qd.sin(v)
                y[i] = v
        x.fill(0.9)
        y.grad.fill(1.0)
        f(3000)
        f.grad(3000)
        result = x.grad.to_numpy().tolist()
        """,
    "numpy arguments": """
        import numpy as np
        @qd.kernel
        def f(a: qd.types.ndarray(), n: qd.i32):
            for i in range(a.shape[0]):
                a[i] += n
        a, b = np.zeros(3, np.float32), np.zeros((3, 2), np.int32)[:, 0]
        f(a, 2)
        f(b, 3)
        result = [a.tolist(), b.tolist()]
        """,
    "struct of fields": """
        ball = qd.types.struct(m=qd.f32, p=qd.types.vector(2, qd.f32))
        s = ball.field(shape=3)
        @qd.kernel
        def f():
            for i in s:
                s[i].m = i
                s[i].p = [i, 2 * i]
        f()
        result = [s.m.to_numpy().tolist(), s.p.to_numpy().tolist()]
        """,
    "dataclass argument": """
        import dataclasses
        @dataclasses.dataclass
        class State:
            a: qd.types.ndarray(qd.f32, 1)
            n: qd.i32
        @qd.kernel
        def f(s: State):
            for i in range(s.a.shape[0]):
                s.a[i] = i * s.n
        a = qd.ndarray(qd.f32, 3)
        f(State(a, 5))
        result = a.to_numpy().tolist()
        """,
    "random numbers": """
        x = qd.field(qd.f32, shape=3)
        @qd.kernel
        def f():
            for i in x:
                x[i] = qd.random()
        f()
        f()
        result = x.to_numpy().tolist()
        """,
    "linear algebra": """
        @qd.kernel
        def f() -> qd.f32:
            A = qd.Matrix([[2.0, 1.0], [1.0, 3.0]])
            U, S, V = qd.svd(A)
            return S[0, 0] * 100 + S[1, 1]
        result = f()
        """,
}


@pytest.mark.parametrize(("name", "careful"), each_once(list(PROGRAMS), [False, True]))
def test_the_same_from_the_cache(name: str, careful: bool, sessions: Sessions) -> None:
    if name == "function of PyTorch":
        pytest.importorskip("torch")
    options: dict[str, Any] = {"debug": careful, "deterministic": careful}
    if name == "long loop in blocks":
        options["ad_stack_budget_bytes"] = 1024
    cold = sessions.run(PROGRAMS[name], **options)
    assert cold.builds
    warm = sessions.run(PROGRAMS[name], **options)
    assert (warm.builds, warm.compiled) == (0, 0)
    assert warm.result == cold.result
    assert warm.warned == cold.warned
    without = sessions.run(PROGRAMS[name], offline_cache=False, **options)
    assert without.result == cold.result


def test_a_gradient_of_a_kernel_that_was_only_launched(sessions: Sessions) -> None:
    """The kernel is in the cache, its reverse is not: it is built again for that, and kept."""
    head, _, tail = PROGRAMS["bare gradient"].partition("        y.grad[None] = 1.0\n")
    sessions.run(head)
    assert tail
    first = sessions.run(PROGRAMS["bare gradient"])
    assert first.builds == 1
    again = sessions.run(PROGRAMS["bare gradient"])
    assert (again.builds, again.compiled) == (0, 0)
    assert again.result == first.result


MESSAGES = {
    "assert": """
        @qd.kernel
        def f(n: qd.i32):
            for i in range(4):
                assert i != n, f"item {i} is {n}"
        try:
            f(2)
            qd.sync()
        except qd.OctantsError as error:
            result = str(error)
        """,
    "bounds": """
        x = qd.field(qd.f32, shape=4)
        @qd.kernel
        def f(n: qd.i32):
            for i in range(n):
                x[i] = 1.0
        try:
            f(5)
            qd.sync()
        except qd.OctantsError as error:
            result = str(error)
        """,
    "overflow": """
        x = qd.field(qd.f32, shape=2, needs_grad=True)
        y = qd.field(qd.f32, shape=2, needs_grad=True)
        @qd.kernel
        def f(n: qd.i32):
            for i in x:
                v = x[i]
                for _ in range(n):
                    v = qd.sin(v)
                y[i] = v
        f(9)
        f.grad(9)
        try:
            qd.sync()
        except qd.OctantsError as error:
            result = str(error)
        """,
    "explain": r"""
        x = qd.field(qd.f32, shape=2, needs_grad=True)
        y = qd.field(qd.f32, shape=2, needs_grad=True)
        @qd.kernel
        def f(n: qd.i32):
            for i in x:
                v = x[i]
                for _ in range(n):
                    v = qd.sin(v)
                y[i] = v
        f(9)
        f.grad(9)
        import re
        result = re.sub(r"a launch\s+took.*?long", "", f.grad.explain(9).text(), flags=re.S)
        """,
    "inspect": """
        x = qd.field(qd.f32, shape=2)
        @qd.kernel
        def f(n: qd.i32):
            for i in x:
                x[i] = n
        f(9)
        result = f.inspect(9).stages["finish"]
        """,
    "cuts": """
        x = qd.field(qd.f32, shape=2, needs_grad=True)
        y = qd.field(qd.f32, shape=2)
        loss = qd.field(qd.f32, shape=(), needs_grad=True)
        @qd.kernel
        def f():
            for i in x:
                y[i] = x[i]
        @qd.kernel
        def g():
            for i in y:
                loss[None] += y[i]
        with qd.ad.Tape(loss=loss):
            f()
            g()
        result = 0
        """,
    "wrong argument": """
        import numpy as np
        a = np.zeros(3)
        a.flags.writeable = False
        @qd.kernel
        def f(a: qd.types.ndarray()):
            for i in a:
                a[i] = 1.0
        try:
            f(a)
        except qd.OctantsError as error:
            result = str(error)
        """,
}


@pytest.mark.parametrize("name", MESSAGES)
def test_the_same_messages(name: str, sessions: Sessions) -> None:
    options = (
        {"ad_stack_size": 4} if name == "overflow" else {"debug": name in ("assert", "bounds")}
    )
    cold = sessions.run(MESSAGES[name], **options)
    warm = sessions.run(MESSAGES[name], **options)
    assert warm.result == cold.result
    assert warm.warned == cold.warned
    if name not in ("explain", "inspect"):
        assert (warm.builds, warm.compiled) == (0, 0)


def test_the_same_prints(sessions: Sessions, capfd: pytest.CaptureFixture[str]) -> None:
    text = """
    @qd.kernel
    def f(n: qd.i32):
        for i in range(2):
            print("item", i, f"{n * 0.5:.2f}", qd.Vector([i, 7]))
    f(3)
    result = 0
    """
    sessions.run(text)
    cold = capfd.readouterr().out
    assert "item 1 1.50" in cold
    assert sessions.run(text).builds == 0
    assert capfd.readouterr().out == cold
