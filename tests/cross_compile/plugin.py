"""A plug-in of pytest that compiles all kernels of the tests that run for other GPUs, too.

    python -m pytest -p tests.cross_compile.plugin --compile-for gfx942,gfx1100 tests/ad

Each module that is finished for the machine that runs the tests is finished, too, for each of the
`TARGETS` that are named, and written as text. When the tests are done, processes of their own make
code of the texts. Kernels that a target cannot compile are named at the end, and fail the run.
"""

from __future__ import annotations

import functools
import hashlib
import os
import tempfile
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from octants import pipeline
from octants.diagnostics.exceptions import OctantsError
from octants.ir import printer
from octants.ir.cooperation import cooperates, sizes
from octants.ir.core import Module
from octants.options import current
from octants.pipeline_stage import Stage
from octants.target import Capabilities
from tests.cross_compile.child import compile_all
from tests.cross_compile.targets import TARGETS

FOLDER = "OCTANTS_CROSS_COMPILE_FOLDER"
"""Where the processes of one run write texts."""
_MOST_REVERSED = 256


class Recorder:
    """Writes the text of each module for each target; texts are the same only once.

    One of ``share`` kernels is written.
    """

    def __init__(self, names: list[str], folder: Path, share: int = 1) -> None:
        self._names, self._folder, self._share = names, folder, share
        self._seen: set[str] = set()
        self._reversed: dict[int, tuple[Module, dict[str, Module]]] = {}
        self._facts: dict[tuple[str, str], Capabilities] = {}
        self._is_busy = False
        self.test = ""
        for name in names:
            (folder / name).mkdir(parents=True, exist_ok=True)

    def install(self, patch: pytest.MonkeyPatch) -> None:
        """Look on while modules are differentiated and finished."""
        finish, reverse = pipeline.finish, pipeline.differentiate_reverse

        @functools.wraps(finish)
        def finish_here(module: Module, stage: Stage, *, noalias: bool = False) -> Module:
            result = finish(module, stage, noalias=noalias)
            self._outermost(lambda: self._write(module, noalias))
            return result

        @functools.wraps(reverse)
        def reverse_here(module: Module, stage: Stage, **options: Any) -> Any:
            result = reverse(module, stage, **options)
            self._outermost(lambda: self._reverse(module, result.module, options))
            return result

        patch.setattr(pipeline, "finish", finish_here)
        patch.setattr(pipeline, "differentiate_reverse", reverse_here)

    def _outermost(self, act: Callable[[], None]) -> None:
        """Do what is not part of doing the same."""
        if self._is_busy:
            return
        self._is_busy = True
        try:
            act()
        finally:
            self._is_busy = False

    def _reverse(self, module: Module, result: Module, options: dict[str, Any]) -> None:
        """Remember the reverse of a module as it is for the targets."""
        found = {}
        for name, own in self._stages(module):
            found[name] = pipeline.differentiate_reverse(module, own, **options).module
        self._reversed[id(result)] = result, found
        while len(self._reversed) > _MOST_REVERSED:
            del self._reversed[next(iter(self._reversed))]

    def _stages(self, module: Module) -> Iterator[tuple[str, Stage]]:
        """How passes run for each target with the subgroups that a module was built for."""
        chosen = current()
        subgroups = {sizes(task)[1] for task in module.tasks if cooperates(task)}
        for name in self._names:
            key = name, repr(chosen)
            if key not in self._facts:
                with TARGETS[name].backend() as backend:
                    self._facts[key] = backend.capabilities(chosen, None)
            facts = self._facts[key]
            if facts.blocks is not None and subgroups <= {facts.blocks.subgroup_size}:
                yield name, Stage(facts)

    def _write(self, module: Module, noalias: bool) -> None:
        chosen = current()
        said = f"{noalias} {chosen.compilation_key()} {printer.to_dense_text(module)}"
        key = hashlib.sha256(said.encode()).hexdigest()[:16]
        if key in self._seen or int(key, 16) % self._share:
            return
        self._seen.add(key)
        _, reversed_ = self._reversed.get(id(module), (None, {}))
        for name, own in self._stages(module):
            path = self._folder / name / f"{module.name[:40]}-{key}"
            if path.with_suffix(".text").exists():
                continue  # by another process
            try:
                finished = pipeline.finish(reversed_.get(name, module), own, noalias=noalias)
                with TARGETS[name].backend() as backend:
                    text = TARGETS[name].generate(backend, finished, chosen)
            except Exception as error:
                self._failed(path, name, error)
            else:
                path.with_suffix(".test").write_text(self.test)
                path.with_suffix(".text").write_text(text)

    def _failed(self, path: Path, name: str, error: Exception) -> None:
        if isinstance(error, OctantsError) and error.diagnostic is not None:
            if error.diagnostic.code in TARGETS[name].refusals:
                path.with_suffix(".refused").write_text(str(error))
                return
        path.with_suffix(".test").write_text(self.test)
        path.with_suffix(".failed").write_text("".join(traceback.format_exception(error)))


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("cross-compilation")
    group.addoption("--compile-for", default="", help="compile kernels for these targets, too")
    group.addoption("--compile-share", type=int, default=1, help="compile one of so many kernels")


_recorder: Recorder | None = None
_patch = pytest.MonkeyPatch()


def pytest_configure(config: pytest.Config) -> None:
    global _recorder
    names = [name for name in config.getoption("--compile-for").split(",") if name]
    if not names:
        return
    if not hasattr(config, "workerinput"):
        os.environ.setdefault(FOLDER, tempfile.mkdtemp(prefix="octants-cross-compile-"))
    _recorder = Recorder(names, Path(os.environ[FOLDER]), config.getoption("--compile-share"))
    _recorder.install(_patch)


def pytest_unconfigure() -> None:
    _patch.undo()


def pytest_runtest_logstart(nodeid: str) -> None:
    if _recorder is not None:
        _recorder.test = nodeid


def pytest_sessionfinish(session: pytest.Session) -> None:
    if _recorder is None or hasattr(session.config, "workerinput"):
        return
    found = {name: compile_all(Path(os.environ[FOLDER]), name) for name in _recorder._names}
    session.config.stash[_FOUND] = found
    if any(each.failures for each in found.values()):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


_FOUND = pytest.StashKey[dict[str, Any]]()


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Say how many kernels were compiled for which target, and which were not."""
    for name, found in config.stash.get(_FOUND, {}).items():
        terminalreporter.section(f"compiled for {name}: {found}")
        for text in found.failures:
            terminalreporter.write_line(text)
