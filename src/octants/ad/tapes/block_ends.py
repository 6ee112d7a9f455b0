"""Ends what a ``with`` statement has begun, also if Ctrl-C keeps it from calling `__exit__`.

Ctrl-C may come when `__enter__` has done its work and the statement has not begun, or when the
body has ended and `__exit__` has not begun. Then nothing calls `__exit__`, and a tape would stay
active for good. But the statement takes `__exit__` before it calls `__enter__`, and drops it in any
case. So `__exit__` is an object that the statement alone refers to, and its end abandons the block.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any


class EndOfBlock:
    """A descriptor for `__exit__`, the given function, of a context manager.

    That `is_entered` once `__enter__` was called, keeps what it is given in `block` until its end,
    and ends by `abandon`, unless that was done.
    """

    def __init__(self, function: Callable[..., None]) -> None:
        self._function = function
        self.__doc__ = function.__doc__

    def __get__(self, owner: Any, _: Any = None) -> Callable[..., None]:
        function = self._function
        if owner is None:
            return function
        end = partial(function, owner)
        if not owner.is_entered:
            owner.block = weakref.ref(end, owner.abandon)
        return end
