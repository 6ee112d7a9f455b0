"""Kernels that the host runs segment by segment; `kernel_segments` cuts them.

The host reads the counter of a loop after each iteration, and the flag of a checkpoint after its
part. A kernel with loops runs as a whole where it cannot be cut, within a capture, and in
`Kernel.grad`: then the bodies of its loops run in order on one work item. A kernel with checkpoints
never does.
"""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Mapping, Sequence
from types import CodeType
from typing import TYPE_CHECKING, Any

from octants import driver, options
from octants.cached_property import cached_property
from octants.data.host_access_events import Clock
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsError
from octants.diagnostics.function_header_spans import Definition
from octants.diagnostics.graph_errors import (
    CheckpointsReturn,
    ExtremumInSegments,
    NotResumable,
    RandomInSegments,
    UncutVariable,
    WholeCheckpoints,
    WrongFlag,
)
from octants.diagnostics.span import Span
from octants.diagnostics.tracebacks import shortens_tracebacks
from octants.frontend.syntax import source
from octants.launch.checks.race_checks import check_before_gradient
from octants.launch.dlpack_arguments import import_arguments
from octants.launch.kernel import Kernel
from octants.launch.segments.checkpoint_status import GraphStatus
from octants.launch.segments.kernel_segments import (
    Choice,
    CrossingVariable,
    Pause,
    Repeat,
    Segment,
    Step,
    cut,
    free_names,
)
from octants.launch.specialisation import Specialisation
from octants.launch.streams import launching_in
from octants.lazy_dataclass import dataclass
from octants.runtime import capture

if TYPE_CHECKING:
    from octants.ir import ops
else:
    ops = Deferred("octants.ir.ops")


class SegmentedKernel(Kernel):
    """A kernel that mentions `graph.do_while`."""

    def _launch(self, *arguments: Any) -> Any:
        run = _Run(self, arguments)
        try:
            steps = [] if capture.thread_capture() is not None else run.chosen(self._steps)
        except Exception:  # it comes again when the whole is built
            steps = []
        if not steps:
            return super()._launch(*arguments)
        run.run(steps)
        self._note_launch(arguments)
        return None

    def _note_launch(self, arguments: tuple[Any, ...]) -> None:
        """Remember the last launch, which is none of the whole kernel, for checks of gradients."""
        arguments = import_arguments(self.leaves, arguments)
        (_, left), key = Clock.now(), self._key(*arguments)
        number, given = driver.last_number(left), list(map(_weak, arguments))
        self._launched[key] = launched = _Launched(driver.state.generation, number, given)
        if key in self._specialisations:
            launched.note(self._specialisations[key])

    @cached_property
    def _launched(self) -> dict[tuple[Any, ...], _Launched]:
        """The last launches, by the key of the arguments."""
        return {}

    def check_gradient(
        self, specialisation: Specialisation, arguments: tuple[Any, ...], *, trusts: bool
    ) -> None:
        """Refuse minima and maxima of floats, and races.

        The whole runs its loops in order, so that only segments show races. A reverse kernel finds
        the winner of a maximum by its bits. With `fast_math` those of the whole may differ from
        those of the segments: what is a product and a sum of one segment may be in different loops
        of the whole.
        """
        if not self._steps:
            return
        launched = self._launched.get(specialisation.key)
        if launched is not None and launched.is_after(specialisation):
            launched.note(specialisation)
        for kernel in () if trusts else self._segments.values():
            segment = kernel.specialisation(arguments)
            given = segment.complete(arguments)
            check_before_gradient(segment, segment.number, given, always=False, effects=False)
        extrema = ("min", "max") if options.current().fast_math else ()
        for op in specialisation.module.walk():
            if isinstance(op, ops.Atomic) and op.fn in extrema and op.array.dtype.is_float:
                raise ExtremumInSegments(self.name, op.fn).at(op.location)

    def check_draws(self, specialisation: Specialisation) -> None:
        """Refuse random numbers: the launches of segments drew others than one of the whole."""
        if self._steps:
            draw = next(op for op in specialisation.module.walk() if isinstance(op, ops.Random))
            raise RandomInSegments(self.name).at(draw.location)

    @property
    def runs_in_segments(self) -> bool:  # type: ignore[override]
        return bool(self._steps)

    @cached_property
    def _steps(self) -> tuple[Step, ...]:
        """The steps of the kernel; none if it stays whole."""
        try:
            return cut(self.function, checkpoints=False)
        except (CrossingVariable, OctantsError):  # the latter comes again when it is built
            return ()

    def names(self, arguments: Sequence[Any]) -> dict[str, Any]:
        """The local names of the kernel on the host."""
        given = dict(zip(self.signature.names, arguments, strict=True))
        return {**free_names(self.function), **given}

    def segment(self, step: Segment) -> Kernel:
        """The kernel of a segment."""
        if step not in self._segments:
            wanted = self.wants_graph
            self._segments[step] = Kernel(
                step.function, lambda: self._local_names, wants_graph=wanted
            )
        return self._segments[step]

    @cached_property
    def _segments(self) -> dict[Segment, Kernel]:
        return {}


