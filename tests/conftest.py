"""What holds for all tests: every pass is verified, and random tests are the same in each run.

Nothing is taken from the user's cache of kernels, nor put there: tests of the cache use their own.
"""

from __future__ import annotations

import os

import hypothesis
import pytest

import octants

os.environ.setdefault("OCTANTS_VERIFY", "1")
os.environ.setdefault("OCTANTS_OFFLINE_CACHE", "0")

if "OCTANTS_TEST_ARCH" in os.environ:  # what tests call the CPU is another arch
    octants.cpu = getattr(octants, os.environ["OCTANTS_TEST_ARCH"])

hypothesis.settings.register_profile("repeatable", deadline=None, derandomize=True)
hypothesis.settings.load_profile("repeatable")

_begun: dict[str, None] = {}


def pytest_runtest_logstart(nodeid: str) -> None:
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
