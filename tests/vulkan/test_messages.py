"""What kernels say: the tests of code for the CPU, on Vulkan."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from octants.ir.core import Module
from octants.types.scalars import f32
from tests.codegen import test_messages as messages
from tests.codegen.compiled import ndarray, parallel
from tests.vulkan import compiled

PRINTS = (
    messages.test_lines_come_in_the_order_of_tasks_and_items,
    messages.test_values_of_every_type,
    messages.test_what_was_printed_before_a_failure_is_there,
)
WHOLE = (messages.test_a_failure_with_very_many_values,)


@pytest.fixture(autouse=True)
def on_vulkan(monkeypatch: pytest.MonkeyPatch) -> None:
    compiled.device()
    monkeypatch.setattr(messages, "Compiled", compiled.OnVulkan)
    monkeypatch.setattr(messages, "run", compiled.run)


@pytest.mark.parametrize("test", PRINTS, ids=lambda test: test.__name__)
def test_what_is_printed(test: Callable[[Any], None], capsys: Any) -> None:
    test(capsys)


@pytest.mark.parametrize("test", WHOLE, ids=lambda test: test.__name__)
def test_what_fails(test: Callable[[], None]) -> None:
    test()


@pytest.mark.parametrize("first", [0, 1, 4321, 99_999])
def test_the_lowest_failing_item_is_reported(first: int) -> None:
    messages.test_the_lowest_failing_item_is_reported(first)


def test_a_failure_inside_loops(tmp_path: Any) -> None:
    messages.test_a_failure_inside_loops_ends_the_work_item_and_shows_its_line(tmp_path)


def test_what_does_not_fit_is_counted(capsys: Any) -> None:
    def body(build: Any, i: Any) -> None:
        build.print_((("",), "\n"), [i])

    x = ndarray("x", f32)
    count, capacity = 50_000, (1 << 17) // 3
    domain = messages.of(count)
    compiled.run(Module("much", [x], tasks=[parallel("t", domain, body)]), {})
    *lines, last = capsys.readouterr().out.splitlines()
    assert len(lines) == len(set(lines)) == capacity
    assert last == f"[{count - capacity} more prints of kernel `much` did not fit its buffer]"


ENDS = """
import octants as qd

qd.init(arch=qd.vulkan, debug=True, offline_cache=False)

@qd.kernel
def tell():
    for i in range(3):
        print("item", i)
        assert i < 2

tell()
"""


def test_what_nobody_waited_for_is_told_when_the_process_ends(tmp_path: Path) -> None:
    script = tmp_path / "program.py"
    script.write_text(ENDS)
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert sorted(done.stdout.splitlines()) == ["item 0", "item 1", "item 2"]
    assert "not raised before: OCT420" in done.stderr
