"""The profile of the compiler: which stages there are, what they count, and the command."""

from __future__ import annotations

import itertools
import json
import subprocess
import sys
from pathlib import Path

import octants as qd
from octants.compile_profile import CompileProfile, profiled, stage

NUMBERS = itertools.count(12345)
PROGRAM = """\
import sys
import octants as qd

qd.init(arch=qd.cpu, offline_cache=False)
x = qd.field(qd.f32, shape=3, needs_grad=True)

@qd.kernel
def profiled_{name}():
    for i in x:
        x[i] = {name} * x[i] + {name}

profiled_{name}()
print("arguments:", sys.argv[1:])
{end}
"""


def compiled() -> CompileProfile:
    """The profile of a kernel and its gradient, which no other call compiles."""
    number = next(NUMBERS)
    qd.init(arch=qd.cpu, offline_cache=False)
    x = qd.field(qd.f32, shape=3, needs_grad=True)
    y = qd.field(qd.f32, shape=3, needs_grad=True)

    @qd.kernel
    def wave():
        for i in x:
            y[i] = qd.sin(x[i]) * number

    with profiled() as profile:
        wave()
        wave.grad()
    wave.grad()
    return profile


def test_kernels_and_stages_are_found() -> None:
    profile = compiled()
    assert {"wave", "wave_reverse"} == set(profile.kernels)
    paths = [entry.path for entry in profile.of("wave")]
    assert paths[0] == ("frontend",)
    assert ("simplify", "fold") in paths
    assert paths.index(("code",)) < paths.index(("code", "LLVM emit"))
    assert ("reverse", "prune") in [entry.path for entry in profile.of("wave_reverse")]
    assert all(entry.seconds >= 0 for entry in profile.entries.values())


def test_sizes_are_those_of_the_modules() -> None:
    profile = compiled()
    entries = {entry.path: entry for entry in profile.of("wave")}
    fold = entries["simplify", "fold"]
    assert (fold.before, fold.unit) == (entries["outline_tasks",].after, "operations")
    assert entries["frontend",].before is None
    code = entries["code",]
    assert (code.after, code.unit) == (entries["code", "LLVM emit"].after, "bytes")
    assert (entries["code", "LLVM optimise"].after or 0) > 10


def test_nothing_is_counted_while_nobody_asks() -> None:
    def size() -> int:
        raise AssertionError("counted")

    with stage("nothing", size=size) as note:
        note.gives(size)


def test_seconds_of_inner_stages_are_not_those_of_outer_ones() -> None:
    with profiled() as profile, stage("outer", "k"), stage("inner"), stage("other", "m"):
        pass
    paths = {(entry.kernel, entry.path): entry.seconds for entry in profile.entries.values()}
    assert list(paths) == [("m", ("other",)), ("k", ("outer", "inner")), ("k", ("outer",))]
    assert profile.of("k")[0].path == ("outer",)
    assert abs(profile.seconds() - sum(paths.values())) < 1e-9


def test_stage_that_fails_is_counted() -> None:
    with profiled() as profile:
        try:
            with stage("fails", "k"):
                raise ValueError
        except ValueError:
            pass
        with stage("works", "k"):
            pass
    assert [entry.path for entry in profile.of("k")] == [("fails",), ("works",)]


def run(folder: Path, end: str, *options: str) -> subprocess.CompletedProcess[str]:
    script = folder / "program.py"
    script.write_text(PROGRAM.format(name="2", end=end))
    command = [sys.executable, "-m", "octants", "profile-compile", *options, str(script), "a", "-b"]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def test_command_runs_a_program_and_prints_a_table(tmp_path: Path) -> None:
    result = run(tmp_path, "")
    assert result.returncode == 0, result.stderr
    assert "arguments: ['a', '-b']" in result.stdout
    assert "profiled_2: " in result.stdout
    assert "LLVM emit" in result.stdout


def test_command_prints_the_table_of_a_program_that_exits(tmp_path: Path) -> None:
    file = tmp_path / "profile.json"
    result = run(tmp_path, "sys.exit(3)", "--llvm", "--json", str(file))
    assert result.returncode == 3, result.stderr
    assert "Register Alloc" in result.stdout
    entries = json.loads(file.read_text())
    assert {"frontend"} < {entry["stage"][0] for entry in entries}
    assert entries[0]["kernel"] == "profiled_2"
