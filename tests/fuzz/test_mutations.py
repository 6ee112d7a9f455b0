"""The fuzzer finds faults: each that is put into the autodiff, within 200 programs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from octants.fuzz.backends import BACKENDS
from octants.fuzz.compare import Status, check
from octants.fuzz.generator.build import generate
from tests.fuzz.faults import FAULTS, INTERPRETED, Fault, let_work_items_overtake
from tests.fuzz.faults_of_profiles import FAULTS_OF_PROFILES
from tests.seeds import counts

FIRST_SEED = 100_100  # of a hundred that are compiled at the quickest: see `backends.options`
MOST = 200
PATIENCE = 100  # seconds for a process: a program with a fault may run for ever

pytestmark = pytest.mark.filterwarnings("ignore:the (gradient|tangent) ends")


SHOWN_BY = {
    "reset_accumulators": 100_103,
    "forget_to_zero": 100_101,
    "swap_record_slots": 100_136,
    "read_the_next_record": 100_112,
    "stale_branches": 100_124,
    "one_iteration_less": 100_108,
    "untaken_selects": 100_105,
    "skip_checkpoints": 100_157,
    "skip_a_snapshot": 100_101,
    "restore_in_the_wrong_order": 100_101,
    "replay_with_other_numbers": 100_185,
}
"""The first program that shows a fault, where that is not the first of all."""

every_fault = pytest.mark.parametrize(
    "fault", [*FAULTS, *INTERPRETED], ids=lambda fault: fault.__name__
)


@every_fault
def test_fault_is_seen(fault: Fault, tmp_path: Path) -> None:
    """It begins with a program that shows the fault; if programs change, others follow."""
    search(SHOWN_BY.get(fault.__name__, FIRST_SEED), fault, tmp_path)


@pytest.mark.slow
@every_fault
def test_fault_is_found(fault: Fault, tmp_path: Path) -> None:
    """It begins with the first program of all."""
    search(FIRST_SEED, fault, tmp_path)


OF_PROFILES = {
    "bits": 100_100,
    "quantised": 100_101,
    "shared": 100_111,
    "edges": 100_100,
    "statics": 100_111,
    "collections": 100_136,
    "sparse": 100_107,
    "races": 100_125,
    "decompositions": 100_100,
}
"""The first program of a profile that shows its fault."""


@pytest.mark.parametrize("profile", FAULTS_OF_PROFILES)
def test_fault_is_seen_by_its_profile(profile: str, tmp_path: Path) -> None:
    search(OF_PROFILES[profile], FAULTS_OF_PROFILES[profile], tmp_path, profile)


@pytest.mark.slow
@pytest.mark.parametrize("profile", FAULTS_OF_PROFILES)
def test_fault_is_not_seen_by_the_core(profile: str, tmp_path: Path) -> None:
    fault, path = FAULTS_OF_PROFILES[profile], tmp_path / "core"
    last = FIRST_SEED + 20
    seed, status, *_ = run_from(FIRST_SEED, fault, path, last=last)
    assert (int(seed), status) == (last - 1, Status.AGREES.value)


def search(seed: int, fault: Fault, tmp_path: Path, profile: str = "core") -> int:
    """The first program from a seed on that shows a fault; of the core, in a gradient.

    What crashes, or runs for ever, is not found by that: other programs follow.
    """
    while seed < FIRST_SEED + MOST:
        last, *verdict = run_from(seed, fault, tmp_path / str(seed), profile)
        assert verdict[:1] != [Status.FAILS.value], verdict
        if verdict[:1] == [Status.DISAGREES.value]:
            assert profile != "core" or "gradient" in verdict[1], verdict
            return int(last)
        seed = int(last) + 1
    pytest.fail(f"not found in {MOST} programs")


def run_from(
    seed: int, fault: Fault, path: Path, profile: str = "core", last: int = FIRST_SEED + MOST
) -> list[str]:
    """The last line that a process has written: a seed, and the verdict if it came to one."""
    arguments = (fault.__name__, str(seed), str(last), profile)
    command = [sys.executable, "-m", "tests.fuzz.mutants", *arguments]
    paths = [str(Path(__file__).parents[2]), *sys.path]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    with path.open("w") as file:
        process = subprocess.Popen(command, env=environment, stdout=file)
        try:
            code = process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        else:
            assert code <= 0, "an error in the test itself"
    lines = path.read_text().splitlines() or [str(last)]  # there was none to run
    return lines[-1].rstrip().split("\t")


@pytest.mark.parametrize("count", counts(3, 30))
def test_the_same_programs_agree_without_faults(count: int) -> None:
    programs = [generate(FIRST_SEED + number, "f64") for number in range(count)]
    for verdict in check(programs, BACKENDS["cpu"]()):
        assert verdict.status in (Status.AGREES, Status.SET_ASIDE), verdict.problems


@pytest.mark.parametrize("count", counts(3, 30))
def test_work_items_that_overtake_each_other_change_nothing(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_work_items_overtake(monkeypatch)
    programs = [generate(FIRST_SEED + number, "f64") for number in range(count)]
    for verdict in check(programs, BACKENDS["interpreter"]()):
        assert verdict.status in (Status.AGREES, Status.SET_ASIDE), verdict.problems