@dataclass(frozen=True, slots=True)
class _Launched:
    """A launch that was run in segments: the number of the last one, and the arguments."""

    generation: int
    number: int
    arguments: list[Any]  # weak references to arrays

    def is_after(self, whole: Specialisation) -> bool:
        """Whether it was after the last launch of the whole kernel, and since `init`."""
        return self.generation == driver.state.generation and self.number > whole.number

    def note(self, whole: Specialisation) -> None:
        """Tell the whole kernel, whose gradient checks what has changed since."""
        whole.number, whole.given_in_segments = self.number, self._given

    def _given(self) -> tuple[Any, ...] | None:
        """The arguments; None if an array is gone."""
        given = tuple(a() if isinstance(a, weakref.ref) else a for a in self.arguments)
        is_gone = any(a is not b and b is None for a, b in zip(self.arguments, given, strict=True))
        return None if is_gone else given


def _weak(argument: Any) -> Any:
    """A weak reference to an array, or a number."""
    try:
        return weakref.ref(argument)
    except TypeError:
        return argument


class CheckpointedKernel(SegmentedKernel):
    """A kernel with ``checkpoints=True``: it returns a `GraphStatus`, and can be resumed."""

    def _launch(self, *arguments: Any) -> GraphStatus:
        return self._run(arguments, None)

    @shortens_tracebacks
    def resume(
        self, *arguments: Any, from_checkpoint: int, qd_stream: Any = None, **named: Any
    ) -> GraphStatus:
        """Continue a launch that has paused, perhaps in a stream; see `Kernel.resume`."""
        with launching_in(qd_stream):
            return self._run(self.bind(arguments, named), from_checkpoint)

    def _run(self, arguments: Sequence[Any], first: int | None) -> GraphStatus:
        capture.refuse(
            f"kernel `{self.name}` cannot pause at its checkpoints",
            "launch it before or after; the host decides there what comes next",
        )
        run = _Run(self, arguments, first)
        steps = run.chosen(self._steps)
        labels = [label for step in steps for label in _labels(step)]
        if first is not None and first not in labels:
            problem = f"it has no checkpoint {first!r} among {labels}"
            raise NotResumable(self.name, problem).at(Definition(self.function).span)
        if not self._steps:  # it has neither checkpoints nor loops
            super(SegmentedKernel, self)._launch(*arguments)
            return GraphStatus(False, None)
        return GraphStatus(not run.run(steps), run.paused_at)

    @cached_property
    def _steps(self) -> tuple[Step, ...]:
        if source.returns(source.find_source(self.function).tree.body):
            raise CheckpointsReturn(self.name).at(Definition(self.function).span)
        try:
            return cut(self.function, checkpoints=True)
        except CrossingVariable as crossing:
            raise UncutVariable(crossing.name).at(crossing.span) from None

    def specialise(self, arguments: tuple[Any, ...]) -> Specialisation:
        """Compile the kernel as a whole, if nothing cuts it."""
        if self._steps:
            raise WholeCheckpoints(self.name).at(Definition(self.function).span)
        return super().specialise(arguments)


class _Run:
    """One launch of a kernel's steps, or one that resumes at a label."""

    def __init__(
        self, kernel: SegmentedKernel, arguments: Sequence[Any], first: int | None = None
    ) -> None:
        self._kernel, self._arguments = kernel, arguments
        self._globals = kernel.function.__globals__
        self._names: Mapping[str, Any] = kernel.names(arguments)
        self._first = first
        self.paused_at: int | None = None

    def run(self, steps: Sequence[Step]) -> bool:
        """Run steps in order; return whether they are complete."""
        return all(map(self._step, steps))

    def _step(self, step: Step) -> bool:
        if self._first is not None and self._first not in _labels(step):
            return True
        if isinstance(step, Segment):
            self._kernel.segment(step)(*self._arguments)
            return True
        if isinstance(step, Repeat):
            return self._repeat(step)
        assert isinstance(step, Pause)
        return self._pause(step)

    def _repeat(self, step: Repeat) -> bool:
        counter = self._value(step.counter)
        while self.run(step.steps):
            if not _number(counter):
                return True
        return False

    def _pause(self, step: Pause) -> bool:
        flag, self._first = self._value(step.flag), None
        self.run(step.steps)
        if not _number(flag):
            return True
        self.paused_at = step.label
        return False

    def chosen(self, steps: Sequence[Step]) -> list[Step]:
        """The steps that conditions in `static` choose, in loops as well, with valid counters.

        Raises:
            OctantsArgumentError: A counter or a flag is no array of shape ().
        """
        found: list[Step] = []
        for step in steps:
            if isinstance(step, Choice):
                found += self.chosen(step.then if self._value(step.condition) else step.orelse)
            elif isinstance(step, Repeat):
                self._check(step.counter, "counter of this loop", step.span)
                found.append(dataclasses.replace(step, steps=tuple(self.chosen(step.steps))))
            else:
                if isinstance(step, Pause):
                    self._check(step.flag, "`yield_on` of this checkpoint", step.span)
                found.append(step)
        return found

    def _check(self, code: CodeType, what: str, span: Span) -> None:
        flag = self._value(code)
        if tuple(getattr(flag, "shape", (0,))) != ():
            raise WrongFlag(what, type(flag).__name__).at(span)

    def _value(self, code: CodeType) -> Any:
        return eval(code, self._globals, self._names)


def _labels(step: Step) -> list[int]:
    """The labels of the checkpoints in a step, in order."""
    if isinstance(step, Pause):
        return [step.label]
    inner = step.steps if isinstance(step, Repeat) else ()
    return [label for each in inner for label in _labels(each)]


def _number(counter: Any) -> bool:
    """Whether the element of an array of shape () is not 0; the host waits for it."""
    return bool(counter.item() if hasattr(counter, "item") else counter[None])
