"""Captures the launches, copies and fills of a thread while they run, so that they can be replayed.

Every launch, copy and fill checks whether a capture is active, and adds a command to it. In memory
that the host shares, the writes of the host to arrays are commands, too. Values of the host are
copied at the capture; the contents of device memory are those at the replay.
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
"""The active capture; empty without one."""


@dataclass(slots=True)
class Launch:
    """A launch; `run` takes the address of its parameter block, which belongs to the capture.

    `kernel` is the device's loaded kernel; None where the interpreter runs it. Where the host
    shares the memory, `storage` bytes after the `slots` bytes are zeroed before each run. `number`
    is that of the launch at the capture.
    """

    run: Callable[[int], None]
    kernel: Any
    block: int
    slots: int
    storage: int
    number: int

    def __call__(self, later: int) -> None:
        """Launch again, with a number that is larger by ``later``."""
        ctypes.c_uint64.from_address(self.block + NUMBER).value = self.number + later
        if self.storage:
            ctypes.memset(self.block + self.slots, 0, self.storage)
        self.run(self.block)


@dataclass(slots=True)
class DeviceCall:
    """A call of a device method: a copy, a fill, or a write of bytes."""

    method: str
    call: Callable[..., None]
    arguments: tuple[Any, ...]

    def __call__(self, _: int) -> None:
        self.call(*self.arguments)


@dataclass(slots=True)
class HostCopy:
    """A copy between arrays in host memory; unless it `keeps_source`, others keep that alive."""

    target: _Part
    source: _Part
    keeps_source: bool = True

    def __call__(self, _: int) -> None:
        self.target[...] = self.source


Command = Launch | DeviceCall | HostCopy


class CommandReplay(Protocol):
    """Replays commands; see `Device.make_graph`."""

    @property
    def is_one_launch(self) -> bool: ...

    def __call__(self, later: int, /) -> None:
        """Replay the commands; launches get numbers that are larger by ``later``."""


class CommandList:
    """Replays commands one by one, for devices without graphs; ``kept`` is what they use."""

    is_one_launch = False

    def __init__(self, commands: Sequence[Command], kept: Any = None) -> None:
        self._commands = tuple(commands)
        self._kept = kept

    def __call__(self, later: int) -> None:
        for command in self._commands:
            command(later)


class Capture:
    """The `commands` of one thread since `begin`, and the objects that they use.

    These are `kept`, the `arrays` that were passed to kernels, and the `owners` of launches, the
    last two by identity. `device` is the one that all of them use. `failure` is the error that
    ended the capture early. One that `keeps_arrays` not is for replays that take place only while
    others keep the arrays alive; users do not see it.
    """

    def __init__(self, *, keeps_arrays: bool = True) -> None:
        self.keeps_arrays = keeps_arrays
        self.commands: list[Command] = []
        self.kept: list[Any] = []
        self.arrays: dict[int, Any] = {}
        self.owners: dict[int, Any] = {}
        self.device: Any = None
        self.failure: OctantsError | None = None
        self._thread = threading.get_ident()
        self._copies: set[int] = set()
        self._pauses = 0

    def begin(self) -> None:
        """Start capturing the calling thread."""
        captures.append(self)

    def end(self) -> None:
        """Stop capturing."""
        if self in captures:
            captures.remove(self)

    def is_active(self) -> bool:
        """Whether the calling thread is being captured now."""
        return self._pauses == 0 and threading.get_ident() == self._thread

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Pause the capture for a ``with`` block."""
        self._pauses += 1
        try:
            yield
        finally:
            self._pauses -= 1

    def refuse(self, what: str, advice: str) -> NoReturn:
        """End the capture with an error about ``what`` cannot be captured, with advice."""
        self.end()
        self.failure = NotInAGraph(what, advice).at()
        raise self.failure

    def use(self, device: Any) -> None:
        """Note the device of a command; a second one is an error."""
        if self.device is None:
            self.device = device
        elif device is not self.device:
            self.refuse("work on two devices cannot be in one graph", "capture one for each device")

    # -- adding commands ------------------------------------------------------------------------

    def launched(
        self,
        run: Callable[[int], None],
        kernel: Any,
        owner: Any,
        memory: tuple[int, int, int],
        block: Any,
        arrays: Sequence[Any],
    ) -> bool:
        """Add a launch.

        Args:
            run: Launches the kernel with the parameter block at an address.
            kernel: The device's loaded kernel.
            owner: The specialisation, which is kept alive.
            memory: The address of the block, the bytes of its slots, the bytes of its storage.
            block: The block.
            arrays: The array arguments.

        Returns:
            True: the block belongs to the capture from now on.
        """
        if hasattr(owner, "device"):
            self.use(owner.device)
        number = ctypes.c_uint64.from_address(memory[0] + NUMBER).value
        self.commands.append(Launch(run, kernel, *memory, number))
        self.kept.append(block)
        if not self.keeps_arrays:
            return True
        self.owners[id(owner)] = owner
        if hasattr(owner, "holding"):
            self.kept.append(owner.holding())
        for array in arrays:
            self.arrays[id(array)] = array
        return True

    def add_call(
        self, device: Any, method: str, call: Callable[..., None], arguments: tuple[Any, ...]
    ) -> None:
        """Call a device method and add it; arrays of bytes are copied."""
        self.use(device)
        fixed = tuple(a.copy() if isinstance(a, np.ndarray) else a for a in arguments)
        with self.paused():
            call(*arguments)
        self.commands.append(DeviceCall(method, call, fixed))

    def keep(self, owner: Any) -> None:
        """Keep an array or a copy alive that commands use."""
        if self.keeps_arrays:
            self.kept.append(owner)

    def allocated(self, clear: Callable[..., None], allocation: Any) -> None:
        """Keep an allocation alive, and zero it at each replay."""
        self.kept.append(allocation)
        self.commands.append(DeviceCall("clear", clear, (allocation.address, allocation.nbytes)))

    def wrote(self, part: _Part, values: Any) -> None:
        """Add a write of the host to its memory."""
        source = values if self._is_copy(values) else part.copy()
        self.commands.append(HostCopy(part, source))

    def _is_copy(self, values: Any) -> bool:
        """Whether the values belong to a copy that is part of the capture."""
        while isinstance(values, np.ndarray):
            if id(values) in self._copies:
                return True
            values = values.base
        return False

    def saved(self, part: _Part, copy: _Part) -> None:
        """Add a copy of a part of host memory."""
        self._copies.add(id(copy))
        self.kept.append(copy)
        self.commands.append(HostCopy(copy, part, self.keeps_arrays))


