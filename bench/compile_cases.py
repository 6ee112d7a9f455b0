"""Programs whose compilation is timed: sources of modules, of any size.

A source names its system ``qd``, by an import of its own, and has functions ``forward`` and
``backward`` that launch what is compiled. Loop bounds that are not constants are in fields.
`for_warp` makes of a source one for Warp, whose language has the same statements.
"""
# mypy: ignore-errors

from __future__ import annotations

from collections.abc import Callable

HEAD = """
x = qd.field(qd.f32, shape=64, needs_grad=True)
y = qd.field(qd.f32, shape=64, needs_grad=True)
n = qd.field(qd.i32, shape=())
n[None] = 2
x.fill(0.5)

def forward():
    k()

def backward():
    k.grad()

"""
STEPS = (
    "v = qd.sin(v) * 0.95 + 0.01 * w",
    "w = w * v * 0.5 + 0.1",
    "v = v * v * 0.3 + w",
    "w = qd.cos(w) * 0.7 + v * 0.1",
)


def kernel(lines: list[str], parameters: str = "", head: str = HEAD) -> str:
    """A module with one kernel of these lines."""
    body = "\n".join(f"    {line}" for line in lines)
    return f"{head}@qd.kernel\ndef k({parameters}):\n{body}\n"


WARP_HEAD = """
x = qd.full(64, value=0.5, dtype=float, requires_grad=True)
y = qd.zeros(64, dtype=float, requires_grad=True)
n = qd.full(1, value=2, dtype=int)

def forward():
    qd.launch(k, dim=64, inputs=[x, y, n])

def backward():
    qd.launch(k, dim=64, inputs=[x, y, n], adjoint=True, adj_inputs=[x.grad, y.grad, None])

@qd.kernel
def k(x: qd.array(dtype=float), y: qd.array(dtype=float), n: qd.array(dtype=int)):
    i = qd.tid()
"""


def for_warp(source: str) -> str:
    """The same kernel in the language of Warp, which has arrays as arguments, and no fields."""
    _, _, body = source.partition("    for i in x:\n")
    lines = [line.removeprefix("    ") for line in body.replace("n[None]", "n[0]").splitlines()]
    return WARP_HEAD + "\n".join(lines) + "\n"


def chain(size: int) -> str:
    """So many nonlinear statements, each needing the last one's result, in a dynamic loop."""
    steps = [f"        {STEPS[number % len(STEPS)]}" for number in range(size)]
    lines = ["for i in x:", "    v = x[i]", "    w = v", "    for _ in range(n[None]):", *steps]
    return kernel([*lines, "    y[i] = v + w"])


def straight(size: int) -> str:
    """So many nonlinear statements without a loop."""
    steps = ["    v = qd.sin(v) * 0.99 + x[i] * 0.01"] * size
    return kernel(["for i in x:", "    v = x[i]", *steps, "    y[i] = v"])


def rotation(_: int) -> str:
    """A rotation matrix and an angular velocity, integrated."""
    return kernel(
        [
            "for i in x:",
            "    w = qd.Vector([x[i], 0.3, 0.5 * x[i]])",
            "    r = qd.Matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])",
            "    for _ in range(n[None]):",
            "        s = qd.Matrix([[0.0, -w[2], w[1]], [w[2], 0.0, -w[0]], [-w[1], w[0], 0.0]])",
            "        a = 0.01 * s",
            "        e = qd.Matrix([[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]])",
            "        r = r @ (e + a + 0.5 * (a @ a))",
            "        w = w + 0.01 * w.cross(r @ w)",
            "    y[i] = r[0, 1] + r[2, 2] + w[0]",
        ]
    )


