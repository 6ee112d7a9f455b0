"""Runs a function again, for other directions or for a derivative, with the same random numbers.

The result and all its derivatives must be those of one function. A launch draws random numbers by
its number, so that each run gets the launch numbers of the first.
"""

from __future__ import annotations

import contextlib
import operator
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from octants import driver

T = TypeVar("T")
R = TypeVar("R")


def next_number() -> int:
    """The number of the next launch, which is left as it is."""
    return driver.last_number(operator.length_hint(driver.state.numbers, -1)) + 1


@contextlib.contextmanager
def numbered_from(first: int | None) -> Iterator[None]:
    """A context whose launches have the numbers from `first` on again; None: the next ones."""
    if first is None:
        yield
        return
    numbers = driver.state.numbers
    driver.state.numbers = driver.launch_numbers(first)
    try:
        yield
    finally:
        driver.state.numbers = numbers


def run_each(run: Callable[[T], R], inputs: Iterable[T]) -> list[R]:
    """Call a function for each of some inputs; its launches have the same numbers each time.

    Args:
        run: the function, which launches kernels.
        inputs: its argument at each call.

    Returns:
        The results of the calls.
    """
    first = latest = driver.next_launch_number()
    results = []
    for each in inputs:
        driver.state.numbers = driver.launch_numbers(first)
        try:
            results.append(run(each))
        finally:
            latest = max(latest, driver.next_launch_number())
            driver.state.numbers = driver.launch_numbers(latest)
    return results
