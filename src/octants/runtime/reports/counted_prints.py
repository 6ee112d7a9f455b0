"""Joins what a launch has printed; counted prints appear once, with the number of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable


def joined(prints: Iterable[tuple[Hashable, Callable[[], str]]]) -> str:
    """The text of prints, in order.

    Args:
        prints: what is counted (None for a print that is not), and a function that gives its text.
    """
    texts: list[str] = []
    firsts: dict[Hashable, int] = {}
    more = Counter[int]()
    for counted, text in prints:
        if counted in firsts:
            more[firsts[counted]] += 1
            continue
        if counted is not None:
            firsts[counted] = len(texts)
        texts.append(text())
    for position, count in more.items():
        texts[position] += f"    and {count} more {'time' if count == 1 else 'times'} there\n"
    return "".join(texts)
