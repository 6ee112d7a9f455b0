"""The fuzzer finds faults: each that is put into the autodiff, within 200 programs."""

from __future__ import annotations

import pytest

from octants.fuzz.backends import BACKENDS, Backend
from octants.fuzz.compare import Status, check
from octants.fuzz.generator.build import generate
from tests.fuzz.faults import FAULTS, INTERPRETED, Fault, let_work_items_overtake

FIRST_SEED = 100_000
MOST = 200

pytestmark = pytest.mark.filterwarnings("ignore:the gradient ends")


@pytest.fixture(scope="module")
def backend() -> Backend:
    return BACKENDS["cpu"]()


@pytest.mark.parametrize("fault", [*FAULTS, *INTERPRETED], ids=lambda fault: fault.__name__)
def test_fault_is_found(fault: Fault, backend: Backend, monkeypatch: pytest.MonkeyPatch) -> None:
    fault(monkeypatch)
    if fault in INTERPRETED:
        backend = BACKENDS["interpreter"]()
    for number in range(MOST):
        (verdict,) = check([generate(FIRST_SEED + number, "f64")], backend)
        assert verdict.status is not Status.FAILS, verdict.problems
        if verdict.status is Status.DISAGREES:
            assert any("gradient" in problem for problem in verdict.problems), verdict.problems
            print(f"{fault.__name__}: found by program {number + 1}")
            return
    pytest.fail(f"not found in {MOST} programs")


def test_the_same_programs_agree_without_faults(backend: Backend) -> None:
    for number in range(30):
        (verdict,) = check([generate(FIRST_SEED + number, "f64")], backend)
        assert verdict.status in (Status.AGREES, Status.SET_ASIDE), verdict.problems


def test_work_items_that_overtake_each_other_change_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    let_work_items_overtake(monkeypatch)
    backend = BACKENDS["interpreter"]()
    for number in range(30):
        (verdict,) = check([generate(FIRST_SEED + number, "f64")], backend)
        assert verdict.status in (Status.AGREES, Status.SET_ASIDE), verdict.problems
