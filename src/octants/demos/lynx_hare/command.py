"""``python -m octants demo lynx-hare``: its options, its progress bar, its table."""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import numpy as np

import octants as qd
from octants.demos.lynx_hare.fit import Fit, fit
from octants.demos.lynx_hare.pelts import read_pelts
from octants.demos.lynx_hare.picture import draw
from octants.demos.lynx_hare.simulator import PARAMETERS
from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.diagnostics.optional_dependencies import import_optional
from octants.types import scalars

# Posterior means of B. Carpenter (2018), "Predator-Prey Population Dynamics: the Lotka-Volterra
# model in Stan".
PUBLISHED = ("0.55", "0.028", "0.80", "0.024", "", "")
_MANY = 4096
MEANING = (
    "growth of the hares",
    "hares lost per lynx",
    "decline of the lynxes",
    "lynxes gained per hare",
    "thousands",
    "thousands",
)


def add_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of the demo."""
    parser.add_argument("--restarts", type=positive, default=256, help="random starts (256)")
    parser.add_argument("--steps", type=positive, default=80, help="steps of each descent (80)")
    parser.add_argument("--seed", type=int, default=1900, help="of the random starts (1900)")
    parser.add_argument("--output", type=Path, default=Path("lynx-hare.png"), help="the picture")
    parser.add_argument("--precision", choices=("f32", "f64"), default="f64")
    parser.add_argument("--threads", type=positive, help="at most so many (all cores)")


def positive(text: str) -> int:
    """A number of at least 1."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{text} is not positive")
    return number


def main(options: argparse.Namespace) -> None:
    """Fit, print the table, and write the picture."""
    progress_module = import_optional("rich.progress", "demo")
    import_optional("matplotlib.figure", "demo")
    if not options.output.absolute().parent.is_dir():
        raise OctantsRuntimeError(f"there is no folder {options.output.parent} for the picture")
    dtype = scalars.by_name(options.precision)
    limits = {"cpu_max_num_threads": options.threads} if options.threads else {}
    qd.init(arch=qd.cpu, default_fp=dtype, **limits)
    pelts = read_pelts()
    start = time.perf_counter()
    with _progress_bar(progress_module) as progress:
        bars = (
            _bar(progress, f"searching from {options.restarts} starts", options.steps),
            _bar(progress, "measuring the spread", options.steps),
        )
        found = fit(pelts, options.restarts, options.steps, dtype, options.seed, bars)
    seconds = time.perf_counter() - start
    print_table(found)
    print(f"{seconds:.1f} s, of which {found.kernel_seconds / seconds:.0%} in kernels")
    draw(options.output, pelts, found, dtype)
    print(f"the picture: {options.output}")
    if options.restarts < _MANY:
        print(
            f"more: `--restarts {_MANY} --steps 200` searches more widely; `demo cloth` is another"
        )


def _progress_bar(module: Any) -> Any:
    return module.Progress(
        module.TextColumn("{task.description:<28}"),
        module.BarColumn(),
        module.MofNCompleteColumn(),
        module.TimeElapsedColumn(),
        module.TextColumn("{task.fields[loss]}"),
    )


def _bar(progress: Any, description: str, steps: int) -> Any:
    task = progress.add_task(description, total=steps, loss="", start=False)

    def advance(loss: float) -> None:
        progress.start_task(task)
        progress.update(task, advance=1, loss=f"least loss {loss:.4f}")

    return advance


def print_table(found: Fit) -> None:
    """The parameters, with their spread over the good restarts, beside the published ones."""
    table = import_optional("rich.table", "demo").Table()
    for title in ("parameter", "", "best fit", "spread", "Carpenter"):
        table.add_column(title, justify="left" if title in ("parameter", "") else "right")
    rows = zip(PARAMETERS, MEANING, np.exp(found.best), found.deviation, PUBLISHED, strict=True)
    for name, meaning, value, deviation, published in rows:
        table.add_row(name, meaning, f"{value:.3g}", f"± {deviation:.2g}", published)
    import_optional("rich.console", "demo").Console().print(table)
    good, runs = int(found.good.sum()), len(found.good)
    print(f"{good} of {runs} restarts found this fit; noise of the counts: {found.noise:.0%}")
