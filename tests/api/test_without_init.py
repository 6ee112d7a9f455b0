"""A program that never calls `init` runs with the defaults, and one line says so."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.devices import in_other_processes

pytestmark = in_other_processes

HEAD = """
import threading
import numpy as np
import octants as qd

@qd.kernel
def count(x: qd.types.ndarray()):
    for i in x:
        x[i] = i
"""

PROGRAMS = {
    "a kernel": "x = np.zeros(3, np.float32); count(x); print(x.tolist())",
    "an ndarray": "x = qd.ndarray(qd.f32, 3); count(x); print(x.to_numpy().tolist())",
    "a field": "x = qd.field(float, 3); x[1] = 1; x[2] = 2; print(x.to_numpy().tolist())",
    "a reset": "qd.reset(); x = qd.zeros(3); count(x); print(x.to_numpy().tolist())",
    "threads": """
made = []
threads = [threading.Thread(target=lambda: made.append(qd.zeros(3))) for _ in range(4)]
for each in threads: each.start()
for each in threads: each.join()
for x in made: count(x)
assert len(made) == 4
print(made[0].to_numpy().tolist())
""",
}


def run(tmp_path: Path, program: str, **variables: str) -> subprocess.CompletedProcess[str]:
    path = tmp_path / "program.py"
    path.write_text(HEAD + program)
    environment = {k: v for k, v in os.environ.items() if k != "OCTANTS_LOG_LEVEL"} | variables
    return subprocess.run(
        [sys.executable, str(path)],
        capture_output=True,
        text=True,
        timeout=120,
        env=environment,
        check=False,
    )


@pytest.mark.parametrize("what", PROGRAMS)
def test_defaults(what: str, tmp_path: Path) -> None:
    done = run(tmp_path, PROGRAMS[what])
    assert done.stdout == "[0.0, 1.0, 2.0]\n", done.stderr
    assert done.stderr.count("qd.init() was not called: running on ") == 1


def test_the_line_follows_the_log_level(tmp_path: Path) -> None:
    done = run(tmp_path, PROGRAMS["a kernel"], OCTANTS_LOG_LEVEL="error")
    assert (done.stdout, done.stderr) == ("[0.0, 1.0, 2.0]\n", "")


def test_after_a_reset_of_what_was_initialised_it_is_an_error(tmp_path: Path) -> None:
    done = run(tmp_path, "qd.zeros(3); qd.reset(); qd.zeros(3)")
    assert "OCT401" in done.stderr
