"""The wheel holds what it should, the command line answers, and a missing extra is named."""

from __future__ import annotations

import email
import importlib.util
import os
import re
import shutil
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

import pytest

from octants.backends.table import backend_of
from octants.demos.lynx_hare.pelts import read_pelts
from octants.diagnostics.optional_dependencies import OctantsMissingDependency, import_optional
from octants.tools import info_command
from octants.tools.command_line import main
from octants.version import __version__

REPOSITORY = Path(__file__).parent.parent


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    pytest.importorskip("pip")
    folder = tmp_path_factory.mktemp("wheel")
    command = ("pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder))
    subprocess.run([sys.executable, "-m", *command, str(REPOSITORY)], check=True, timeout=240)
    (path,) = folder.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_tests_of_a_checkout_refuse_the_package_of_another(tmp_path: Path) -> None:
    (tmp_path / "src").mkdir()
    (tmp_path / "tests").mkdir()
    shutil.copy(REPOSITORY / "tests" / "conftest.py", tmp_path / "tests")
    (tmp_path / "tests" / "test_nothing.py").write_text("def test_nothing(): pass")
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", str(tmp_path / "tests")]
    result = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert result.returncode == pytest.ExitCode.USAGE_ERROR
    assert f"run with PYTHONPATH={tmp_path / 'src'}" in result.stderr


def metadata(wheel: zipfile.ZipFile) -> email.message.Message:
    (name,) = (name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
    return email.message_from_string(wheel.read(name).decode())


def test_wheel_holds_every_module_but_the_fuzzer_and_the_data(wheel: zipfile.ZipFile) -> None:
    source = REPOSITORY / "src"
    files = {str(path.relative_to(source)) for path in source.rglob("*.py")}
    files = {name for name in files if not name.startswith("octants/fuzz/")}
    files |= {"octants/py.typed", "octants/demos/data/lynx-hare.csv"}
    packed = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert packed == files


def test_wheel_requires_only_numpy_and_llvmlite(wheel: zipfile.ZipFile) -> None:
    requirements = metadata(wheel).get_all("Requires-Dist") or []
    required = [text for text in requirements if "extra ==" not in text]
    assert sorted(text.split(">=")[0] for text in required) == ["llvmlite", "numpy"]


def test_wheel_names_version_license_and_python(wheel: zipfile.ZipFile) -> None:
    message = metadata(wheel)
    assert message["Version"] == __version__
    assert message["License-Expression"] == "Apache-2.0"
    assert message["Requires-Python"] == ">=3.10"
    assert any(name.endswith("licenses/LICENSE") for name in wheel.namelist())


def test_installed_package_works_away_from_the_checkout(
    wheel: zipfile.ZipFile, tmp_path: Path
) -> None:
    wheel.extractall(tmp_path / "site")
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r})\n"
        "import octants; from octants.demos.lynx_hare.pelts import read_pelts\n"
        "print(octants.__file__, len(read_pelts().year))"
    )
    output = subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.split()
    assert Path(output[0]).is_relative_to(tmp_path)
    assert output[1] == "21"


def test_a_release_has_absolute_links_and_addresses(tmp_path: Path) -> None:
    shutil.copytree(REPOSITORY / "scripts", tmp_path / "scripts")
    (tmp_path / "src/octants").mkdir(parents=True)
    for name in ("README.md", "pyproject.toml", "src/octants/version.py"):
        shutil.copy(REPOSITORY / name, tmp_path / name)
    command = [sys.executable, "scripts/prepare_release.py", "https://example.org/a/b"]
    for tag, succeeds in (("v9.9", False), (f"v{__version__}", True)):
        result = subprocess.run([*command, tag], cwd=tmp_path, check=False, capture_output=True)
        assert (result.returncode == 0) is succeeds
    readme = (tmp_path / "README.md").read_text()
    assert f"(https://example.org/a/b/blob/v{__version__}/docs/api.md)" in readme
    links = re.findall(r'\]\(([^)]+)\)|src="([^"]+)"', readme)
    assert all("".join(link).startswith(("https://", "#")) for link in links)
    text = (tmp_path / "pyproject.toml").read_text()
    assert text.count("[project.urls]") == 1
    assert 'Changelog = "https://example.org/a/b/blob/main/CHANGELOG.md"' in text


