"""Docstrings of public names explain parameters, name errors, and show code that runs."""

from __future__ import annotations

import ast
import enum
import functools
import importlib
import inspect
import re
import runpy
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from scripts import api_reference

import octants as qd
from octants.internal_members import is_internal

PACKAGE = "octants"


@dataclass(frozen=True)
class Documented:
    """A public function, class or method, and the docstrings around it."""

    name: str
    value: Any
    around: str
    """The docstring of its class, or of its module."""

    @property
    def text(self) -> str:
        return inspect.getdoc(self.value) or ""

    @functools.cached_property
    def parameters(self) -> list[str]:
        """The parameters that a caller passes by name; not `*args` and `**named`."""
        if inspect.isclass(self.value) and is_internal(self.value, "__init__"):
            return []
        if inspect.isclass(self.value) and issubclass(self.value, (BaseException, enum.Enum)):
            return []
        if self.name in api_reference.OBJECTS:  # what functions return, and users do not make
            return []
        try:
            found = inspect.signature(self.value).parameters.values()
        except (TypeError, ValueError):
            return []
        collected = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
        named = [one.name for one in found if one.kind not in collected]
        return [name for name in named if name not in ("self", "cls") and name[0] != "_"]


def documented() -> dict[str, Documented]:
    """What docs/api.md describes, by name; a thing of several names under the first of them."""
    found: dict[int, Documented] = {}
    for module_name in ("", *api_reference.MODULES):
        module = functools.reduce(getattr, module_name.split("."), qd) if module_name else qd
        around = inspect.getdoc(module) or ""
        for name, value in api_reference.names_of_module(module_name).items():
            if inspect.isroutine(value) or inspect.isclass(value):
                found.setdefault(id(value), Documented(name, value, around))
    for name, value in api_reference.OBJECTS.items():
        found.setdefault(id(value), Documented(name, value, ""))
    for package in api_reference.NEED_PACKAGES:
        if importlib.util.find_spec(package):
            module = importlib.import_module(f"{PACKAGE}.{package}")
            for name in module.__all__:
                value = getattr(module, name)
                found[id(value)] = Documented(f"{package}.{name}", value, "")
    methods = [method for one in [*found.values()] for method in _methods(one)]
    return {one.name: one for one in (*found.values(), *methods)}


def _methods(one: Documented) -> Iterator[Documented]:
    if inspect.isclass(one.value) and one.name.partition(".")[0] not in ("torch", "jax"):
        for name, function in api_reference.members_of(one.value):
            yield Documented(f"{one.name}.{name}", function, one.text)


ALL = documented()


SECTION = r"^{}:\n((?:    .*\n?|\n(?=    ))+)"


def section(text: str, title: str) -> str:
    """A section of a docstring, such as `Args`; empty if there is none."""
    match = re.search(SECTION.format(title), text, re.MULTILINE)
    return textwrap.dedent(match[1]) if match else ""


def names_in_section(text: str) -> set[str]:
    """The names that `Args` and `Attributes` explain; a line may explain several."""
    lines = section(text, "Args") + section(text, "Attributes")
    heads = re.findall(r"^([\w, ]+):", lines, re.MULTILINE)
    return {name for head in heads for name in re.split(r", *", head)}


def names_in_code(text: str) -> set[str]:
    """The names that stand between backticks."""
    codes = (code for _, code in re.findall(r"(`+)([^`]+)\1", text))
    return {name for code in codes for name in re.findall(r"\w+", code)}


def unexplained(one: Documented) -> list[str]:
    """The parameters that a docstring does not explain.

    One parameter needs no name: the sentence is about it. Two or three may be explained in
    sentences, as code; four and more are in `Args`. Parameters that many functions share may be
    explained in the docstring of the class or the module, or of a function that this one names
    behind "see", "as for" or "of".
    """
    parameters = one.parameters
    if len(parameters) < 2:
        return []
    explained = names_in_section(one.text) | names_in_section(one.around)
    explained |= names_in_code(one.around)
    if len(parameters) < 4:
        explained |= names_in_code(one.text)
    for referred in re.findall(r"(?:[Ss]ee|as for|as in|of|like) `+([\w.]+)`", one.text):
        other = referred_to(one, referred)
        if other is not None:
            explained |= names_in_section(other.text) | names_in_code(other.text)
    return [name for name in parameters if name not in explained]


