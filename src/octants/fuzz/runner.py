"""Runs programs in worker processes, so that a crash or a hang loses one program only."""

from __future__ import annotations

import contextlib
import json
import queue
import signal
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from octants.fuzz import standalone_script
from octants.fuzz.backends import BACKENDS, Backend, PackageBackend
from octants.fuzz.compare import Status, Verdict, check
from octants.fuzz.generator.build import generate
from octants.fuzz.metamorphic_checks import Checker, temporary_folder
from octants.fuzz.program import Program
from octants.fuzz.report import Report
from octants.fuzz.shrink import shrink

PRECISIONS = ("f32", "f64")
CHUNK = 25
SHRINK_BUDGET = 400
PATIENCE = 120.0  # seconds of processor time for a program, and of time in which it uses none
SHRINKING = 900.0  # seconds more of processor time where it may be shrunk
PROGRESS = 0.5  # seconds of processor time: what uses less within `PATIENCE` waits for something
MOST = 250  # programs of a process, to bound its memory
Entry = dict[str, Any]
Case = tuple[int, str, str]  # a seed, a precision, and a profile


def cases(
    seed: int, count: int, precisions: Sequence[str], profiles: Sequence[str] = ("core",)
) -> list[Case]:
    """The programs of a run: each in one of the precisions and profiles, chunk by chunk."""
    seeds = range(seed, seed + count)
    pairs = [(one, one // CHUNK) for one in seeds]
    return [
        (one, precisions[chunk % len(precisions)], profiles[chunk // 2 % len(profiles)])
        for one, chunk in pairs
    ]


# -- in a worker -----------------------------------------------------------------------------------


def work(
    chosen: Iterable[Case], backend: Backend, shrinks: bool, checker: Checker | None = None
) -> Iterator[Entry]:
    """The entries of some programs, in order."""
    for case in chosen:
        try:
            program = generate(*case)
        except Exception as error:
            raised = f"error: no program: {type(error).__name__}: {error}"
            yield _failure(_unmade(case), backend.name, raised)
            continue
        verdict = _verdict(program, backend, checker)
        smallest = None
        if shrinks and verdict.status in (Status.DISAGREES, Status.FAILS):
            smallest = minimise(program, verdict, backend, checker)
        yield describe(program, verdict, backend.name, smallest)


def _verdict(program: Program, backend: Backend, checker: Checker | None) -> Verdict:
    if checker is not None and isinstance(backend, PackageBackend):
        return checker.check(program, backend)
    return check([program], backend)[0]


def minimise(
    program: Program, verdict: Verdict, backend: Backend, checker: Checker | None = None
) -> Program:
    """The smallest program with one of the same kinds of problem."""
    is_of_checks = all(problem.startswith("check ") for problem in verdict.problems)

    def fails(candidate: Program) -> bool:
        found = _verdict(candidate, backend, checker if is_of_checks else None)
        return found.status is verdict.status and bool(_kinds(found) & _kinds(verdict))

    return shrink(program, fails, SHRINK_BUDGET)


def _kinds(verdict: Verdict) -> frozenset[str]:
    """Problems without their numbers; errors with the type of what was raised."""
    return frozenset(
        ":".join(problem.split(":")[:2])[:60]
        if problem.startswith("error")
        else problem.split(":")[0]
        for problem in verdict.problems
    )


def describe(program: Program, verdict: Verdict, backend: str, smallest: Program | None) -> Entry:
    """A verdict as JSON, which a worker sends to the parent."""
    entry: Entry = {
        "seed": program.seed,
        "precision": program.precision,
        "profile": program.profile,
        "status": verdict.status.value,
        "problems": verdict.problems,
        "modes": verdict.modes,
        "refusals": verdict.refusals,
        "nonzero": verdict.nonzero,
        "blunt": verdict.blunt,
        "features": sorted(program.features),
    }
    if verdict.status in (Status.DISAGREES, Status.FAILS):
        shown = smallest or program
        entry["source"] = shown.source
        entry["script"] = standalone_script.script(shown, verdict.problems, backend)
        entry["command"] = standalone_script.command(program, backend)
    return entry


def serve(backend: str, shrinks: bool, checks: Sequence[str], most: int, folder: str) -> None:
    """A worker: reads chunks of cases, a line each, and writes a line for each program.

    It ends with its parent, and ignores signals, which the parent handles for the whole group. What
    it writes is in a folder of the parent, which may kill it.
    """
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, signal.SIG_IGN)
    warnings.simplefilter("ignore")  # programs provoke warnings on purpose
    made = BACKENDS[backend]()
    checker = Checker(getattr(made, "arch", ""), checks, most, folder) if checks else None
    for line in sys.stdin:
        for entry in work(map(tuple, json.loads(line)), made, shrinks, checker):
            print(json.dumps(entry), flush=True)
        print(flush=True)
    if checker is not None:
        checker.close()


# -- in the parent ---------------------------------------------------------------------------------


def processor_time(process: int) -> float:
    """The processor time of a process, in seconds; the time of day where it is unknown.

    Raises:
        OSError: the process has ended.
    """
    if sys.platform != "linux":
        return time.monotonic()
    return time.clock_gettime(~process << 3 | 2)  # as `clock_getcpuclockid` of the C library does


class Watchdog(threading.Thread):
    """Kills a process that takes too much processor time for a program, or none for too long.

    On a busy machine a program may take any time of day.
    """

    def __init__(self, process: subprocess.Popen[str], patience: float) -> None:
        super().__init__(daemon=True)
        self._process = process
        self._patience = patience
        self._begins = True  # whether a program has begun
        self._is_stopped = threading.Event()

    def restart(self) -> None:
        """Begin again, with another program."""
        self._begins = True

    def stop(self) -> None:
        """Watch no longer."""
        self._is_stopped.set()
        self.join()

    def run(self) -> None:
        start = mark = seen = 0.0  # processor time at the start and at the last progress, and when
        with contextlib.suppress(OSError):
            while not self._is_stopped.wait(min(1.0, PATIENCE / 4)):
                now, used = time.monotonic(), processor_time(self._process.pid)
                if self._begins:
                    self._begins, start, mark, seen = False, used, used, now
                if used - mark > PROGRESS:
                    mark, seen = used, now
                if used - start > self._patience or now - seen > PATIENCE:
                    self._process.kill()
                    return


class Worker:
    """A worker process, restarted after a crash, and after `MOST` programs to free memory."""

    def __init__(self, backend: str, settings: Sequence[str] = ()) -> None:
        self.backend = backend
        self.command = [sys.executable, "-m", "octants.fuzz", "--serve", "--backend", backend]
        self.command += settings
        self.process: subprocess.Popen[str] | None = None
        self.patience = PATIENCE + (0.0 if "--no-shrink" in settings else SHRINKING)
        self.count = 0  # programs of the process
        self.is_stopped = False

    def run(self, chunk: Sequence[Case]) -> Iterator[Entry]:
        """The entries of a chunk, as they come in.

        If the process dies or is killed, its current program runs once more, in a new process.
        """
        left = list(chunk)
        while left:
            for entry in self._run_chunk(left):
                left.pop(0)
                yield entry
            if self.is_stopped:
                return
            if left:
                yield self._once_more(left.pop(0))

    def _once_more(self, case: Case) -> Entry:
        """Run the program during which the process died again; the entry is a failure anyway."""
        code = self._end()
        entry = next(self._run_chunk([case]), None)
        if entry is None:
            return _crash(case, self.backend, f"the process died with exit code {self._end()}")
        if entry["status"] in (Status.DISAGREES.value, Status.FAILS.value):
            return entry
        return _crash(case, self.backend, f"the process died with exit code {code}, not alone")

    def _run_chunk(self, chunk: Sequence[Case]) -> Iterator[Entry]:
        """The entries, until the process dies or exceeds its time for a program."""
        if self.count >= MOST:
            self.close()
        if self.process is None:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, text=True)
            self.count = 0
        process = self.process  # its thread may drop it meanwhile
        assert process.stdin is not None and process.stdout is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(json.dumps(list(chunk)) + "\n")
            process.stdin.flush()
        watchdog = Watchdog(process, self.patience)
        watchdog.start()
        try:
            for line in process.stdout:
                if not line.strip():
                    return
                if line.startswith("{"):
                    self.count += 1
                    watchdog.restart()
                    yield json.loads(line)
                    watchdog.restart()
        finally:
            watchdog.stop()

    def _end(self) -> int:
        """Wait for the process, which is dead; its exit code."""
        assert self.process is not None
        process, self.process = self.process, None
        with contextlib.suppress(BrokenPipeError), process:
            pass
        return process.wait()

    def stop(self) -> None:
        """Kill the process."""
        self.is_stopped = True
        if self.process is not None:
            self.process.kill()

    def join(self) -> None:
        """Wait for the end of a process that was stopped."""
        process = self.process  # its thread may drop it meanwhile
        if process is not None:
            process.wait()

    def close(self) -> None:
        """End the process after its current chunk."""
        if self.process is not None:
            self._end()


def _crash(case: Case, backend: str, problem: str) -> Entry:
    try:
        program = generate(*case)
    except Exception:  # then that is what has ended the process
        program = _unmade(case)
    return _failure(program, backend, f"error: {problem}")


def _unmade(case: Case) -> Program:
    """An empty program for one that could not be generated."""
    seed, precision, profile = case
    return Program(seed, "", precision, {}, {}, {}, [], profile=profile)


def _failure(program: Program, backend: str, problem: str) -> Entry:
    verdict = Verdict(program.seed, program.precision, Status.FAILS, [problem])
    return describe(program, verdict, backend, None)


class Stopped(BaseException):
    """Raised by the handler of a signal that is to end a run."""


def run(
    chosen: Sequence[Case],
    backend: str,
    jobs: int,
    settings: Sequence[str],
    see: Callable[[Report, Entry], None],
) -> Report:
    """Run all programs; ``see`` is called for each as it comes in.

    ``settings`` are options of the command that workers get too. `Stopped` ends the run: the report
    is of the programs so far.
    """
    report, start = Report(backend, wanted=len(chosen)), time.monotonic()
    chunks = deque(chosen[k : k + CHUNK] for k in range(0, len(chosen), CHUNK))
    folder = temporary_folder()
    given = [*settings, "--folder", folder.name]
    workers = [Worker(backend, given) for _ in range(min(jobs, len(chunks)))]
    entries: queue.SimpleQueue[Entry | Exception | None] = queue.SimpleQueue()

    def drive(worker: Worker) -> None:
        try:
            while not worker.is_stopped and (chunk := _take(chunks)):
                for entry in worker.run(chunk):
                    entries.put(entry)
            worker.close()
            entries.put(None)
        except Exception as error:
            entries.put(error)

    threads = [threading.Thread(target=drive, args=(worker,), daemon=True) for worker in workers]
    for thread in threads:
        thread.start()
    running = len(threads)
    try:
        while running:
            entry = entries.get()
            report.seconds = time.monotonic() - start
            if isinstance(entry, Exception):
                raise entry
            if entry is None:
                running -= 1
            else:
                report.add(entry)
                see(report, entry)
    except BaseException as end:
        for worker in workers:
            worker.stop()
        for worker in workers:
            worker.join()
        if not isinstance(end, Stopped):
            raise
    finally:
        folder.cleanup()
    return report


def _take(chunks: deque[Sequence[Case]]) -> Sequence[Case]:
    """The next chunk, for one of several threads; an empty one if there are no more."""
    try:
        return chunks.popleft()
    except IndexError:
        return ()
