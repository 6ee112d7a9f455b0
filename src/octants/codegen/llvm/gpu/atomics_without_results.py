"""Make PTX of atomic operations whose result is not used reductions, for which nothing waits.

Before::

    atom.global.add.f32     %r9, [%rd5], %r8;

After::

    red.global.add.f32      [%rd5], %r8;

NVIDIA's driver lets code wait for the result of an atomic operation even if it drops it. Reductions
may not acquire.
"""

from __future__ import annotations

import re
from collections import Counter

_ATOMIC = re.compile(
    r"\batom(?!\S*\.acq)(?P<kind>[.:\w]*\.(?:add|and|or|xor|min|max)\.\w+)\s+(?P<result>%\w+),\s*(?P<rest>\[)"
)
_FUNCTION = re.compile(r"^(?=[^\n]*\.(?:entry|func)\b)", re.MULTILINE)
_REGISTER = re.compile(r"%\w+")


def without_results(text: str) -> str:
    """Replace each atomic operation whose result register is used nowhere else in its function."""
    return "".join(map(_in_function, _FUNCTION.split(text)))


def _in_function(text: str) -> str:
    if not _ATOMIC.search(text):
        return text
    uses = Counter(_REGISTER.findall(text))

    def replaced(found: re.Match[str]) -> str:
        is_used = uses[found["result"]] > 1
        return found[0] if is_used else f"red{found['kind']} {found['rest']}"

    return _ATOMIC.sub(replaced, text)
