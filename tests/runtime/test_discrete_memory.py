"""Run some tests of arrays, launches and tapes on a device whose memory the host cannot touch.

``OCTANTS_DISCRETE=1 python -m pytest`` runs all of them so.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.devices import DISCRETE

ROOT = Path(__file__).parents[2]
FILES = (
    "data/test_host_access",
    "data/test_host_access_events",
    "api/test_launch_path",
    "api/test_torch",
    "ad/test_snapshots",
    "ad/test_accessed_regions",
    "ad/test_argument_gradients",
    "ad/test_log_budget",
)


@pytest.mark.skipif(DISCRETE, reason="the tests themselves run so")
def test_memory_that_the_host_cannot_touch() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
    found = subprocess.run(
        [*command, *(f"tests/{name}.py" for name in FILES)],
        cwd=ROOT,
        env={**os.environ, "OCTANTS_DISCRETE": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert found.returncode == 0, found.stdout[-4000:] + found.stderr[-2000:]
    assert " passed" in found.stdout
