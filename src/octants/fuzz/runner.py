"""Runs many programs in worker processes: a crash, or one that hangs, costs one program."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
import time
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from typing import Any

from octants.fuzz import script
from octants.fuzz.backends import BACKENDS, Backend
from octants.fuzz.checks import Checker
from octants.fuzz.compare import Status, Verdict, check
from octants.fuzz.generator.build import generate
from octants.fuzz.program import Program
from octants.fuzz.report import Report
from octants.fuzz.shrink import shrink

PRECISIONS = ("f32", "f64")
CHUNK = 25
SHRINK_BUDGET = 400
PATIENCE = 900.0  # seconds for a chunk, and then for each of its programs
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
    chosen: Sequence[Case], backend: Backend, shrinks: bool, checker: Checker | None = None
) -> Iterator[Entry]:
    """The entries of some programs, in order."""
    programs = [generate(*case) for case in chosen]
    for program, verdict in zip(programs, check(programs, backend), strict=True):
        if checker is not None:
            checker.extend(program, verdict)
        smallest = None
        if shrinks and verdict.status in (Status.DISAGREES, Status.FAILS):
            smallest = minimise(program, verdict, backend, checker)
        yield describe(program, verdict, backend.name, smallest)


def minimise(
    program: Program, verdict: Verdict, backend: Backend, checker: Checker | None = None
) -> Program:
    """The smallest program with one of the same kinds of problem."""
    is_of_checks = all(problem.startswith("check ") for problem in verdict.problems)

    def fails(candidate: Program) -> bool:
        (found,) = check([candidate], backend)
        if checker is not None and is_of_checks:
            checker.extend(candidate, found)
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
    """A verdict as it travels from a worker."""
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
        entry["script"] = script.script(shown, verdict.problems, backend)
        entry["command"] = script.command(program, backend)
    return entry


def serve(backend: str, shrinks: bool, checks: Sequence[str], most: int) -> None:
    """A worker: reads chunks of cases, a line each, and writes a line for each program."""
    warnings.simplefilter("ignore")  # programs do on purpose what users are warned of
    made = BACKENDS[backend]()
    checker = Checker(getattr(made, "arch", ""), checks, most) if checks else None
    for line in sys.stdin:
        for entry in work([tuple(case) for case in json.loads(line)], made, shrinks, checker):
            print(json.dumps(entry), flush=True)
        print(flush=True)
    if checker is not None:
        checker.close()


# -- in the parent ---------------------------------------------------------------------------------


class Worker:
    """A worker process, started again after a crash."""

    def __init__(self, backend: str, settings: Sequence[str] = ()) -> None:
        self.backend = backend
        self.command = [sys.executable, "-m", "octants.fuzz", "--serve", "--backend", backend]
        self.command += settings
        self.process: subprocess.Popen[str] | None = None

    def run(self, chunk: Sequence[Case]) -> list[Entry]:
        """The entries of a chunk; if the worker dies, of its programs one by one."""
        entries, code = self._ask(chunk)
        if code is None:
            return entries
        if len(chunk) == 1:
            return [_crash(chunk[0], self.backend, code)]
        return [entry for case in chunk for entry in self.run([case])]

    def _ask(self, chunk: Sequence[Case]) -> tuple[list[Entry], int | None]:
        """The entries, and the exit code of a worker that died, or that had to be killed."""
        if self.process is None:
            pipe = subprocess.PIPE
            self.process = subprocess.Popen(self.command, stdin=pipe, stdout=pipe, text=True)
        process = self.process
        entries: list[Entry] = []
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(json.dumps(list(chunk)) + "\n")
        process.stdin.flush()
        watchdog = threading.Timer(PATIENCE, process.kill)
        watchdog.start()
        for line in process.stdout:
            if not line.strip():
                watchdog.cancel()
                return entries, None
            if line.startswith("{"):
                entries.append(json.loads(line))
        watchdog.cancel()
        self.process = None
        return entries, process.wait()

    def close(self) -> None:
        if self.process is not None and self.process.stdin is not None:
            self.process.stdin.close()
            self.process.wait()


def _crash(case: Case, backend: str, code: int) -> Entry:
    program = generate(*case)
    problem = f"error: the process died with exit code {code}"
    verdict = Verdict(program.seed, program.precision, Status.FAILS, [problem])
    return describe(program, verdict, backend, None)


def run(
    chosen: Sequence[Case],
    backend: str,
    jobs: int,
    settings: Sequence[str],
    see: Callable[[Report, Entry], None],
) -> Report:
    """Run all programs; ``see`` is called for each as it comes in.

    ``settings`` are options of the command that workers get too.
    """
    report, start = Report(backend), time.monotonic()
    chunks = deque(chosen[k : k + CHUNK] for k in range(0, len(chosen), CHUNK))
    workers = [Worker(backend, settings) for _ in range(min(jobs, len(chunks)))]
    with ThreadPoolExecutor(len(workers) or 1) as pool:
        pending: dict[Future[list[Entry]], Worker] = {
            pool.submit(worker.run, chunks.popleft()): worker for worker in workers
        }
        while pending:
            done, _ = wait(pending, return_when=FIRST_COMPLETED)
            for future in done:
                worker = pending.pop(future)
                for entry in future.result():
                    report.add(entry)
                    report.seconds = time.monotonic() - start
                    see(report, entry)
                if chunks:
                    pending[pool.submit(worker.run, chunks.popleft())] = worker
    for worker in workers:
        worker.close()
    report.seconds = time.monotonic() - start
    return report