def referred_to(one: Documented, name: str) -> Documented | None:
    """What a docstring refers to: a name beside the own one, or one of the package."""
    home = one.name.rpartition(".")[0]
    candidates = (f"{home}.{name}", f"qd.{name}", f"qd.{name.removeprefix('octants.')}")
    return next((ALL[each] for each in candidates if each in ALL), None)


def test_all_is_found() -> None:
    assert len(ALL) > 400
    for name in ("qd.init", "qd.Tensor.fill", "qd.ad.Tape", "Gradient.explain"):
        assert name in ALL


def test_internal_members_are_no_part_of_it() -> None:
    for name in ("qd.Tensor.write", "qd.Field.write", "qd.ad.Tape.overwrite", "qd.Ndarray.read"):
        assert name not in ALL


def test_docstrings_explain_parameters() -> None:
    assert [name for name, one in ALL.items() if not one.text] == []
    assert {name: unexplained(one) for name, one in ALL.items() if unexplained(one)} == {}


def test_a_parameter_without_explanation_is_found() -> None:
    def move(x: float, y: float, z: float, by: float) -> None:
        """Move `x` and `y`.

        Args:
            x: how far.
            y, z: likewise.
        """

    def turn(x: float, by: float) -> None:
        """Turn `x` by ``2 * by``."""

    assert unexplained(Documented("qd.move", move, "")) == ["by"]
    assert unexplained(Documented("qd.move", move, "Args:\n    by: how often.\n")) == []
    assert unexplained(Documented("qd.turn", turn, "")) == []
    assert Documented("qd.turn", turn, "").parameters == ["x", "by"]


def raises_directly(function: Any) -> bool:
    """Whether a function itself has a `raise` of a new error."""
    try:
        (tree,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body
    except (OSError, TypeError):
        return False
    if isinstance(tree, ast.ClassDef):
        bodies = [n for n in tree.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"]
    else:
        bodies = [tree] if isinstance(tree, ast.FunctionDef) else []
    return any(raises_new(node) for body in bodies for node in statements_of(body))


def statements_of(function: ast.AST) -> Iterator[ast.AST]:
    """The nodes of a function, without those of functions in it."""
    for node in ast.iter_child_nodes(function):
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef, ast.Lambda)):
            yield node
            yield from statements_of(node)


def raises_new(node: ast.AST) -> bool:
    """Whether a node raises an error, other than the caught `error`."""
    if not isinstance(node, ast.Raise) or node.exc is None:
        return False
    return not ast.unparse(node.exc).startswith("error")


def names_errors(text: str) -> bool:
    return bool(section(text, "Raises")) or "Raises `" in text


def test_docstrings_name_errors() -> None:
    raising = [name for name, one in ALL.items() if raises_directly(one.value)]
    assert len(raising) > 25
    assert [name for name in raising if not names_errors(ALL[name].text)] == []


def test_a_raise_is_found() -> None:
    def refuse(x: int) -> None:
        if x:
            raise ValueError(x)

    def pass_on(x: int) -> None:
        try:
            refuse(x)
        except ValueError as error:
            raise error.with_traceback(None) from None

    assert raises_directly(refuse)
    assert not raises_directly(pass_on)
    assert names_errors("Do it.\n\nRaises:\n    ValueError: not now.\n")
    assert not names_errors("Raise a flag.")


EXAMPLE = re.compile(r"Example::\n\n((?:    .*\n?|\n(?=    ))+)")

