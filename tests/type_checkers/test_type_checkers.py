"""mypy and pyright on programs of users: what is right passes, and mistakes are found."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
REPOSITORY = HERE.parent.parent
PROGRAMS = [HERE / "particles.py", HERE / "spring_chain.py"]
EXAMPLES = sorted((REPOSITORY / "examples").glob("*.py"))
SETTINGS = """\
[mypy]
python_version = 3.10
mypy_path = {source}
cache_dir = {cache}
ignore_missing_imports = True
check_untyped_defs = True
"""


def run_mypy(folder: Path, files: list[Path]) -> str:
    """What mypy prints, with the settings that users have."""
    settings = folder / "mypy.ini"
    cache = REPOSITORY / ".mypy_cache" / "users"
    settings.write_text(SETTINGS.format(source=REPOSITORY / "src", cache=cache))
    command = [sys.executable, "-m", "mypy", "--config-file", settings, *files]
    return subprocess.run(
        list(map(str, command)), cwd=folder, capture_output=True, text=True, check=False
    ).stdout


@pytest.mark.timeout(900)  # without mypy's cache, on a busy machine
def test_mypy_accepts_the_package_and_programs_and_finds_mistakes() -> None:
    """One strict run for all of them, which reads the package once.

    Numpy's types are for the Python that runs, or for later ones.
    """
    wrong = HERE / "wrong_calls.py"
    files = ["src", *PROGRAMS, wrong]
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    named = ["--python-version", version] if sys.version_info >= (3, 12) else []
    command = [sys.executable, "-m", "mypy", "--no-error-summary", *named, *files]
    output = subprocess.run(
        list(map(str, command)), cwd=REPOSITORY, capture_output=True, text=True, check=False
    ).stdout
    found = re.findall(r"^(.*?):(\d+): error: .*\[([a-z-]+)\]$", output, re.MULTILINE)
    marked = enumerate(wrong.read_text().splitlines(), 1)
    expected = [(str(number), line.split("# ")[1]) for number, line in marked if "  # " in line]
    assert len(expected) == 10
    assert [(number, code) for _, number, code in found] == expected, output
    assert {Path(path).name for path, *_ in found} == {wrong.name}, output
    assert output.count("error:") == len(expected), output


def test_the_programs_run() -> None:
    result = subprocess.run(
        [sys.executable, HERE / "spring_chain.py"], capture_output=True, text=True, check=True
    )
    numbers = result.stdout.split()
    assert numbers[3:7] == ["4", "1.0", "0", "0.0"]
    assert float(numbers[0]) == pytest.approx(8.27, abs=0.01)
    result = subprocess.run(
        [sys.executable, HERE / "particles.py"], capture_output=True, text=True, check=True
    )
    assert result.stdout.split()[:5] == ["256", "0.2111", "[4.0,", "4.0,", "4.0]"]


@pytest.mark.slow
def test_mypy_accepts_the_examples(tmp_path: Path) -> None:
    output = run_mypy(tmp_path, EXAMPLES)
    assert output.startswith("Success"), output


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("pyright") is None, reason="pyright is not installed")
def test_pyright_accepts_the_examples() -> None:
    files = [*EXAMPLES, *PROGRAMS]
    command = [sys.executable, "-m", "pyright", "--pythonpath", sys.executable, *files]
    result = subprocess.run(
        list(map(str, command)), cwd=REPOSITORY, capture_output=True, text=True, check=False
    )
    assert "0 errors" in result.stdout, result.stdout
