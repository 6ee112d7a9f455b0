"""A plug-in of pytest that records all kernels that tests compile.

    python -m pytest -p tests.cross_compile.plugin --record-kernels=FOLDER tests/ad

`tests.cross_compile.compile` compiles them for other GPUs. What is recorded is independent of the
machine that runs the tests: a module before the passes of `pipeline.FINISH`, or before it is
reversed.
"""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import pytest

from octants import options, pipeline
from octants.ir.core import Module
from octants.pass_context import Stage
from tests.cross_compile.recorded_kernels import Recorder

_MOST_REVERSED = 256


class Observer:
    """Hands modules that are finished to a recorder."""

    def __init__(self, recorder: Recorder) -> None:
        self._recorder = recorder
        self._reversed: dict[int, tuple[Module, Module, dict[str, Any]]] = {}
        self._is_busy = False
        self.test = ""

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Look on while modules are differentiated and finished."""
        finish, reverse = pipeline.finish, pipeline.differentiate_reverse

        @functools.wraps(finish)
        def finish_here(module: Module, stage: Stage, *, noalias: bool = False) -> Module:
            if not self._is_busy:
                self._finished(module, noalias)
            return finish(module, stage, noalias=noalias)

        @functools.wraps(reverse)
        def reverse_here(module: Module, stage: Stage, **options: Any) -> Any:
            is_outermost, self._is_busy = not self._is_busy, True  # it finishes drafts
            try:
                result = reverse(module, stage, **options)
            finally:
                self._is_busy = not is_outermost
            if is_outermost:
                self._remember(module, result.module, options)
            return result

        patch.setattr(pipeline, "finish", finish_here)
        patch.setattr(pipeline, "differentiate_reverse", reverse_here)

    def _remember(self, module: Module, result: Module, options: dict[str, Any]) -> None:
        self._reversed[id(result)] = module, result, options
        while len(self._reversed) > _MOST_REVERSED:
            del self._reversed[next(iter(self._reversed))]

    def _finished(self, module: Module, noalias: bool) -> None:
        primal, _, reversal = self._reversed.get(id(module), (module, None, None))
        chosen = options._InForce.options or options.Options()  # of tests that do not call `init`
        self._recorder.record(primal, reversal, noalias, chosen, self.test)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cross-compilation")
    group.addoption("--record-kernels", help="the folder that gets all kernels")


_observer: Observer | None = None
_patch = pytest.MonkeyPatch()


def pytest_configure(config: pytest.Config) -> None:
    global _observer
    folder = config.getoption("--record-kernels")
    if folder:
        _observer = Observer(Recorder(Path(folder).resolve()))
        _observer.install(_patch)


def pytest_unconfigure() -> None:
    _patch.undo()


def pytest_runtest_logstart(nodeid: str) -> None:
    if _observer is not None:
        _observer.test = nodeid
