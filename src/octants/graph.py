"""Graphs: what a part of a program launches, captured once and replayed as one. Example::

    with qd.graph.capture() as step:
        with qd.ad.Tape(loss=loss):
            simulate()
    for _ in range(99):
        step()

The body of a capture runs as usual, and the graph records the work that it gives to the device. A
replay repeats this work: launches of kernels and their gradients, fills, copies, and writes of the
host with the values that they had. On CUDA it is one launch, of a graph of the driver, on Vulkan
one submission if nothing in it concerns the host; elsewhere it is the same work in the same order.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

from octants import driver, options
from octants.deferred_import import names_of as _names_of
from octants.diagnostics.graph_errors import (
    GraphIsOver,
    GraphUnderTape,
    NestedCapture,
    NotCaptured,
)
from octants.lang.directives import do_while as do_while
from octants.lang.directives import parallel as parallel
from octants.lang.directives import parallel_context as parallel_context
from octants.launch.kernel_device import device_of_array
from octants.locks_at_fork import released_in_children
from octants.runtime.arguments.parameters import has_interface, is_torch
from octants.runtime.capture import Capture, CommandReplay, captures, thread_capture

if TYPE_CHECKING:
    from octants.graph_builder import Arg as Arg
    from octants.graph_builder import ArgKind as ArgKind
    from octants.graph_builder import GraphBuilder as GraphBuilder
    from octants.launch.specialisation import Specialisation
else:
    _MODULES_OF_NAMES = dict.fromkeys(("Arg", "ArgKind", "GraphBuilder"), "graph_builder")
    __getattr__ = _names_of(__name__, sources=_MODULES_OF_NAMES)

__all__ = ["Graph", "capture", "do_while", "parallel", "parallel_context"]
__path__: list[str] = []  # so Python queries `ModuleFinder` for missing names


class Graph:
    """Captured launches; `replay`, or a call, runs them again. See `capture`.

    A graph keeps the arrays alive that it works on, with all memory that its body has made.
    """

    def __init__(self) -> None:
        self._capture: Capture | None = None
        self._replay: CommandReplay | None = None
        self._foreign: list[Foreign] = []
        self._problem = "it was not captured yet"
        self._generation = -1
        self._first = self._count = 0
        self._numbered: list[tuple[Specialisation, int]] = []
        self._lock = released_in_children(threading.Lock())
        self.replays = 0

    @property
    def size(self) -> int:
        """How many commands a replay gives to the device."""
        return 0 if self._capture is None else len(self._capture.commands)

    @property
    def is_one_launch(self) -> bool:
        """Whether the device does the next replay as one launch, rather than command by command."""
        return self._replay is not None and self._replay.is_one_launch

    def replay(self) -> None:
        """Do again what was captured, on the arrays as they are now; queued like a launch.

        Random numbers go on as if the body had run again. What kernels print and how they fail
        comes as it does after launches.

        Raises:
            OctantsRuntimeError: the capture has failed, the arrays are gone, or a tape is active.
        """
        options.current()
        if self._replay is None:
            raise NotCaptured(self._problem).at()
        if driver.state.generation != self._generation:
            self._end("`init`, `reset` or the end of a field came after its capture")
        if driver.state.recorder is not None:
            raise GraphUnderTape("replayed").at()
        if thread_capture() is not None:
            raise NestedCapture().at()
        with self._lock:
            for array in self._foreign:
                array.prepare()
            later = driver.take_launch_numbers(self._count) - self._first
            self._replay(later)
            for specialisation, number in self._numbered:
                specialisation.number = number + later
            self.replays += 1

    __call__ = replay

    def _end(self, problem: str) -> None:
        """Release everything, and raise an error; later replays raise it again."""
        self._replay = self._capture = None
        self._problem = problem
        self._foreign.clear()
        raise GraphIsOver(problem).at()

    def __repr__(self) -> str:
        return f"<graph of {self.size} commands>" if self._replay else f"<graph: {self._problem}>"

    # -- for captures ---------------------------------------------------------------------------

    def _begin(self) -> None:
        self._problem = "its capture is still under way"
        self._generation = driver.state.generation
        self._first = driver.next_launch_number()

    def _finish(self, capture: Capture) -> None:
        """Be what was captured."""
        if driver.state.generation != self._generation:
            raise GraphIsOver("`init`, `reset` or the end of a field came during it").at()
        self._count = driver.next_launch_number() - self._first
        self._numbered = [
            (owner, owner.number)
            for owner in capture.owners.values()
            if 0 <= owner.number - self._first < self._count
        ]
        device = capture.device or driver.device()
        self._replay = device.make_graph(capture.commands, capture.kept)
        self._capture = capture
        self._foreign = [Foreign(x) for x in capture.arrays.values() if is_torch(type(x))]
        self._foreign += [Foreign(x) for x in capture.arrays.values() if has_interface(type(x))]

    def _fail(self, error: BaseException) -> None:
        self._problem = f"its capture has failed: {error}"


class capture:  # noqa: N801  # it reads as a word of the language
    """``with capture() as graph:`` runs its body, and captures the device work that it starts.

    A replay repeats the work, not the Python: numbers that the body passed to kernels, and what the
    host wrote, keep their values; branches are those of the capture. Put a tape into the body as a
    whole.

    A graph cannot contain what the host must wait for: reads of arrays, kernels that return values,
    logs of what atomics return; nor host arrays on a device with its own memory. Such an operation
    is an error and ends the capture, and so does an error of the body. The work until then is done.

    Example::

        with qd.graph.capture() as step:
            with qd.ad.Tape(loss=loss):
                simulate()
        for _ in range(99):
            step()

    Raises:
        OctantsRuntimeError: in the body, for what cannot be captured; at the beginning, within
            another capture, a tape or forward mode.
    """

    def __init__(self) -> None:
        self._graph = Graph()
        self._capture = Capture()

    def __enter__(self) -> Graph:
        options.current()
        if any(each.keeps_arrays for each in tuple(captures)):
            raise NestedCapture().at()
        if driver.state.recorder is not None:
            raise GraphUnderTape("captured").at()
        self._graph._begin()
        self._capture.begin()
        return self._graph

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        found = self._capture
        found.end()
        failure = error or found.failure
        if failure is not None:
            self._graph._fail(failure)
        else:
            self._finish()

    def _finish(self) -> None:
        try:
            if driver.state.recorder is not None:
                raise GraphUnderTape("captured").at()
            self._graph._finish(self._capture)
        except BaseException as error:
            self._graph._fail(error)
            raise


class Foreign:
    """An array of another library in a graph, which knows the addresses of it and its gradient."""

    def __init__(self, array: Any) -> None:
        self._array = array
        self._kept = self._parts()
        self._addresses = self._find(self._kept)

    def prepare(self) -> None:
        """Order what comes next after its owner's work; an error if it is elsewhere by now."""
        if self._find(self._parts()) != self._addresses:
            what = "a tensor, or its gradient, is in other memory"
            raise GraphIsOver(f"{what}; `zero_grad(set_to_none=False)` keeps gradients").at()

    def _parts(self) -> list[Any]:
        gradient = getattr(self._array, "grad", None)
        return [self._array] if gradient is None else [self._array, gradient]

    def _find(self, parts: list[Any]) -> list[int | None]:
        on_host = is_torch(type(self._array)) and self._array.device.type == "cpu"
        number = device_of_array(self._array)
        device = driver.device() if number is None else driver.device_at(number)
        return [part.data_ptr() if on_host else device.address_of(part) for part in parts]
