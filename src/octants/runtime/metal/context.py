"""The GPU of a Mac: its features, and its queue of command buffers."""

from __future__ import annotations

import threading
from collections import deque

from octants.cached_property import cached_property
from octants.diagnostics.metal_errors import ForkedMetal, MetalDeviceLost, MissingMetal
from octants.locks_at_fork import released_in_children
from octants.runtime.gpu.batched_device import SubmissionContext
from octants.runtime.metal.library import Library, library
from octants.runtime.reports.suspect_kernels import suspects
from octants.target import Blocks, Target

_APPLE_7, _METAL_3 = 1007, 5001  # families of GPUs: M1 and newer; atomic sums of f32
_FAILED = 5  # MTLCommandBufferStatusError
_SLICE = 100  # milliseconds of a wait, between which Ctrl-C is noticed
_FEATURES = "int64,int16,int8,storage16,storage8,lanes"


class Hardware:
    """The GPU. `features` are those of `codegen.structured.features`."""

    is_cpu = False
    validation = None

    def __init__(self, functions: Library) -> None:
        self.library = functions
        self.handle = functions.system.default_device()
        if not self.handle:
            raise MissingMetal("there is no GPU").at()
        with functions.pool():
            self.name = functions.text(functions.name(self.handle))
        if not functions.supportsFamily_(self.handle, _APPLE_7):
            raise MissingMetal(f"`{self.name}` is no GPU of Apple silicon").at()
        has_sums = functions.supportsFamily_(self.handle, _METAL_3)
        self.features = frozenset((_FEATURES + ",add32" * has_sums).split(","))
        self.memory_bytes = int(functions.recommendedMaxWorkingSetSize(self.handle))
        self.largest = int(functions.maxBufferLength(self.handle))
        self.blocks = Blocks(shared_bytes=int(functions.maxThreadgroupMemoryLength(self.handle)))

    @cached_property
    def target(self) -> Target:
        """The target of code generation."""
        features = ",".join(sorted(self.features))
        return Target("metal", "metal3.2", self.name, features, has_f64=False, blocks=self.blocks)


_known: dict[Library, Hardware] = {}


def hardware() -> Hardware:
    """The GPU of this machine; `OctantsRuntimeError` where there is none that will do."""
    functions = library()
    if functions not in _known:
        _known[functions] = Hardware(functions)
    return _known[functions]


class Context(SubmissionContext):
    """A queue whose command buffers end in their order."""

    forked = ForkedMetal

    def __init__(self, found: Hardware) -> None:
        super().__init__()
        self.hardware, self.library = found, found.library
        self.handle = self.library.newCommandQueue(found.handle)
        self._event = self.library.newSharedEvent(found.handle)
        self._flying: deque[tuple[int, int]] = deque()
        # Threads that wait release command buffers.
        self._lock = released_in_children(threading.RLock())

    def submit(self, commands: int) -> int:
        """Queue a command buffer, which the context owns from now on; gives its number."""
        self.check()
        self.submitted += 1
        with self.library.pool():
            self.library.encodeSignalEvent_value_(commands, self._event, self.submitted)
            self.library.commit(commands)
        self._flying.append((self.submitted, commands))
        return self.submitted

    def wait(self, number: int) -> None:
        """Wait until a command buffer has ended; Ctrl-C ends the wait."""
        if number > self.done:
            self.check()
            wait = self.library.waitUntilSignaledValue_timeoutMS_
            while not wait(self._event, number, _SLICE):
                self._check_flying()
            self._take(number)
        if number == self.submitted:
            self.launched.clear()

    def _take(self, number: int) -> None:
        """Release the command buffers up to a number, which have ended."""
        with self._lock, self.library.pool():
            while self._flying and self._flying[0][0] <= number:
                commands = self._flying[0][1]
                self.library.waitUntilCompleted(commands)  # sets the status, a moment later
                self._check_flying()
                self.library.release(self._flying.popleft()[1])
            self.done = max(self.done, number)

    def _check_flying(self) -> None:
        """Raise `OctantsRuntimeError` if the first command buffer under way has failed."""
        with self._lock, self.library.pool():
            commands = self._flying[0][1] if self._flying else 0
            if commands and self.library.status(commands) == _FAILED:
                problem = self.library.describe(self.library.error(commands))
                self.lost = MetalDeviceLost(self.hardware.name, problem, suspects(self.launched))
                while self._flying:  # Metal keeps those that have not ended
                    self.library.release(self._flying.popleft()[1])
            self.check()

    def is_idle(self) -> bool:
        """Whether everything that was submitted has ended."""
        if self.done < self.submitted:
            ended = int(self.library.signaledValue(self._event))
            if ended > self.done:
                self._take(min(ended, self.submitted))
        return self.done == self.submitted
