"""Random programs, in f32 and f64, on the arch of the tests: not one disagreement."""

from __future__ import annotations

import sys

import pytest

from octants.fuzz import __main__ as command
from octants.fuzz import runner
from octants.fuzz.backends import BACKENDS, Backend
from octants.fuzz.report import Report
from tests.devices import ARCH, on_cpu

PARTS, PROGRAMS = 20, 100 if ARCH == "cpu" else 50  # more by `python -m octants.fuzz`
QUICK = 4  # programs of a test that always runs; half of them in f64
MOST_SET_ASIDE = 0.15  # of a part; over all parts it is below 10 %
LEAST_NONZERO = 0.6

pytestmark = pytest.mark.filterwarnings("ignore:the (gradient|tangent) ends")


@pytest.fixture(scope="module", params=[ARCH])
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param]()


def test_some_programs_agree_with_the_oracle(backend: Backend) -> None:
    _check(_alternating(0, QUICK), backend)


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(900)
def test_programs_agree_with_the_oracle(part: int, backend: Backend) -> None:
    _check(runner.cases(part * PROGRAMS, PROGRAMS, runner.PRECISIONS), backend)


@on_cpu
@pytest.mark.parametrize("count", [QUICK, pytest.param(50, marks=pytest.mark.slow)])
def test_programs_agree_on_the_interpreter(count: int) -> None:
    _check(_alternating(50_000, count), BACKENDS["interpreter"]())


@pytest.mark.parametrize("count", [QUICK, pytest.param(50, marks=pytest.mark.slow)])
def test_programs_agree_with_fast_math(count: int) -> None:
    _check(_alternating(70_002, count), BACKENDS[f"{ARCH}-fast"]())


def test_a_backend_that_cannot_be_used_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["fuzz", "--backend", "metal-strict"])
    monkeypatch.setattr(command, "obstacle_to", lambda arch: f"{arch} is not here")
    with pytest.raises(SystemExit, match="backend metal-strict cannot be used: metal is not here"):
        command.main()


def _alternating(seed: int, count: int) -> list[runner.Case]:
    return [(seed + k, runner.PRECISIONS[k % 2], "core") for k in range(count)]


def _check(chosen: list[runner.Case], backend: Backend) -> None:
    report = Report(backend.name)
    for start in range(0, len(chosen), runner.CHUNK):
        for entry in runner.work(chosen[start : start + runner.CHUNK], backend, shrinks=True):
            report.add(entry)
    assert not report.wrong, report.text() + _findings(report)
    assert report.count - report.compared <= MOST_SET_ASIDE * len(chosen)
    assert report.nonzero >= LEAST_NONZERO * len(chosen)


def _findings(report: Report) -> str:
    return "\n".join(
        f"\n{entry['command']}\n{entry['problems']}\n{entry['source']}" for entry in report.findings
    )
