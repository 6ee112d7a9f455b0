"""Random programs, in f32 and f64, on the arch of the tests: not one disagreement."""

from __future__ import annotations

import pytest

from octants.fuzz import runner
from octants.fuzz.backends import BACKENDS, Backend
from octants.fuzz.report import Report
from tests.apart import ARCH, on_cpu

PARTS, QUICK = 20, 3  # more by the command: see `python -m octants.fuzz --help`
PROGRAMS = 100 if ARCH == "cpu" else 50  # a part
MOST_SET_ASIDE = PROGRAMS * 0.15  # of a part; over all parts it is below 10 %
LEAST_NONZERO = PROGRAMS * 0.7

pytestmark = pytest.mark.filterwarnings("ignore:the gradient ends")


@pytest.fixture(scope="module", params=[ARCH])
def backend(request: pytest.FixtureRequest) -> Backend:
    return BACKENDS[request.param]()


@pytest.mark.parametrize(
    "part", [*range(QUICK), *(pytest.param(k, marks=pytest.mark.slow) for k in range(QUICK, PARTS))]
)
@pytest.mark.timeout(900)
def test_programs_agree_with_the_oracle(part: int, backend: Backend) -> None:
    report = Report(backend.name)
    chosen = runner.cases(part * PROGRAMS, PROGRAMS, runner.PRECISIONS)
    for start in range(0, PROGRAMS, runner.CHUNK):
        for entry in runner.work(chosen[start : start + runner.CHUNK], backend, shrinks=True):
            report.add(entry)
    assert not report.wrong, report.text() + _findings(report)
    assert report.count - report.compared <= MOST_SET_ASIDE
    assert report.nonzero >= LEAST_NONZERO  # of those compared


@on_cpu
def test_programs_agree_on_the_interpreter() -> None:
    report = Report("interpreter")
    chosen = runner.cases(50_000, 50, runner.PRECISIONS)
    for start in range(0, len(chosen), runner.CHUNK):
        chunk = chosen[start : start + runner.CHUNK]
        for entry in runner.work(chunk, BACKENDS["interpreter"](), shrinks=True):
            report.add(entry)
    assert not report.wrong, report.text() + _findings(report)


def test_programs_agree_with_fast_math() -> None:
    backend = BACKENDS[f"{ARCH}-fast"]()
    report = Report(backend.name)
    for entry in runner.work(runner.cases(70_000, 50, runner.PRECISIONS), backend, shrinks=True):
        report.add(entry)
    assert not report.wrong, report.text() + _findings(report)
    assert report.nonzero >= 0.7 * 50


def _findings(report: Report) -> str:
    return "\n".join(
        f"\n{entry['command']}\n{entry['problems']}\n{entry['source']}" for entry in report.findings
    )