def test_the_program_that_checks_a_release_runs(tmp_path: Path) -> None:
    """As GitHub runs it: by a shell, which feeds what follows ``<<`` through a pipe."""
    steps = (REPOSITORY / ".github/workflows/release.yml").read_text()
    (lines,) = re.findall(r"^ +- run: \|\n((?: {10}.*\n)+)", steps, re.MULTILINE)
    command = f'python() {{ "{sys.executable}" "$@"; }}; set -e\n{textwrap.dedent(lines)}'
    environment = {**os.environ, "PYTHONPATH": str(REPOSITORY / "src")}
    result = subprocess.run(
        ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True
    )
    assert result.returncode == 0, result.stderr


def test_a_package_without_the_fuzzer_says_where_it_is(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert main(["fuzz", "--count", "1"]) == 2
    assert "run it from a checkout" in capsys.readouterr().err


def test_data_of_the_demo() -> None:
    pelts = read_pelts()
    assert list(pelts.year) == list(range(1900, 1921))
    assert list(pelts.count[0]) == [30.0, 4.0]
    assert list(pelts.count[-1]) == [24.7, 8.6]


def test_info_tells_versions_and_extras(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["info"]) == 0
    output = capsys.readouterr().out
    for word in (__version__, "llvm", "numpy", "threads"):
        assert word in output


def test_info_tells_the_devices_of_each_kind(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    backend = backend_of("vulkan")
    monkeypatch.setattr(type(backend), "obstacle", lambda _: "")
    monkeypatch.setattr(type(backend), "device_names", lambda _: ("large", "small"))
    monkeypatch.setattr(type(backend_of("metal")), "obstacle", lambda _: "no macOS")
    assert main(["info"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "vulkan     0: large, 1: small" in lines
    assert "metal      none: no macOS" in lines


def test_no_command_shows_the_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 0
    output = capsys.readouterr().out
    for word in ("usage: octants", "demo", "info", "cache"):
        assert word in output


def test_extras_come_from_the_metadata(monkeypatch: pytest.MonkeyPatch) -> None:
    requirements = [
        "numpy>=1.24",
        'rich>=13; extra == "demo"',
        "x; python_version<'4' and extra=='b'",
    ]
    monkeypatch.setattr(info_command.importlib.metadata, "requires", lambda _: requirements)
    assert info_command.extras() == {"demo": ["rich"], "b": ["x"]}


def test_extras_without_an_installation(monkeypatch: pytest.MonkeyPatch) -> None:
    def requires(name: str) -> list[str]:
        raise info_command.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(info_command.importlib.metadata, "requires", requires)
    assert info_command.extras() == {}


@pytest.mark.parametrize("arguments", [["demo"], ["demo", "lynx"], ["inform"]])
def test_wrong_command_line_is_explained(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as exit_:
        main(arguments)
    assert exit_.value.code == 2
    assert "usage: octants" in capsys.readouterr().err


def test_missing_extra_is_named() -> None:
    with pytest.raises(OctantsMissingDependency, match=r"pip install 'octants\[demo\]'"):
        import_optional("no_such_package.part", "demo")


@pytest.mark.parametrize("missing", ["rich", "matplotlib"])
def test_demo_without_its_extra(
    missing: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        "importlib.util.find_spec", lambda name: None if name == missing else find_spec(name)
    )
    assert main(["demo", "lynx-hare"]) == 1
    error = capsys.readouterr().err
    assert error.startswith(f"octants: {missing} is not installed")
    assert "octants[demo]" in error