@contextmanager
def uncaptured() -> Iterator[None]:
    """Exclude the work of a ``with`` block from the active capture."""
    capture = thread_capture()
    if capture is None:
        yield
        return
    with capture.paused():
        yield


def thread_capture() -> Capture | None:
    """The active capture of the calling thread; None without one."""
    if not captures:
        return None
    for capture in tuple(captures):
        if capture.is_active():
            return capture
    return None


def launched(run: Callable[[int], None], *launch: Any) -> bool:
    """Add a launch to the active capture, if there is one; see `Capture.launched`."""
    capture = thread_capture()
    return capture is not None and capture.launched(run, *launch)


def refuse(what: str, advice: str) -> None:
    """End the active capture of this thread with an error; do nothing without one."""
    capture = thread_capture()
    if capture is not None:
        capture.refuse(what, advice)


def refuse_read(_: Any = None) -> None:
    """End the active capture because the host reads memory, which a replay cannot wait for."""
    refuse(
        "the host cannot read what the device computes",
        "read it before or after the capture; conditions between launches must be computed by"
        " kernels",
    )


def noted(method: _Method) -> _Method:
    """Decorate a device method whose calls are added to the active capture."""

    @functools.wraps(method)
    def call(self: Any, *arguments: Any) -> None:
        capture = thread_capture() if captures else None
        if capture is None:
            method(self, *arguments)
        else:
            bound = functools.partial(method, self)
            capture.add_call(self, method.__name__, bound, arguments)

    return call  # type: ignore[return-value]
