"""What a thread tells its device, noted down while it is done: so that it can be done again.

All that launches, copies and fills looks whether there is a capture, and notes what it has done. In
memory that the host shares, what the host does to arrays by numpy is noted, too. Values of the
host are noted as they are then; what is in memory of the device is used as it is at the replay.
"""

from __future__ import annotations

import ctypes
import functools
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from octants.artifact import SYSTEM
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.graph_errors import NotInAGraph
from octants.lazy_dataclass import dataclass

NUMBER = 8 * SYSTEM.index("launch")
_Part = np.ndarray[Any, Any]
_Method = TypeVar("_Method", bound=Callable[..., Any])

captures: list[Capture] = []
"""The capture that is under way; empty if there is none."""


@dataclass(slots=True)
class Launch:
    """A launch: `run` takes the address of its parameter block, which nobody else has any more.

    `kernel` is what the device has loaded; None where the interpreter runs it. Where the host
    shares the memory, `storage` bytes behind the `slots` are zero when it begins. `quotas` is what
    `kernel` tells of the tapes that the launch took.
    """

    run: Callable[[int], None]
    kernel: Any
    block: int
    slots: int
    storage: int
    number: int
    quotas: Any = None

    def __call__(self, later: int) -> None:
        """Do it again, as a launch of a number that is so much larger."""
        ctypes.c_uint64.from_address(self.block + NUMBER).value = self.number + later
        if self.storage:
            ctypes.memset(self.block + self.slots, 0, self.storage)
        self.run(self.block)


@dataclass(slots=True)
class DeviceCall:
    """A call of a method of the device: a copy, a fill, or a write of bytes."""

    method: str
    call: Callable[..., None]
    arguments: tuple[Any, ...]

    def __call__(self, _: int) -> None:
        self.call(*self.arguments)


@dataclass(slots=True)
class HostCopy:
    """Elements in memory of the host that become those of another array, or of a copy made then."""

    target: _Part
    source: _Part

    def __call__(self, _: int) -> None:
        self.target[...] = self.source


Command = Launch | DeviceCall | HostCopy


class CommandReplay(Protocol):
    """Does all commands again; see `Device.make_graph`."""

    @property
    def is_one_launch(self) -> bool: ...

    def __call__(self, later: int, /) -> None:
        """Do it, with launches of numbers that are so much larger."""


class CommandList:
    """Commands, done again one after the other: a graph for devices that have none."""

    is_one_launch = False

    def __init__(self, commands: Sequence[Command]) -> None:
        self._commands = tuple(commands)

    def __call__(self, later: int) -> None:
        for command in self._commands:
            command(later)


class Capture:
    """What one thread has done since the beginning: its `commands`, and what they need.

    That is `kept`, the `arrays` that were passed to kernels, and the `owners` of launches, these by
    their identities.
    `failure` is the error that has ended it early.
    """

    def __init__(self) -> None:
        self.commands: list[Command] = []
        self.kept: list[Any] = []
        self.arrays: dict[int, Any] = {}
        self.owners: dict[int, Any] = {}
        self.failure: OctantsError | None = None
        self._thread = threading.get_ident()
        self._copies: set[int] = set()
        self._quiet = 0

    def begin(self) -> None:
        """Note from now on what the thread does."""
        captures.append(self)

    def end(self) -> None:
        """Note nothing any more."""
        if self in captures:
            captures.remove(self)

    def listens(self) -> bool:
        """Whether what happens now is to be noted: it is the capture's own thread."""
        return self._quiet == 0 and threading.get_ident() == self._thread

    @contextmanager
    def quiet(self) -> Iterator[None]:
        """Note nothing for a while."""
        self._quiet += 1
        try:
            yield
        finally:
            self._quiet -= 1

    def refuse(self, what: str, advice: str) -> NoReturn:
        """End the capture with an error."""
        self.end()
        self.failure = NotInAGraph(what, advice).at(None)
        raise self.failure

    # -- what is noted --------------------------------------------------------------------------

    def launched(
        self,
        run: Callable[[int], None],
        kernel: Any,
        owner: Any,
        place: tuple[int, int, int],
        block: Any,
        arrays: Sequence[Any],
    ) -> bool:
        """Note a launch for an ``owner``; ``arrays`` are those that were passed.

        The (address, bytes of slots, bytes of storage) of its parameter ``block`` are ``place``.
        True if the block is the capture's own from now on.
        """
        number = ctypes.c_uint64.from_address(place[0] + NUMBER).value
        quotas = kernel.quotas() if hasattr(kernel, "quotas") else None
        self.commands.append(Launch(run, kernel, *place, number, quotas))
        self.kept.append(block)
        self.owners[id(owner)] = owner
        if hasattr(owner, "holding"):
            self.kept.append(owner.holding())
        for array in arrays:
            self.arrays[id(array)] = array
        return True

    def call_and_note(
        self, method: str, call: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        """Do, and note, a call of a method of the device; arrays of bytes are noted as they are."""
        fixed = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
        with self.quiet():
            call(*arguments)
        self.commands.append(DeviceCall(method, call, fixed))

    def keep(self, owner: Any) -> None:
        """Keep something alive that commands work on."""
        self.kept.append(owner)

    def allocated(self, clear: Callable[..., None], allocation: Any) -> None:
        """Keep memory, and let it be zero again at each replay."""
        self.kept.append(allocation)
        self.commands.append(DeviceCall("clear", clear, (allocation.address, allocation.nbytes)))

    def wrote(self, part: _Part, values: Any) -> None:
        """Note that the host has written a part of its memory."""
        source = values if self._is_copy(values) else part.copy()
        self.commands.append(HostCopy(part, source))

    def _is_copy(self, values: Any) -> bool:
        """Whether these are elements of a copy that was noted, which a replay makes again."""
        while isinstance(values, np.ndarray):
            if id(values) in self._copies:
                return True
            values = values.base
        return False

    def saved(self, part: _Part, copy: _Part) -> None:
        """Note that a part of the host's memory was copied."""
        self._copies.add(id(copy))
        self.kept.append(copy)
        self.commands.append(HostCopy(copy, part))


@contextmanager
def once() -> Iterator[None]:
    """What is done now is not done again by a graph that is being captured."""
    capture = own_capture()
    if capture is None:
        yield
        return
    with capture.quiet():
        yield


def own_capture() -> Capture | None:
    """The capture that notes what the thread does now, if there is one."""
    if not captures:
        return None
    for capture in tuple(captures):
        if capture.listens():
            return capture
    return None


def launched(run: Callable[[int], None], *launch: Any) -> bool:
    """See `Capture.launched`."""
    capture = own_capture()
    return capture is not None and capture.launched(run, *launch)


def refuse(what: str, advice: str) -> None:
    """End the capture that is under way in this thread, if there is one, with an error."""
    capture = own_capture()
    if capture is not None:
        capture.refuse(what, advice)


def refuse_read(_: Any = None) -> None:
    """An error for a read of the host, which a replay could not wait for."""
    refuse(
        "the host cannot read what the device computes",
        "read it before or after; what decides between launches must be computed by kernels",
    )


def noted(method: _Method) -> _Method:
    """A method of a device that a capture notes when it is called."""

    @functools.wraps(method)
    def call(self: Any, *arguments: Any) -> None:
        capture = own_capture()
        if capture is None:
            method(self, *arguments)
        else:
            capture.call_and_note(method.__name__, functools.partial(method, self), arguments)

    return call  # type: ignore[return-value]