def pendulum(_: int) -> str:
    """A double pendulum of four variables, by the method of Runge and Kutta."""
    head = (
        HEAD
        + """
@qd.func
def slope(s):
    d = s[1] - s[0]
    c, z = qd.cos(d), qd.sin(d)
    m = 2.0 - c * c
    a = (s[2] * s[2] * z * c + 9.81 * qd.sin(s[1]) * c + s[3] * s[3] * z
         - 2.0 * 9.81 * qd.sin(s[0])) / m
    b = (-s[3] * s[3] * z * c
         + 2.0 * (9.81 * qd.sin(s[0]) * c - s[2] * s[2] * z - 9.81 * qd.sin(s[1]))) / m
    return qd.Vector([s[2], s[3], a, b])

"""
    )
    lines = [
        "for i in x:",
        "    s = qd.Vector([x[i], 0.3, 0.0, 0.1])",
        "    for _ in range(n[None]):",
        "        a = slope(s)",
        "        b = slope(s + 0.005 * a)",
        "        c = slope(s + 0.005 * b)",
        "        d = slope(s + 0.01 * c)",
        "        s = s + (0.01 / 6.0) * (a + 2.0 * b + 2.0 * c + d)",
        "    y[i] = s[0] + s[1]",
    ]
    return kernel(lines, head=head)


def branches(size: int) -> str:
    """So many `if`s in a dynamic loop, one after the other."""
    lines = ["for i in x:", "    v = x[i]", "    for j in range(n[None]):"]
    for number in range(size):
        lines.append(f"        if v > 0.{number % 10}:")
        lines.append("            v = v * 0.9 + 0.1 * v * v")
        lines.append("        else:")
        lines.append("            v = v * v * 0.5 + 0.3")
    return kernel([*lines, "    y[i] = v"])


def nested_branches(size: int) -> str:
    """`if`s within each other, so many deep."""
    lines = ["for i in x:", "    v = x[i]", "    for j in range(n[None]):"]
    for number in range(size):
        lines.append("    " * (2 + number) + f"if v > 0.001 * {number}:")
        lines.append("    " * (3 + number) + "v = v * 0.9 + 0.1 * v * v")
    return kernel([*lines, "    y[i] = v"])


def alternatives(size: int) -> str:
    """A chain of so many `elif`s in a dynamic loop."""
    return kernel(chosen(size, ["v = v * 0.9 + 0.1 * v * v * #.5"], in_loop=True))


def alternative_loops(size: int) -> str:
    """A chain of so many `elif`s with a dynamic loop in each."""
    return kernel(chosen(size, ["for j in range(n[None]):", "    v = v * v * 0.5 + 0.#"]))


def chosen(size: int, work: list[str], in_loop: bool = False) -> list[str]:
    """The lines of a kernel that chooses between so many versions of some work."""
    lines = ["for i in x:", "    v = x[i]", *["    for t in range(n[None]):"] * in_loop]
    indent = "        " if in_loop else "    "
    for number in range(size):
        lines.append(f"{indent}{'el' * (number > 0)}if v > 1.0 - {number + 1}.0 / {size}.0:")
        lines += [f"{indent}    {line.replace('#', str(number))}" for line in work]
    return [*lines, "    y[i] = v"]


def unrolled(size: int) -> str:
    """A static loop over vectors of three, unrolled to so many statements."""
    return kernel(
        [
            "for i in x:",
            "    v = qd.Vector([x[i], 0.5, 0.25])",
            f"    for _ in qd.static(range({size // 5})):",
            "        w = qd.Vector([v[1], v[2], v[0]])",
            "        v = v + 0.01 * w * v",
            "        v[0] = v[0] * 0.99 + w[1]",
            "        w[2] = v[1] * v[2]",
            "        v = v * 0.5 + w * 0.25",
            "    y[i] = v.sum()",
        ]
    )


def layers(size: int) -> str:
    """So many unrolled layers of 32 by 32 weights."""
    head = HEAD + "weights = qd.field(qd.f32, shape=(32, 32), needs_grad=True)\n\n"
    lines = ["for i in x:", "    h = qd.Vector([x[(i + j) % 64] for j in range(32)])"]
    lines += [f"    for _ in qd.static(range({size})):", "        o = h"]
    lines += ["        for a in qd.static(range(32)):", "            s = 0.0"]
    lines += [
        "            for b in qd.static(range(32)):",
        "                s += weights[a, b] * h[b]",
    ]
    return kernel(
        [*lines, "            o[a] = qd.tanh(s)", "        h = o", "    y[i] = h.sum()"], head=head
    )


