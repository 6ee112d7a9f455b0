"""Times the stages of the compiler, on request.

    with profiled() as profile:
        kernel(x)
    print(profile)

`stage` and `staged` surround each step of the compiler. Without a profile they do nothing.
"""

from __future__ import annotations

import functools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Concatenate, ParamSpec, Protocol, TypeVar

from octants.lazy_dataclass import dataclass

Size = Callable[[], int]
Path = tuple[str, ...]

_P = ParamSpec("_P")
_R = TypeVar("_R")


@dataclass(slots=True)
class StageTimes:
    """The time of one stage of one kernel, in all of its calls.

    ``seconds`` are without the stages inside it. ``before`` and ``after`` are sizes in the last
    call, in ``unit``: of what the stage was given, and of what it made; None if they are not known.
    """

    kernel: str
    path: Path
    calls: int = 0
    seconds: float = 0.0
    unit: str = ""
    before: int | None = None
    after: int | None = None


class Note:
    """The report of a stage about its result; nothing is counted without a profile."""

    def __init__(self, unit: str = "operations", before: int | None = None) -> None:
        self.unit = unit
        self.before = before
        self.after: int | None = None

    def gives(self, size: Size, unit: str = "operations") -> None:
        """Say how large the result is."""
        self.after, self.unit = size(), unit


class _Silent(Note):
    def gives(self, size: Size, unit: str = "operations") -> None:
        pass


_SILENT = nullcontext(_Silent())


class CompileProfile:
    """The stages of all kernels that were compiled, in order of their first call."""

    def __init__(self) -> None:
        self.entries: dict[tuple[str, Path], StageTimes] = {}
        self._threads = threading.local()

    @property
    def kernels(self) -> list[str]:
        """The kernels, those that took longest first."""
        return sorted(dict.fromkeys(kernel for kernel, _ in self.entries), key=self._minus)

    def _minus(self, kernel: str) -> float:
        return -self.seconds(kernel)

    def seconds(self, kernel: str | None = None) -> float:
        """The time of all stages, of one kernel or of all."""
        return sum(
            entry.seconds for entry in self.entries.values() if kernel in (None, entry.kernel)
        )

    def of(self, kernel: str) -> list[StageTimes]:
        """The stages of a kernel, those inside another one behind it."""
        own = {entry.path: entry for entry in self.entries.values() if entry.kernel == kernel}
        order = {path: number for number, path in enumerate(own)}

        def ranks(path: Path) -> list[int]:
            above = [path[: k + 1] for k in range(len(path))]
            return [order.get(each, order[path]) for each in above]

        return [own[path] for path in sorted(own, key=ranks)]

    @contextmanager
    def run(self, name: str, kernel: str, size: Size | None, unit: str) -> Iterator[Note]:
        """Time a stage; one without a kernel is of that around it."""
        stack: list[tuple[str, Path, list[float]]] = self._threads.__dict__.setdefault("stack", [])
        above, around = (stack[-1][0], stack[-1][1]) if stack else ("", ())
        kernel = kernel or above
        path = (*around, name) if kernel == above else (name,)
        inside = [0.0]
        begin = time.thread_time()
        note = Note(unit, size() if size is not None else None)
        start = time.thread_time()
        stack.append((kernel, path, inside))
        try:
            yield note
        finally:
            end = time.thread_time()
            stack.pop()
            if note.after is None and size is not None:
                note.after = size()
            self._add(kernel, path, end - start - inside[0], note)
            if stack:
                stack[-1][2][0] += time.thread_time() - begin

    def _add(self, kernel: str, path: Path, seconds: float, note: Note) -> None:
        entry = self.entries.setdefault((kernel, path), StageTimes(kernel, path))
        entry.calls += 1
        entry.seconds += seconds
        entry.unit, entry.before, entry.after = note.unit, note.before, note.after

    def to_dict(self) -> list[dict[str, Any]]:
        """The entries as data for JSON."""
        names = ("calls", "seconds", "unit", "before", "after")
        return [
            {"kernel": kernel, "stage": list(entry.path)}
            | {name: getattr(entry, name) for name in names}
            for kernel in self.kernels
            for entry in self.of(kernel)
        ]

    def __str__(self) -> str:
        return "\n".join(_lines(self))


_active: list[CompileProfile] = []


@contextmanager
def profiled() -> Iterator[CompileProfile]:
    """Time what is compiled meanwhile, in any thread, for the innermost profile."""
    profile = CompileProfile()
    _active.append(profile)
    try:
        yield profile
    finally:
        _active.remove(profile)


def is_requested() -> bool:
    """Whether a program shows what is compiled: then nothing is taken from the cache."""
    return bool(_active)


def stage(
    name: str, kernel: str = "", size: Size | None = None, unit: str = "operations"
) -> AbstractContextManager[Note]:
    """Time a stage of a kernel, if requested; ``size`` counts what it works on."""
    if not _active:
        return _SILENT
    return _active[-1].run(name, kernel, size, unit)


class _Module(Protocol):
    name: str

    def size(self) -> int: ...


_M = TypeVar("_M", bound=_Module)


def staged(
    name: str,
) -> Callable[[Callable[Concatenate[_M, _P], _R]], Callable[Concatenate[_M, _P], _R]]:
    """Make a function a stage; its first argument is the module that it changes."""

    def decorate(run: Callable[Concatenate[_M, _P], _R]) -> Callable[Concatenate[_M, _P], _R]:
        @functools.wraps(run)
        def timed(module: _M, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
            with stage(name, module.name, module.size):
                return run(module, *args, **kwargs)

        return timed

    return decorate


# -- as text --------------------------------------------------------------------------------------


def _lines(profile: CompileProfile) -> Iterator[str]:
    total = profile.seconds()
    for kernel in profile.kernels:
        seconds = profile.seconds(kernel)
        yield f"{kernel or '(no kernel)'}: {seconds * 1e3:.1f} ms, {_share(seconds, total)} of all"
        for entry in profile.of(kernel):
            yield _line(entry, seconds)
        yield ""
    yield f"all kernels: {total * 1e3:.1f} ms"
    for name, (calls, seconds) in _by_stage(profile):
        yield _columns(name, seconds, total, calls, "")


def _by_stage(profile: CompileProfile) -> list[tuple[str, tuple[int, float]]]:
    """Calls and seconds of the stages of a name, the longest first."""
    found: dict[str, tuple[int, float]] = {}
    for entry in profile.entries.values():
        calls, seconds = found.get(entry.path[-1], (0, 0.0))
        found[entry.path[-1]] = calls + entry.calls, seconds + entry.seconds
    return sorted(found.items(), key=lambda item: -item[1][1])


def _line(entry: StageTimes, total: float) -> str:
    name = "  " * (len(entry.path) - 1) + entry.path[-1]
    return _columns(name, entry.seconds, total, entry.calls, _sizes(entry))


def _columns(name: str, seconds: float, total: float, calls: int, sizes: str) -> str:
    share = _share(seconds, total)
    return f"  {name:<28}{seconds * 1e3:>10.1f} ms{share:>7}{calls:>5} x  {sizes}".rstrip()


def _share(part: float, whole: float) -> str:
    return f"{100 * part / whole if whole else 0:.1f}%"


def _sizes(entry: StageTimes) -> str:
    """The sizes before and after, as far as they are known."""
    if entry.after is None:
        return ""
    before = "" if entry.before is None else f"{entry.before} -> "
    return f"{before}{entry.after} {entry.unit}"
