"""Copies of several pieces of memory by one kernel, where they are repeated.

Tapes that follow an earlier one copy before most launches what these overwrite, at the same
addresses each time. The driver takes 5.5 us of the host for each copy within an H200, however
small; a launch takes 3.7 us for all copies that are due.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections import OrderedDict
from ctypes import addressof, byref, c_void_p
from typing import TYPE_CHECKING

from octants.diagnostics.exceptions import InternalError, OctantsError
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.copy_each_kernel import MOST_PIECES, UNIT, WORD
from octants.runtime.cuda.modules import DeviceFunction

if TYPE_CHECKING:
    from octants.runtime.cuda.launch_context import LaunchContext

Pieces = tuple[tuple[int, int, int], ...]
MOST_BYTES = 1 << 22
"""Of a piece; the time of the host is nothing beside that of a larger one."""
_REPEATED = 64
"""Calls before the kernel is loaded, which takes longer than so many calls save."""
_MOST_KNOWN = 1 << 12
_THREADS, _MOST_BLOCKS = 256, 256


class _Launch:
    """A prepared launch of the kernel, in the default stream."""

    def __init__(self, function: DeviceFunction, pieces: Pieces) -> None:
        numbers = [number for piece in pieces for number in piece]
        self._table = (ctypes.c_int64 * (3 * MOST_PIECES))(*numbers)
        largest = max(nbytes for _, _, nbytes in pieces)
        blocks = min(-(-largest // (UNIT * _THREADS)), _MOST_BLOCKS)
        self._configuration = cuda.LaunchConfiguration(blocks, len(pieces), 1, _THREADS, 1, 1)
        self._arguments = (c_void_p * 1)(addressof(self._table))
        self._handle = c_void_p(function.handle)
        self.given = byref(self._configuration), self._handle, self._arguments, None


class RepeatedCopies:
    """The copies that were made lately, and from some time on the launches that make them."""

    def __init__(self) -> None:
        self._launches: OrderedDict[Pieces, list[_Launch]] = OrderedDict()
        self._calls = 0
        self._kernel: DeviceFunction | None = None

    def queue(self, machine: LaunchContext, pieces: Pieces) -> bool:
        """Queue copies in the default stream; False if nothing was done."""
        launches = self._launches.get(pieces)
        if launches is None:
            launches = self._make(machine, pieces)
        if not launches:
            return False
        for launch in launches:
            machine.context.call_quickly("cuLaunchKernelEx", *launch.given)
        return True

    def forget(self) -> None:
        """Drop the kernel, and all launches of it."""
        self._launches.clear()
        self._kernel = None
        self._calls = 0

    def _make(self, machine: LaunchContext, pieces: Pieces) -> list[_Launch]:
        """The launches that make copies; none if the driver should make them."""
        self._calls += 1
        if self._calls < _REPEATED:
            return []
        kernel = self._kernel
        if kernel is None:
            # If the driver does not compile PTX, it copies each piece.
            with contextlib.suppress(OctantsError, InternalError):
                kernel = self._kernel = machine.copy_kernel()
            if kernel is None:
                self._calls = 0
                return []
        starts = range(0, len(pieces), MOST_PIECES) if all(map(_fits, pieces)) else ()
        launches = [_Launch(kernel, pieces[start : start + MOST_PIECES]) for start in starts]
        if len(self._launches) >= _MOST_KNOWN:
            self._launches.popitem(last=False)
        self._launches[pieces] = launches
        return launches


def _fits(piece: tuple[int, int, int]) -> bool:
    """Whether the kernel can make a copy: of whole words, and not too many."""
    target, source, nbytes = piece
    return 0 < nbytes <= MOST_BYTES and not (target | source | nbytes) % WORD
