"""``python -m octants.fuzz --seed S --count N --backend cpu``: compare random programs."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path

import octants
from octants.backends.table import obstacle_to
from octants.fuzz import runner
from octants.fuzz.backends import BACKENDS
from octants.fuzz.generator.build import generate
from octants.fuzz.generator.profiles import PROFILES
from octants.fuzz.metamorphic_checks import CHECKS
from octants.fuzz.report import Report
from octants.fuzz.runner import PRECISIONS, Entry
from octants.target import Arch

PROGRESS = 100  # programs after which a run says how far it is


def main() -> int:
    """The command. The exit code is 0 if nothing is wrong."""
    options = _options()
    warnings.filterwarnings("ignore", "OCT158")  # programs cut off numbers to test that
    if options.serve:
        shrinks, most = not options.no_shrink, options.most_checks
        runner.serve(options.backend, shrinks, options.checks, most, options.folder)
        return 0
    precisions = PRECISIONS if options.precision == "both" else (options.precision,)
    profiles = _named(options.profile, PROFILES)
    if options.show:
        print(generate(options.seed, precisions[0], profiles[0]).source)
        return 0
    arch: Arch = getattr(octants, BACKENDS[options.backend]().arch)
    if obstacle := obstacle_to(arch.name):
        sys.exit(f"the backend {options.backend} cannot be used: {obstacle}")

    def see(report: Report, entry: Entry) -> None:
        if "script" in entry:
            _show(entry, options.save)
        if report.count % PROGRESS == 0:
            print(report.summary(), flush=True)
        if sys.stderr.isatty():
            print(f"\r{report.count} programs, {report.wrong} wrong", end="", file=sys.stderr)

    chosen = runner.cases(options.seed, options.count, precisions, profiles)
    settings = ["--most-checks", str(options.most_checks)]
    settings += ["--checks", *_named(options.checks, CHECKS)] if options.checks else []
    settings += ["--no-shrink"] if options.no_shrink else []
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    report = runner.run(chosen, options.backend, options.jobs, settings, see)
    print(report.text())
    print(report.summary(), flush=True)
    return 1 if report.shortcomings() else 0


def stop(number: int, _: object) -> None:
    """End the run, once."""
    signal.signal(number, signal.SIG_IGN)
    raise runner.Stopped


def _named(chosen: Sequence[str], table: Mapping[str, object]) -> list[str]:
    """The names that an option lists; "all" stands for those of the table."""
    return list(table) if "all" in chosen else list(chosen)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser("python -m octants.fuzz", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="the first program")
    parser.add_argument("--count", type=int, default=100, help="how many programs")
    parser.add_argument("--backend", choices=sorted(BACKENDS), default="cpu")
    parser.add_argument("--precision", choices=[*PRECISIONS, "both"], default="both")
    parser.add_argument(
        "--profile",
        nargs="+",
        choices=[*PROFILES, "all"],
        default=["core"],
        help="productions: " + "; ".join(f"{name}: {p.purpose}" for name, p in PROFILES.items()),
    )
    parser.add_argument(
        "--checks",
        nargs="+",
        choices=[*CHECKS, "all"],
        default=[],
        help="run programs in other ways too, which must give the same: "
        + "; ".join(f"{name}: {check.purpose}" for name, check in CHECKS.items()),
    )
    parser.add_argument(
        "--most-checks", type=int, default=2, help="how many of the checks a program gets"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="worker processes")
    parser.add_argument("--save", type=Path, help="a folder for scripts of what is wrong")
    parser.add_argument("--no-shrink", action="store_true", help="show programs as they are")
    parser.add_argument("--show", action="store_true", help="print the program, run nothing")
    parser.add_argument("--folder", help=argparse.SUPPRESS)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _show(entry: Entry, folder: Path | None) -> None:
    print(f"\n--- {entry['status']}: seed {entry['seed']} {entry['precision']}")
    print(entry["command"])
    for problem in entry["problems"][:8]:
        print(f"  {problem}")
    print(entry["source"], flush=True)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
        name = f"{entry['profile']}_{entry['seed']}_{entry['precision']}.py"
        (folder / name).write_text(entry["script"])


if __name__ == "__main__":
    sys.exit(main())