def matrices(size: int) -> str:
    """So many products of matrices of three by three in a dynamic loop."""
    start = "qd.Matrix([[x[i], 0.1, 0.2], [0.3, 0.4, 0.5], [0.6, 0.7, 0.8]])"
    lines = ["for i in x:", f"    a = {start}", "    m = a", "    for _ in range(n[None]):"]
    lines += ["        m = 0.1 * (m @ a) + 0.5 * m"] * size
    return kernel([*lines, "    y[i] = m[0, 0] + m[1, 2]"])


def components(size: int) -> str:
    """A vector of eight, read and written by so many run-time indices."""
    lines = ["for i in x:", "    v = qd.Vector([x[i], 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7])"]
    lines += ["    for j in range(n[None]):"]
    for number in range(size):
        lines.append(f"        v[(i + {number}) % 8] = v[(j + {number}) % 8] * v[i % 8] + 0.1")
    return kernel([*lines, "    y[i] = v.sum()"])


def loops(size: int) -> str:
    """Loops within each other, so many deep."""
    lines = ["for i in x:", "    v = x[i]"]
    for depth in range(size):
        lines.append("    " * (1 + depth) + f"for j{depth} in range(n[None]):")
        lines.append("    " * (2 + depth) + "v = v * 0.9 + 0.1 * v * v")
    return kernel([*lines, "    y[i] = v"])


def while_loops(size: int) -> str:
    """Loops within each other, so many deep, of which every other one is a `while`."""
    lines = ["for i in x:", "    v = x[i]"]
    for depth in range(size):
        indent = "    " * (1 + depth)
        if depth % 2 == 0:
            lines.append(f"{indent}for j{depth} in range(n[None]):")
        else:
            lines.append(f"{indent}c{depth} = 0")
            lines.append(f"{indent}while c{depth} < n[None]:")
            lines.append(f"{indent}    c{depth} += 1")
        lines.append(f"{indent}    v = qd.sin(v) * 0.9 + 0.1 * x[i]")
    return kernel([*lines, "    y[i] = v"])


def stores(size: int) -> str:
    """So many statements that read and write arrays."""
    lines = ["for i in x:"]
    lines += [f"    y[i] += x[(i + {number}) % 64] * x[i]" for number in range(size)]
    return kernel(lines)


def arguments(size: int) -> str:
    """A kernel of so many arguments."""
    head = HEAD.replace("k()", "k(*values)").replace("k.grad()", "k.grad(*values)")
    head += f"values = [0.5] * {size}\n"
    parameters = ", ".join(f"a{number}: qd.f32" for number in range(size))
    lines = ["for i in x:", "    v = x[i]"]
    lines += [f"    v += a{number} * v" for number in range(size)]
    return kernel([*lines, "    y[i] = v"], parameters, head)


def kernels(size: int) -> str:
    """So many small kernels."""
    text = HEAD.replace("    k()", "    for each in ALL:\n        each()")
    text = text.replace("    k.grad()", "    for each in ALL:\n        each.grad()")
    for number in range(size):
        text += f"@qd.kernel\ndef k{number}():\n    for i in x:\n"
        text += f"        y[i] += qd.sin(x[i]) * {number}.5\n\n"
    return text + f"ALL = [{', '.join(f'k{number}' for number in range(size))}]\n"


CASES: dict[str, tuple[Callable[[int], str], tuple[int, ...]]] = {
    "chain": (chain, (50, 100, 200, 500, 1000, 2000)),
    "straight": (straight, (100, 1000)),
    "rotation": (rotation, (1,)),
    "pendulum": (pendulum, (1,)),
    "branches": (branches, (50, 500)),
    "nested_branches": (nested_branches, (8, 16)),
    "alternatives": (alternatives, (10, 40)),
    "alternative_loops": (alternative_loops, (10, 40)),
    "unrolled": (unrolled, (500, 5000)),
    "layers": (layers, (1, 2, 4)),
    "matrices": (matrices, (5, 50)),
    "components": (components, (10, 100)),
    "loops": (loops, (4, 6, 8)),
    "while_loops": (while_loops, (4, 6)),
    "stores": (stores, (50, 500)),
    "arguments": (arguments, (20, 200)),
    "kernels": (kernels, (10, 100)),
}

IN_WARP = ("chain", "branches", "nested_branches", "alternatives", "alternative_loops", "loops")
"""The cases that `for_warp` can translate."""