PARTICLES = """
x = qd.field(qd.f64, shape=4, needs_grad=True)
y = qd.field(qd.f64, shape=4, needs_grad=True)
loss = qd.field(qd.f64, shape=(), needs_grad=True)

@qd.kernel
def step():
    for i in x:
        y[i] = x[i] * 2.0

@qd.kernel
def measure():
    for i in y:
        loss[None] += y[i] ** 2

simulate = lambda double=step: (double(), measure())
count_collisions = solve_pressure = solve_pressure_adjoint = step
"""

SPRINGS = """
@qd.kernel
def spring_energy(x: qd.types.ndarray(qd.f64, 1), k: float) -> float:
    energy = 0.0
    for i in range(x.shape[0] - 1):
        energy += 0.5 * k * (x[i + 1] - x[i] - 1.0) ** 2
    return energy

@qd.kernel
def spring_forces(
    x: qd.types.ndarray(qd.f64, 1), k: float, force: qd.types.ndarray(qd.f64, 1)
):
    for i in range(x.shape[0] - 1):
        force[i] += k * (x[i + 1] - x[i] - 1.0)
        force[i + 1] -= k * (x[i + 1] - x[i] - 1.0)

x = np.array([0.0, 1.5, 2.0])
v = np.ones(3)
"""

MATRIX = """
n = 4
builder = qd.linalg.SparseMatrixBuilder(n, n, max_num_triplets=3 * n)

@qd.kernel
def fill_diagonal(K: qd.types.sparse_matrix_builder()):
    for i in range(n):
        K[i, i] += 2.0

fill_diagonal(builder)
A, b = builder.build(), np.ones(n, np.float32)
"""

ROOTS = """
vec = qd.types.ndarray(qd.f64, 1)
x, stiffness = (qd.ndarray(qd.f64, 4, needs_grad=True) for _ in range(2))
loss = qd.ndarray(qd.f64, (), needs_grad=True)
stiffness.fill(1.0)

@qd.kernel
def measure(x: vec, loss: qd.types.ndarray(qd.f64, 0)):
    for i in x:
        loss[None] += x[i]

def found(x, stiffness):
    x.fill(0.6823278038280193)
"""

CALLS = """
x, loss = qd.ndarray(qd.f32, 4, needs_grad=True), qd.ndarray(qd.f32, (), needs_grad=True)

@qd.kernel
def step(x: qd.types.ndarray(), loss: qd.types.ndarray()):
    for i in x:
        loss[None] += x[i] ** 2
"""

WITH_TORCH = """
import torch
import octants.torch
"""

WITH_JAX = """
import jax
import jax.numpy as jnp
import octants.jax
"""

NETWORK = """
x, y = (qd.ndarray(qd.f32, 4, needs_grad=True) for _ in range(2))
qd_array = qd.types.ndarray(qd.f32, 1)

@qd.kernel
def simulate(x: qd_array, y: qd_array):
    for i in x:
        y[i] = 2.0 * x[i]
"""

