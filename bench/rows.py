"""One row for each measure: what every system takes, and its ratio to what Octants takes."""

from __future__ import annotations

import statistics
from collections.abc import Callable
from dataclasses import dataclass, field

from processes import Contender, Numbers, alternate


@dataclass(frozen=True)
class Spread:
    """Of the numbers of all rounds."""

    least: float
    median: float
    greatest: float


@dataclass
class Row:
    """A measure of all systems: numbers in ``unit``, or the words of those that have none.

    A ratio is the number of a system divided by that of Octants in the same round.
    """

    section: str
    subject: str
    measure: str
    unit: str
    numbers: dict[str, Spread | str] = field(default_factory=dict)
    ratios: dict[str, Spread] = field(default_factory=dict)


def spread(values: list[float]) -> Spread:
    """The least, the median and the greatest."""
    return Spread(min(values), statistics.median(values), max(values))


def make_rows(
    section: str,
    subject: str,
    contenders: list[Contender],
    rounds: int,
    measure: Callable[[Contender], dict[str, float]],
    units: dict[str, tuple[str, float]],
) -> list[Row]:
    """A row for each key of ``units``, which gives the unit and what to multiply numbers with."""
    numbers, failures = alternate(contenders, rounds, measure)
    rows = []
    for key, (unit, scale) in units.items():
        row = Row(section, subject, key, unit)
        for contender in contenders:
            values = numbers[contender.key].get(key)
            if values:
                row.numbers[contender.key] = spread([value * scale for value in values])
            else:
                row.numbers[contender.key] = failures.get(contender.key, "-")
        row.ratios = _ratios(numbers, key)
        rows.append(row)
    return rows


def _ratios(numbers: Numbers, key: str) -> dict[str, Spread]:
    """Each system by Octants with as many threads."""
    result = {}
    for name, measures in numbers.items():
        threads = name.partition(" ")[2]
        ours = numbers.get(f"octants {threads}".strip(), {}).get(key, [])
        pairs = zip(measures.get(key, []), ours, strict=False)
        quotients = [theirs / mine for theirs, mine in pairs if mine]
        if quotients and not name.startswith("octants"):
            result[name] = spread(quotients)
    return result
