"""Tells a user who waits for a compile: in a terminal which kernel it is, later why it takes long.

    with watched("simulate", "reverse"):
        ...
        compiling(module)  # what is compiled from here on

What is loaded from the cache is not watched.
"""

from __future__ import annotations

import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TextIO

from octants.diagnostics.exceptions import OctantsWarning
from octants.diagnostics.launch_errors import SlowCompile
from octants.diagnostics.span import Span
from octants.diagnostics.user_frames import warn_at_spans
from octants.ir.core import Module

SHOW_AFTER, WARN_AFTER = 2.0, 10.0
"""Seconds until a line appears in a terminal, and until there is a warning."""

_PERIOD = 0.5  # seconds between two changes of the line
_MANY = 2_000  # operations of one line of source that are worth naming


class CompileWatch:
    """One compile. `module` is what is being compiled, None while the source is read."""

    def __init__(self, kernel: str, stream: TextIO | None = None) -> None:
        self.kernel = kernel
        self.module: Module | None = None
        self.raised: OctantsWarning | None = None
        self._stream = sys.stderr if stream is None else stream
        self._start, self._used = time.perf_counter(), time.process_time()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="octants-compiles", daemon=True)
        self._thread.start()

    def end(self) -> float:
        """Stop watching, and return the seconds since the start."""
        self._ended.set()
        self._thread.join()
        return self._seconds()

    def _seconds(self) -> float:
        return time.perf_counter() - self._start

    def _worked(self) -> float:
        """Return the seconds since the start in which the process ran, if it waited for others."""
        return min(self._seconds(), time.process_time() - self._used)

    def _run(self) -> None:
        shows, has_warned, width = _is_terminal(self._stream), False, 0
        wait = SHOW_AFTER if shows else WARN_AFTER
        while not self._ended.wait(wait):
            wait = _PERIOD if shows else max(WARN_AFTER - self._seconds(), _PERIOD)
            if shows:
                text = f"octants: compiling {self.kernel}: {self._seconds():.0f} s"
                width = max(width, len(text))
                self._write(f"\r{text}")
            if self._worked() >= WARN_AFTER and not has_warned:
                self._write("\r" + " " * width + "\r" if width else "")
                try:
                    has_warned = self._warn()
                except OctantsWarning as warning:  # warnings are errors
                    self.raised, has_warned = warning, True
        self._write("\r" + " " * width + "\r" if width else "")

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # a terminal may have been closed
            if text:
                self._stream.write(text)
                self._stream.flush()

    def _warn(self) -> bool:
        """Warn, unless it is not known yet what is being compiled."""
        found = None if self.module is None else busiest_line(self.module)
        seconds = f"{self._worked():.0f}"
        if found is not None:
            span, count, total = found
            problem = SlowCompile(self.kernel, seconds, f"{total:,}", f"{count:,}")
            warn_at_spans([problem.diagnostic(span=span)])
        elif self.module is not None and self.module.location is not None:
            problem = SlowCompile(self.kernel, seconds, f"{self.module.size():,}", "all")
            warn_at_spans([problem.diagnostic(span=self.module.location)])
        else:
            return False
        return True


def busiest_line(module: Module) -> tuple[Span, int, int] | None:
    """The line of source that most operations are of, how many they are, and how many are in all.

    None if no line has very many. The module may change meanwhile.
    """
    lines: Counter[tuple[str, int]] = Counter()
    spans: dict[tuple[str, int], Span] = {}
    for op in module.walk():
        if (span := op.location) is not None:
            lines[span.file, span.line] += 1
            spans.setdefault((span.file, span.line), span)
    if not lines:
        return None
    line, count = lines.most_common(1)[0]
    return (spans[line], count, lines.total()) if count >= _MANY else None


def _is_terminal(stream: TextIO) -> bool:
    with suppress(AttributeError, ValueError):
        return stream.isatty()
    return False


_current = threading.local()


def compiling(module: Module) -> None:
    """Say which module is being compiled, for the watch of this thread."""
    watch: CompileWatch | None = getattr(_current, "watch", None)
    if watch is not None:
        watch.module = module


@contextmanager
def watched(kernel: str, part: str) -> Iterator[None]:
    """Watch the compile of a part of a kernel, unless that is done for one that is watched already.

    Raises:
        OctantsWarning: it took long, and warnings are errors.
    """
    if getattr(_current, "watch", None) is not None:
        yield
        return
    watch = _current.watch = CompileWatch(kernel)
    try:
        yield
    finally:
        _current.watch = None
        seconds = watch.end()
        if (logging := sys.modules.get("logging")) is not None:  # else there are no handlers
            logging.getLogger("octants").debug("%s of `%s`: %.3f s", part, kernel, seconds)
    if watch.raised is not None:
        raise watch.raised
