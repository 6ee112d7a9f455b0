"""The house style, as far as tools can hold it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "command",
    [
        ("ruff", "check"),
        ("ruff", "format", "--check", "--diff"),
        ("mypy", "--no-error-summary"),
    ],
    ids=" ".join,
)
def test_tool_has_nothing_to_say(command: tuple[str, ...]) -> None:
    result = subprocess.run(
        [sys.executable, "-m", *command],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert result.returncode == 0, result.stdout + result.stderr
