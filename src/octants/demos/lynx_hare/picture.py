"""The picture: the data, the best fit, the band of the good restarts, and the losses."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from octants.demos.lynx_hare.fit import Fit, populations
from octants.demos.lynx_hare.pelts import Pelts
from octants.diagnostics.optional_dependencies import import_optional
from octants.types.scalars import DType

HARE, LYNX, LOST, INK = "#2a78b5", "#d1602d", "#c9c9c9", "#333333"
POINTS = 401
MOST_CURVES = 150


def draw(path: Path, pelts: Pelts, fit: Fit, dtype: DType) -> None:
    """Write the picture of a fit as a PNG (or whatever the suffix of the path says)."""
    figure_class = import_optional("matplotlib.figure", "demo").Figure
    figure = figure_class(figsize=(11, 5.6), dpi=150, layout="constrained")
    grid = figure.add_gridspec(2, 2, width_ratios=[3, 2])
    hares = figure.add_subplot(grid[0, 0])
    lynxes = figure.add_subplot(grid[1, 0], sharex=hares)
    losses = figure.add_subplot(grid[:, 1])
    best = populations(fit.best[None], pelts, POINTS, dtype)[0]
    bundle = populations(fit.spread.parameters, pelts, POINTS, dtype)
    for axes, species, colour, name in (
        (hares, 0, HARE, "snowshoe hares"),
        (lynxes, 1, LYNX, "Canada lynxes"),
    ):
        _draw_species(axes, pelts, best[:, species], bundle[:, :, species], species, colour)
        axes.set_title(name, loc="left", color=colour, fontweight="bold")
        axes.set_ylabel("pelts, thousands")
    hares.legend(frameon=False, loc="upper right", ncols=3, fontsize=8.5)
    hares.tick_params(labelbottom=False)
    _draw_losses(losses, fit)
    for axes in (hares, lynxes, losses):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path)


def _draw_species(
    axes: Any,
    pelts: Pelts,
    best: npt.NDArray[Any],
    bundle: npt.NDArray[Any],
    species: int,
    colour: str,
) -> None:
    year = np.linspace(pelts.year[0], pelts.year[-1], POINTS)
    low, high = np.quantile(bundle, [0.05, 0.95], axis=0)
    axes.fill_between(year, low, high, color=colour, alpha=0.2, lw=0, label="90 % of refits")
    axes.plot(year, best, color=colour, lw=1.8, label="best fit")
    axes.plot(pelts.year, pelts.count[:, species], "o", color=INK, ms=4, label="counted")
    axes.set_xlim(pelts.year[0] - 0.3, pelts.year[-1] + 0.3)
    axes.set_ylim(0, 1.25 * max(high.max(), pelts.count[:, species].max()))
    axes.set_xticks(range(int(pelts.year[0]), int(pelts.year[-1]) + 1, 5))


def _draw_losses(axes: Any, fit: Fit) -> None:
    history = fit.search.history
    good = fit.good[:MOST_CURVES]
    steps = np.arange(1, len(history) + 1)
    axes.plot(steps, history[:, :MOST_CURVES][:, ~good], color=LOST, lw=0.5)
    axes.plot(steps, history[:, :MOST_CURVES][:, good], color=HARE, lw=0.5, alpha=0.5)
    axes.plot([], [], color=HARE, label=f"{fit.good.sum()} of {len(fit.good)} found the best fit")
    axes.plot([], [], color=LOST, label="the others")
    axes.set_yscale("log")
    axes.set_ylim(0.8 * history.min(), np.quantile(history[0], 0.95))
    axes.set_xlim(1, len(history))
    axes.set_xlabel("step of the descent")
    axes.set_title("sum of squared log residuals", loc="left", fontweight="bold", color=INK)
    axes.legend(frameon=False, loc="upper right", fontsize=8.5)
