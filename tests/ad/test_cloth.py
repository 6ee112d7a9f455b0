"""The cloth: its demo gets nearer to the target, and its benchmark runs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from octants.demos import cloth
from octants.tools.command_line import parser

REPOSITORY = Path(__file__).parent.parent.parent


def test_demo_gets_nearer(capsys: pytest.CaptureFixture[str]) -> None:
    distance = cloth.main(rounds=6)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 6
    assert distance < 0.2 < 0.9 < float(lines[0].split()[-2])
    assert parser().parse_args(["demo", "cloth"]).run is not None


def test_benchmark_finds_equal_gradients(tmp_path: Path) -> None:
    small = ["--side", "4", "--steps", "40", "--slots", "3", "--rounds", "1"]
    command = [sys.executable, "bench/host_checkpoints.py", *small, "--output", str(tmp_path)]
    subprocess.run(command, cwd=REPOSITORY, check=True, stdout=subprocess.DEVNULL, timeout=240)
    (path,) = tmp_path.glob("host_checkpoints-*.md")
    assert path.read_text().count("| equal |") == 3
