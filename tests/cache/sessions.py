"""Programs that are run again and again, each time as if by a new process, with one cache."""

from __future__ import annotations

import linecache
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import octants as qd
from octants import driver


@dataclass
class Run:
    """What a program made of itself: its names, and how often something was built or compiled."""

    names: dict[str, Any]
    builds: int = 0
    compiled: int = 0
    warned: list[str] = field(default_factory=list)

    @property
    def result(self) -> Any:
        return self.names["result"]


class Sessions:
    """Runs programs in files of a folder, with a cache of their own.

    Each run makes new kernels and new arrays; nothing is left of earlier runs but the files.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cache = folder / "cache"
        self.options: dict[str, Any] = {}

    def run(self, source: str, name: str = "program.py", **options: Any) -> Run:
        """Run a program that leaves its outcome in ``result``."""
        path = self.folder / name
        path.write_text(textwrap.dedent(source))
        linecache.checkcache(str(path))
        given: dict[str, Any] = {"arch": qd.cpu, "log_level": "error", "offline_cache": True}
        given["offline_cache_file_path"] = str(self.cache)
        given |= {"cpu_max_num_threads": 2, **self.options, **options}
        qd.init(**given)
        driver._artifacts.clear()
        found = Run({"qd": qd, "__name__": path.stem})
        with _counted(found), warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            try:
                code = compile(path.read_text(), str(path), "exec", dont_inherit=True)
                exec(code, found.names)
            finally:
                qd.reset()
        found.warned = [str(each.message) for each in warned]
        return found


@contextmanager
def _counted(found: Run) -> Iterator[None]:
    build, compile_module = driver.build, driver._artifact

    def counted_build(*args: Any, **named: Any) -> Any:
        found.builds += 1
        return build(*args, **named)

    def counted_compile(*args: Any, **named: Any) -> Any:
        found.compiled += 1
        return compile_module(*args, **named)

    driver.build, driver._artifact = counted_build, counted_compile  # type: ignore[assignment]
    try:
        yield
    finally:
        driver.build, driver._artifact = build, compile_module
