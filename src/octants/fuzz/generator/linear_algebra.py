"""Systems, polar factors, singular values and eigenvalues of small matrices, all well-conditioned.

Singular vectors and eigenvectors are used in products that do not depend on their signs. Values
that nearly agree are used in symmetric functions.
"""

from __future__ import annotations

from octants.fuzz.generator.context import Context, Productions

_SHARE = 0.05
"""The factor of a matrix of locals, whose components are at most 3, beside a constant diagonal."""


def statement(c: Context) -> bool | None:
    """A decomposition or a solution, which some variable adds."""
    variables = c.variables("f", (), assignable=True)
    if not variables or c.depth > 4 or not c.affordable(3.0):
        return None
    n, made = c.pick([2, 2, 3]), c.shared.fresh
    matrix, target = made("v"), c.pick(variables).name
    c.emit(f"{matrix} = {_SHARE} * ({c.vector((n, n), 2)})")
    i, j, k = (c.integer(0, n - 1) for _ in range(3))
    kind = c.pick(["solve", "polar_decompose", "svd", "sym_eig", "make_spd"])
    c.note(kind)
    if kind in ("svd", "sym_eig", "make_spd") and c.chance(0.6):
        c.note("nearly equal values")
        near = made("v")
        change = f"{1.0 / _SHARE} * ({matrix} - qd.stop_grad({matrix}))"
        c.emit(f"{near} = {change} + {_nearly_equal(c, n)}")
        value = _symmetric(c, kind, near, n)
    elif kind == "solve":
        right = c.vector((n,), 1)
        value = f"qd.sin(qd.solve({matrix} + {_diagonal(n, 1.0, 0.5)}, {right})[{k}])"
    elif kind == "polar_decompose":
        u, p = made("v"), made("v")
        c.emit(f"{u}, {p} = qd.polar_decompose({matrix} + {_diagonal(n, 1.5, 0.0)})")
        value = f"{u}[{i}, {j}] * {p}[{j}, {k}]"
    elif kind == "svd":
        u, s, v = made("v"), made("v"), made("v")
        c.emit(f"{u}, {s}, {v} = qd.svd({matrix} + {_diagonal(n, 1.0, 1.0)})")
        value = f"({u} @ {v}.transpose())[{i}, {j}] * {s}[{k}, {k}]"
        if c.chance(0.5):
            value = f"{s}[{k}, {k}] + {u}[{i}, {k}] * {v}[{j}, {k}]"
    elif kind == "sym_eig":
        values, v = made("v"), made("v")
        c.emit(f"{values}, {v} = qd.sym_eig({matrix} + {_diagonal(n, -1.0, 2.0)})")
        value = f"{values}[{k}] * {v}[{i}, {k}] * {v}[{j}, {k}]"
    else:
        value = f"qd.make_spd({matrix} + {_diagonal(n, -1.0, 2.0)})[{i}, {j}]"
    c.emit(f"{target} = 0.5 * {target} + 0.2 * {value}")
    return True


def _symmetric(c: Context, kind: str, matrix: str, n: int) -> str:
    """A function that does not depend on vectors, with derivatives of all components."""
    if kind == "make_spd":
        return f"qd.make_spd({matrix})[{c.integer(0, n - 1)}, {c.integer(0, n - 1)}]"
    values = c.shared.fresh("v")
    u, v = c.shared.fresh("v"), c.shared.fresh("v")
    results = f"{u}, {values}, {v}" if kind == "svd" else f"{values}, {v}"
    c.emit(f"{results} = qd.{kind}({matrix})")
    index = "[{0}, {0}]" if kind == "svd" else "[{0}]"
    items = [values + index.format(k) for k in range(n)]
    return f"({' + '.join(f'{item} ** 3' for item in items)} + {' * '.join(items)})"


def _nearly_equal(c: Context, n: int) -> str:
    """A symmetric matrix whose eigenvalues are close to 1, and differ by little."""
    gap = c.pick([1e-5, 1e-4])
    x = [c.integer(1, 9) for _ in range(n)]
    scale = gap / sum(item * item for item in x)
    rows = [[float(i == j) + scale * x[i] * x[j] for j in range(n)] for i in range(n)]
    return f"qd.Matrix({rows})"


def _diagonal(n: int, first: float, step: float) -> str:
    rows = [[first + i * step if i == j else 0.0 for j in range(n)] for i in range(n)]
    return f"qd.Matrix({rows})"


PRODUCTIONS = Productions(statements=((16.0, statement),))
