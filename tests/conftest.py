"""What holds for all tests: every pass is verified, and random tests are the same in each run.

Nothing is taken from the user's cache of kernels, nor put there: tests of the cache use their own.
"""

from __future__ import annotations

import gc
import importlib
import os
import sys
import tempfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import hypothesis
import pytest

import octants

_SOURCE = Path(__file__).resolve().parents[1] / "src"
if _SOURCE.is_dir() and not Path(octants.__file__).resolve().is_relative_to(_SOURCE):
    pytest.exit(
        f"these tests are of {_SOURCE}, but Python imports {octants.__file__}: "
        f"install the package of this checkout, or run with PYTHONPATH={_SOURCE}",
        returncode=pytest.ExitCode.USAGE_ERROR,
    )

os.environ.setdefault("OCTANTS_VERIFY", "1")
os.environ.setdefault("OCTANTS_OFFLINE_CACHE", "0")
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several processes share a GPU

if sys.dont_write_bytecode:  # a hundred processes of the tests would compile the sources again
    sys.dont_write_bytecode = False
    sys.pycache_prefix = str(Path(tempfile.gettempdir()) / "octants-bytecode")
    os.environ["PYTHONPYCACHEPREFIX"] = sys.pycache_prefix
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

if "OCTANTS_TEST_ARCH" in os.environ:  # what tests call the CPU is another arch
    octants.cpu = getattr(octants, os.environ["OCTANTS_TEST_ARCH"])

importlib.import_module("tests.discrete_device").install()  # not before the check of the package

FAKE: Any = None
if os.environ.get("OCTANTS_TEST_ARCH") == "metal" and sys.platform != "darwin":
    from tests.metal.emulated import install

    FAKE = install(pytest.MonkeyPatch(), is_wider=bool(os.environ.get("OCTANTS_TEST_METAL_WIDER")))
if os.environ.get("OCTANTS_TEST_ARCH") == "cuda":
    from tests.codegen import on_emulated_gpu
    from tests.codegen.on_gpu import gpu

    if gpu() is None:
        FAKE = on_emulated_gpu.install(pytest.MonkeyPatch(), total=1 << 31)

_UNOPTIMISED = "ad api autodiff compat data frontend graphs library passes runtime simt".split()
"""Folders whose tests are about what Octants does: for seven of eight, LLVM does not optimise."""

_LEVEL = "OCTANTS_OPT_LEVEL"
_MAY_SET_LEVEL = _LEVEL not in os.environ

hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")

_begun: dict[str, None] = {}
_file = ""
_MANY_OBJECTS = 50_000


def pytest_collection_finish() -> None:
    """Let no collection of garbage look through the tests themselves: a million objects and more.

    Some tests collect garbage to see that objects are gone.
    """
    gc.freeze()


def _leave_alone_what_stays() -> None:
    """Let no collection look through modules and caches, either, which grow while tests run."""
    if len(gc.get_objects(generation=2)) > _MANY_OBJECTS:
        gc.collect()
        gc.freeze()


def pytest_runtest_logstart(nodeid: str, location: tuple[str, int | None, str]) -> None:
    global _file
    if location[0] != _file:
        _file = location[0]
        _leave_alone_what_stays()
    _begun[nodeid] = None


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when not in ("setup", "call"):  # "teardown", or the report of a process that died
        _begun.pop(report.nodeid, None)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that a run which is cut short has not brought to an end."""
    if _begun:
        terminalreporter.section("tests that were running")
        for nodeid in _begun:
            terminalreporter.write_line(nodeid)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Choose how hard LLVM tries, where neither a test nor the environment does: by its name."""
    if _MAY_SET_LEVEL:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        if folder in _UNOPTIMISED and zlib.crc32(item.nodeid.encode()) % 8:
            os.environ[_LEVEL] = "0"
        else:
            os.environ.pop(_LEVEL, None)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """Skip what a fake Metal lacks as the real one does; no fake must be used in a wrong way.

    A test that expects an error or a warning fails otherwise than by the refusal of its kernel.
    """
    refusals = getattr(FAKE, "refusals", [])
    refusals.clear()
    try:
        yield
    except (Exception, pytest.fail.Exception):
        if not refusals:
            raise
        pytest.skip(refusals[0].splitlines()[0])
    finally:
        if FAKE is not None:
            problems, FAKE.problems = FAKE.problems, []
            assert not problems, problems[0]
