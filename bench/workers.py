"""Measurements in processes of their own: what a worker reports, and what came of it.

A benchmark starts itself as a worker, which calls `report`; the starter gets the last report from
`outcome`. What systems print on their own is left alone.
"""

from __future__ import annotations

import json
import subprocess
from typing import Any

_MARK = "RESULT "


def report(result: dict[str, Any]) -> None:
    """Print what a worker has found so far; its last report counts, even if it has to be ended."""
    print(_MARK + json.dumps(result), flush=True)


def outcome(
    command: list[str], patience: float | None = None, environment: dict[str, str] | None = None
) -> dict[str, Any]:
    """The last report of a process, with an "error" if it failed or took more than its seconds."""
    problem = {}
    try:
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, timeout=patience, env=environment
        )
        output, errors = done.stdout, done.stderr
        if done.returncode:
            problem = {"error": _last_line(errors) or f"ended with {done.returncode}"}
    except subprocess.TimeoutExpired as late:
        output = (late.stdout or b"").decode() if isinstance(late.stdout, bytes) else ""
        problem = {"error": f"> {patience:g} s"}
    reports = [line for line in output.splitlines() if line.startswith(_MARK)]
    if not reports:
        return problem or {"error": "no report"}
    found: dict[str, Any] = json.loads(reports[-1].removeprefix(_MARK))
    return {**found, **problem}


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1][:200] if lines else ""
