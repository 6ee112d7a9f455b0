"""What CONTRIBUTING.md says an addition takes.

Its files exist, and a pass, a backend and an error that are added while the tests run need no more.
`tests/ir/test_new_operation.py` adds operations.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

import octants as qd
from octants import pipeline
from octants.backends import table
from octants.backends.python import PythonBackend
from octants.diagnostics.errors import UserError
from octants.ir import ops
from octants.ir.core import Module
from octants.options import Options
from octants.pipeline import Pass, Stage, finish
from octants.runtime.device import Device
from octants.target import Capabilities
from tests.ir.parser import parse

REPOSITORY = Path(__file__).parent.parent
SOURCE = REPOSITORY / "src" / "octants"
PAGE = (REPOSITORY / "CONTRIBUTING.md").read_text()
KINDS = ("An operation", "A function", "A pass", "A backend", "An error")


def files(kind: str) -> list[list[str]]:
    """The files of each row of the table of a kind of addition."""
    section = PAGE.partition(f"\n## {kind}\n")[2].partition("\n## ")[0]
    rows = re.findall(r"^\| (`.*?) \| ", section, re.MULTILINE)
    return [re.findall(r"`([^`]+)`", row) for row in rows]


@pytest.mark.parametrize("kind", KINDS)
def test_the_files_of_an_addition_exist(kind: str) -> None:
    named = [name for row in files(kind) for name in row]
    assert named
    for name in named:
        root = REPOSITORY if name.startswith("tests/") else SOURCE
        if "<" not in name:
            assert (root / name).exists(), name
            continue
        pattern = re.sub(r"<\w+>", "*", name)
        assert list(root.glob(pattern)), name


def test_an_operation_takes_eight_files_at_most() -> None:
    assert len([name for row in files("An operation") for name in row]) <= 8


# -- a pass ----------------------------------------------------------------------------------------

TEXT = """\
kernel @k
array @x: f32, 1, ndarray, () [primal]
parallel @k_0 {
  %0: i32 = constant<0>()
  %1: i32 = shape<@x, 0>()
  yield(%0, %1)
} { (%2: i32):
  %3: f32 = load<@x, primal>(%2)
  %4: f32 = unary<neg>(%3)
  store<@x, primal>(%4, %2)
  yield()
}
"""


def negate_nothing(module: Module) -> None:
    """Replace negations by absolute values."""
    for op in module.walk():
        if isinstance(op, ops.Unary) and op.fn == "neg":
            op.fn = "abs"


@pytest.mark.parametrize("is_wanted", [True, False])
def test_a_pass_is_a_row(is_wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Pass(
        "negate_nothing",
        lambda module, _: negate_nothing(module),
        "for the test",
        lambda machine: machine.deterministic is is_wanted,
    )
    monkeypatch.setattr(pipeline, "FINISH", (*pipeline.FINISH, row))
    seen: list[str] = []
    stage = Stage(Capabilities(deterministic=True), True, lambda name, _: seen.append(name))
    result = finish(parse(TEXT), stage)
    found = [op.fn for op in result.walk() if isinstance(op, ops.Unary)]
    assert found == (["abs"] if is_wanted else ["neg"])
    assert ("negate_nothing" in seen) is is_wanted


# -- a backend -------------------------------------------------------------------------------------


class Counting(PythonBackend):
    """Runs kernels by the interpreter, and counts how often it is asked for capabilities."""

    name = "amdgpu"

    def __init__(self) -> None:
        self.asked = 0

    def machine(self, chosen: Options, device: Device | None) -> Capabilities:
        self.asked += 1
        return super().machine(chosen, device)

    def obstacle(self) -> str:
        return ""


def test_a_backend_is_a_row(monkeypatch: pytest.MonkeyPatch) -> None:
    made = Counting()
    monkeypatch.setitem(table._ROWS, "amdgpu", SimpleNamespace(BACKEND=made))
    qd.init(arch=qd.amdgpu, log_level="error", offline_cache=False)
    x = qd.field(qd.f32, 4, needs_grad=True)
    loss = qd.field(qd.f32, (), needs_grad=True)

    @qd.kernel
    def squares():
        for i in x:
            loss[None] += x[i] * x[i]

    x.from_numpy(np.arange(4, dtype=np.float32))
    with qd.ad.Tape(loss):
        squares()
    assert loss[None] == 14.0
    assert x.grad.to_numpy().tolist() == [0.0, 2.0, 4.0, 6.0]
    assert made.asked


# -- an error --------------------------------------------------------------------------------------


class WrongColour(UserError):
    """A colour that there is not."""

    colour: str
    code = "OCT999"
    exception = qd.OctantsTypeError
    title = "`{colour}` is no colour"
    remedy = "use `red`"


def test_an_error_is_a_class() -> None:
    error = WrongColour("sour").at()
    assert isinstance(error, qd.OctantsTypeError)
    assert str(error) == "OCT999: `sour` is no colour\n  help: use `red`"