BEFORE = {
    "qd.BufferView": "x = qd.ndarray(qd.f32, 100)\n",
    "qd.ad.Tape": PARTICLES,
    "qd.ad.no_grad": PARTICLES,
    "qd.ad.grad_replaced": PARTICLES,
    "qd.ad.checkpointed": PARTICLES,
    "qd.ad.clear_all_gradients": PARTICLES,
    "qd.graph.capture": PARTICLES,
    "Gradient": CALLS,
    **dict.fromkeys(("qd.ad.hessian", "qd.ad.hvp", "qd.ad.jacobian"), SPRINGS),
    **dict.fromkeys(("qd.ad.jvp", "qd.ad.vjp"), SPRINGS),
    "qd.ad.implicit": ROOTS,
    "qd.linalg.SparseSolver": MATRIX,
    "qd.linalg.SparseCG": MATRIX,
    "qd.linalg.SparseMatrixBuilder": "n = 4\n",
    "qd.ui.GUI": "positions = np.array([[0.2, 0.3], [0.5, 0.5]])\n",
    "qd.ui.Window": "pixels = np.zeros((640, 480, 3))\n",
    "ValueAndGrad.flat": SPRINGS
    + """
import scipy.optimize

@qd.kernel
def misfit(
    stiffness: float, mass: float, data: qd.types.ndarray(qd.f64, 1),
    loss: qd.types.ndarray(qd.f64, 0),
):
    for i in data:
        loss[None] += (stiffness * i + mass - data[i]) ** 2

k0, m0, data = 1.0, 2.0, np.arange(4.0)
""",
    "HessianProduct.flat": SPRINGS + "import scipy.optimize\nx0 = x\n",
    "torch.function": WITH_TORCH,
    "torch.Module": WITH_TORCH
    + """
f32_2 = qd.types.ndarray(qd.f32, 2)

@qd.kernel
def dense(x: f32_2, w: f32_2, y: f32_2):
    for i, j in y:
        for k in range(x.shape[1]):
            y[i, j] += x[i, k] * w[k, j]

x = torch.ones(2, 4)
""",
    "torch.loss": WITH_TORCH
    + NETWORK
    + "network, target = torch.nn.Linear(4, 4), torch.zeros(4)\n",
    "jax.function": WITH_JAX,
    "jax.loss": WITH_JAX + NETWORK + "target = jnp.zeros(4)\n",
}
"""What stands before an example: the names that it takes for granted."""

HOST_ONLY = "import numpy as np\nimport octants as qd\nqd.init(arch=qd.cpu, default_fp=qd.f64)\n"
WITH_EXAMPLES = [name for name in ALL if EXAMPLE.search(ALL[name].text)]

CALLED_OFTEN = """
    init kernel func field ndarray array Vector.field Matrix types.vector types.struct dataclass
    data_oriented template types.ndarray Template SNode.place static ndrange loop_config random
    atomic_add stop_grad BufferView BitpackedFields from_dlpack
    ad.Tape ad.FwdMode ad.no_grad ad.grad_replaced ad.checkpointed ad.implicit
    ad.value_and_grad ad.hvp ad.jvp ad.vjp ad.jacobian ad.hessian
    graph.capture graph_do_while
    algorithms.sort algorithms.parallel_sort algorithms.PrefixSumExecutor algorithms.select
    algorithms.reduce_add algorithms.exclusive_scan_add
    linalg.SparseMatrixBuilder linalg.SparseSolver linalg.SparseCG linalg.MatrixFreeCG
    simt.block.SharedArray ui.GUI ui.Window
""".split()


@pytest.mark.parametrize("name", CALLED_OFTEN)
def test_what_is_called_often_has_an_example(name: str) -> None:
    value = functools.reduce(getattr, name.split("."), qd)
    assert EXAMPLE.search(inspect.getdoc(value) or "")


def test_names_before_examples_are_needed() -> None:
    missing = {name for name in BEFORE if name.partition(".")[0] not in ("torch", "jax")}
    assert missing <= set(WITH_EXAMPLES)
    assert len(WITH_EXAMPLES) > 45
    with_the_word = [name for name in ALL if re.search(r"Example:*$", ALL[name].text, re.MULTILINE)]
    assert with_the_word == WITH_EXAMPLES


@pytest.mark.parametrize("name", WITH_EXAMPLES)
def test_example_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = EXAMPLE.findall(ALL[name].text)
    code = textwrap.dedent(code)
    if name == "qd.ad.implicit":
        code = code.replace("    ...  #", "    found(x, stiffness)  #")
    if name == "qd.init":
        code = code.replace("qd.gpu", "qd.cpu")
    script = tmp_path / "example.py"
    script.write_text(HOST_ONLY + BEFORE.get(name, "") + code)
    monkeypatch.chdir(tmp_path)
    try:
        runpy.run_path(str(script))
    finally:
        qd.reset()
