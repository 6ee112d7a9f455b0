"""The data: pelts of snowshoe hares and Canada lynxes traded in each year."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from importlib import resources

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class Pelts:
    """Counts in thousands: `year` has shape (n,), `count` (n, 2) with the hares first."""

    year: npt.NDArray[np.float64]
    count: npt.NDArray[np.float64]


def read_pelts() -> Pelts:
    """Read data/lynx-hare.csv, whose head names the sources."""
    file = resources.files("octants.demos") / "data" / "lynx-hare.csv"
    lines = [line for line in file.read_text("utf-8").splitlines() if not line.startswith("#")]
    rows = [(row["year"], row["hare"], row["lynx"]) for row in csv.DictReader(lines)]
    table = np.array(rows, dtype=np.float64)
    return Pelts(table[:, 0], table[:, 1:])
