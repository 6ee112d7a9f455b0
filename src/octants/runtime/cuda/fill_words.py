"""Elements as words that the driver fills memory with."""

from __future__ import annotations

FILLS = {1: "cuMemsetD8Async", 2: "cuMemsetD16Async", 4: "cuMemsetD32Async"}
"""The functions that set words, by the bytes of one."""
_FEW = 2  # elements of two different words are set word by word

Words = tuple[int, tuple[int, ...], int]


def words_of(element: bytes, count: int) -> Words | None:
    """(bytes of a word, words that are set one after the other, how often each stands in a row).

    None where elements are larger than what the driver can set.
    """
    if len(element) in FILLS:
        return len(element), (int.from_bytes(element, "little"),), count
    if len(element) % 4:
        return None
    words = [int.from_bytes(element[k : k + 4], "little") for k in range(0, len(element), 4)]
    if len(set(words)) == 1:
        return 4, (words[0],), count * len(words)
    return (4, tuple(words * count), 1) if count * len(words) <= _FEW else None
