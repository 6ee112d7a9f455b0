"""Random programs whose work items a GPU sorts, though their loops are short."""

from __future__ import annotations

from typing import Any

import pytest

from octants.codegen import sorted_work_items
from octants.fuzz import runner
from octants.fuzz.backends import BACKENDS
from octants.fuzz.report import Report
from tests.fuzz import forced_sorting

FIRST, QUICK, MORE = 0, 2, 98

pytestmark = pytest.mark.filterwarnings("ignore::octants.OctantsWarning")


@pytest.mark.parametrize(
    ("first", "count"),
    [(FIRST, QUICK), pytest.param(FIRST + QUICK, MORE, marks=pytest.mark.slow)],
    ids=["quick", "more"],
)
@pytest.mark.parametrize("backend", ["vulkan"])
@pytest.mark.timeout(900)
def test_programs_agree_with_the_oracle(
    monkeypatch: pytest.MonkeyPatch, backend: str, first: int, count: int
) -> None:
    sorted_tasks, write = [], sorted_work_items.write

    def see(f: Any, task: Any, *rest: Any) -> None:
        sorted_tasks.append(task)
        write(f, task, *rest)

    monkeypatch.setattr(sorted_work_items, "write", see)
    forced_sorting.force(monkeypatch)
    report = Report(backend)
    chosen = [(first + k, runner.PRECISIONS[k % 2], "ragged") for k in range(count)]
    for entry in runner.work(chosen, BACKENDS[backend](), shrinks=True):
        report.add(entry)
    findings = [f"{e['command']}\n{e['problems']}\n{e['source']}" for e in report.findings]
    assert not report.wrong, "\n".join(findings)
    assert len(sorted_tasks) >= count
