"""Calls a step of a function of arrays by the addresses of its arrays.

An `ArrayFunction` makes an ndarray of each array, which is most of the time of a small call. A
program that calls a step again and again, on arrays of the same shapes, need not: a `RepeatedStep`
passes the launch function what that reads of ndarrays, extents and addresses. It does so for the
value of a single kernel, and for its gradient if that takes no tape (`gradients_without_tape`).
Gradients that take a tape, as those of several launches, are evaluated on ndarrays that all calls
use (`recycled_array_library`), since tapes that record the same launches again are fast.
"""

from __future__ import annotations

import struct
import weakref
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from octants import driver
from octants.ad.array_libraries.array_library_protocol import Shaped
from octants.ad.array_libraries.recycled_array_library import RecycledArrays
from octants.ad.functions.array_function import ONE_AT_A_TIME, ArrayFunction
from octants.ad.functions.array_function_signature import RETURNED
from octants.ad.functions.field_checks import check_operands, derivative_of
from octants.ad.functions.gradients_without_tape import is_observed, kernel_of, reverse_of
from octants.ad.functions.higher_derivatives import NUMBER, TIME, Role, Step
from octants.ad.functions.repeated_runs import next_number
from octants.data.ndarray import make_ndarray
from octants.diagnostics.exceptions import OctantsError
from octants.ir.core import Companion
from octants.launch.gradients.operand_changes import reads_fields
from octants.launch.kernel import Kernel
from octants.runtime.arguments.overlap_test import are_disjoint
from octants.runtime.device import Device
from octants.types.parameter_annotations import NdarrayAnnotation
from octants.types.scalars import i32
from octants.types.specialisation_signature import ArgumentSource, ScalarType

PRIMAL, ADJOINT = Companion.PRIMAL, Companion.ADJOINT
_ALIGNMENT = 64
_LARGEST_EXTENT = 2**31 - 1
_MOST_COPIED_ON_HOST, _MOST_COPIED = 1 << 20, 1 << 24
"""The most bytes of the inputs and outputs that are copied to arrays of Octants and back. On the
host, copies of more take as long as a tape that follows no other; on a GPU, they take memory.
"""
_MOST_RECYCLED = 16
"""The most steps that keep arrays; a new one frees those of the oldest."""

_recycling: weakref.WeakKeyDictionary[RepeatedStep, None] = weakref.WeakKeyDictionary()
"""The steps that keep arrays, from the oldest on."""


class RepeatedStep:
    """A step for arrays of certain shapes, which is called by their addresses.

    The arrays are row-major, in the memory of the device of `init`.

    Args:
        step: the value or a derivative of a function.
        inputs: the shapes and dtypes of its inputs.
        outputs: those of its outputs. JAX may want narrower types than those of the function.
    """

    def __init__(self, step: Step, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> None:
        self._step, self._inputs, self._outputs = step, inputs, outputs
        self._call: _Call | None = None
        self._recycled: _RecycledCall | None = None
        self._refused_in = -1  # the generation of `driver.state` in which `_Call` is impossible

    def run(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        constants: Mapping[str, Any] | None = None,
    ) -> bool:
        """Run the step.

        Args:
            inputs: the addresses of the inputs.
            outputs: those of the outputs, which share no memory with the inputs or each other.
            constants: numbers of the same types as those of the step, which they replace.

        Returns:
            False if nothing was done, since the function must be evaluated.
        """
        if is_observed():
            return False
        alone = kernel_of(self._step.function.function)
        if alone is None or self._refused_in == driver.state.generation:
            return self._run_recycled(inputs, outputs, constants)
        call = self._call
        try:
            if call is None or not call.is_current(alone[0]):
                if self._step.kind not in ("value", "pullback") or NUMBER in self._step.inputs:
                    raise _NotByAddress
                call = self._call = _Call(self._step, *alone, self._inputs, self._outputs)
        except (_NotByAddress, OctantsError):  # the latter an evaluation explains
            self._refused_in = driver.state.generation
            return self._run_recycled(inputs, outputs, constants)
        return call.run(inputs, outputs, self._step.constants if constants is None else constants)

    def _run_recycled(
        self,
        inputs: Sequence[int],
        outputs: Sequence[int],
        constants: Mapping[str, Any] | None,
    ) -> bool:
        """Run a gradient on arrays that all calls use; False if nothing was done."""
        if self._step.kind != "pullback" or NUMBER in self._step.inputs:
            return False
        with ONE_AT_A_TIME:
            recycled = self._recycled
            if recycled is None or recycled.generation != driver.state.generation:
                self._recycled = recycled = _RecycledCall(self._step, self._inputs, self._outputs)
                self._count_as_recycling()
            return recycled.run(inputs, outputs, constants)

    def _count_as_recycling(self) -> None:
        _recycling.pop(self, None)
        _recycling[self] = None
        if len(_recycling) > _MOST_RECYCLED:
            oldest = next(iter(_recycling))
            del _recycling[oldest]
            oldest._recycled = None


class _RecycledCall:
    """A gradient that is evaluated on ndarrays that all calls use.

    Args:
        step: the gradient.
        inputs: the shapes and dtypes of its inputs.
        outputs: those of its outputs.
    """

    def __init__(self, step: Step, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> None:
        self.generation = driver.state.generation
        self._device = device = driver.device()
        function = step.function
        make = None if isinstance(function.kernel, Kernel) else function.library.recycled
        self._library: RecycledArrays = (make or RecycledArrays)(device)  # type: ignore[assignment]
        self._library.refuses_gradient_ends = function.library.refuses_gradient_ends
        self._is_read_only = function.library.recycled is None  # tensors may be written
        again = ArrayFunction(function.function, function.out, function.inout, self._library)
        self._step = Step(again, step.constants, step.inputs, step.outputs)
        self._inputs, self._outputs = inputs, outputs
        most = _MOST_COPIED_ON_HOST if device.shares_memory else _MOST_COPIED
        arrays = *inputs, *outputs, *step.result_shapes(inputs)
        self._is_possible = sum(map(_nbytes, arrays)) <= most
        self._is_running = False

    def run(
        self, inputs: Sequence[int], outputs: Sequence[int], constants: Mapping[str, Any] | None
    ) -> bool:
        """See `RepeatedStep.run`."""
        if self._is_running or not self._is_possible:
            return False
        self._is_running = True
        self._library.begin()
        try:
            self._evaluate(inputs, outputs, constants)
        finally:
            self._is_running, self._is_possible = False, not self._library.end()
        return True

    def _evaluate(
        self, inputs: Sequence[int], outputs: Sequence[int], constants: Mapping[str, Any] | None
    ) -> None:
        given = [
            self._library.at(address, what, is_read_only=self._is_read_only)
            for address, what in zip(inputs, self._inputs, strict=True)
        ]
        found = self._step.with_constants(constants).call(given)
        for address, what, array in zip(outputs, self._outputs, found, strict=True):
            self._library.store(address, array, what)


class _NotByAddress(Exception):
    """A step that must be evaluated."""


class _Array(NamedTuple):
    """A row-major array, with the attributes of ndarrays that launch functions read."""

    shape: tuple[int, ...]
    head: bytes
    addresses: Mapping[Companion, int]
    explicit_identity: int | None = None
    """Others have the memory, so that launches compare addresses."""

    def address(self, companion: Companion) -> int:
        return self.addresses[companion]


class _Memory:
    """The memory of a call: inputs, outputs, and scratch memory, by positions in one list."""

    def __init__(self, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> None:
        self.known = [*inputs, *outputs]
        self.offsets: list[int] = []
        self.size = 0
        self.cleared: list[tuple[int, int]] = []
        self.copied: list[tuple[int, int, int]] = []

    def scratch(self, what: Shaped) -> int:
        """The position of scratch memory for an array."""
        self.offsets.append(self.size)
        self.size += -(-_nbytes(what) // _ALIGNMENT) * _ALIGNMENT
        return len(self.known) + len(self.offsets) - 1

    def begin(self, position: int, what: Shaped, source: int | None) -> int:
        """Let memory begin as a copy of an input, or as zeros; the position."""
        if not _nbytes(what):
            return position
        if source is None:
            self.cleared.append((position, _nbytes(what)))
        else:
            self.copied.append((position, source, _nbytes(what)))
        return position

    def prepare(
        self, device: Device, inputs: Sequence[int], outputs: Sequence[int]
    ) -> tuple[list[int], Any]:
        """The addresses by positions, and what keeps scratch memory alive."""
        addresses, owner = [*inputs, *outputs], None
        if self.offsets:
            owner = device.allocate_uninitialised(max(1, self.size))
            addresses += [owner.address + offset for offset in self.offsets]
        for position, nbytes in self.cleared:
            device.clear(addresses[position], nbytes)
        for position, source, nbytes in self.copied:
            device.copy(addresses[position], addresses[source], nbytes)
        return addresses, owner


_Argument = Callable[[Sequence[int], Mapping[str, Any]], Any]
"""A function of the addresses by positions, and of constants, that gives a kernel's argument."""


_Run = Callable[[tuple[Any, ...], Sequence[int]], None]
"""Launches a kernel with its arguments; the addresses are those of numbers that it returns."""


class _Specialised:
    """The kernel of a step, compiled for the types of its arrays.

    Args:
        step: the value or a derivative of a kernel.
        kernel: the kernel.
        owner: the object if it is a method, alone in a tuple.
        inputs: the shapes and dtypes of its inputs.
        outputs: those of its outputs.

    Raises:
        _NotByAddress: the step must be evaluated.
        OctantsError: an argument is wrong, or the kernel has no derivative.
    """

    def __init__(
        self,
        step: Step,
        kernel: Kernel[..., Any],
        owner: tuple[Any, ...],
        inputs: Sequence[Shaped],
        outputs: Sequence[Shaped],
    ) -> None:
        self._step, self._function, self._owner = step, step.function, owner
        self._is_value = step.kind in ("value", "pushforward")
        self._given = {role: k for k, role in enumerate(step.inputs)}
        self._found = {role: len(inputs) + k for k, role in enumerate(step.outputs)}
        self._known = [*inputs, *outputs]
        self._results = dict(zip(self._function.results, step.result_shapes(inputs), strict=True))
        self._check_shapes()
        self._parameters = [None] * len(owner) + list(self._function.parameters)
        self._templates = (*owner, *map(self._template, self._function.parameters))
        self._has_constants = any(
            not isinstance(self._function.annotation(name), ScalarType) and self._what(name) is None
            for name in self._function.parameters
        )
        self.specialisation = kernel.specialisation(self._templates)

    # -- what the step is of --------------------------------------------------------------------

    def _what(self, name: str) -> Shaped | None:
        """The shape and dtype of an array or of a number in an array; None for a constant."""
        found = self._results.get(name)
        position = self._given.get(Role("x", name))
        if found is None and position is not None:
            found = self._known[position]
        return found

    def _is_array(self, name: str) -> bool:
        return not isinstance(self._function.annotation(name), ScalarType)

    def _has_adjoint(self, name: str) -> bool:
        """Whether an array has a gradient in the call."""
        if self._is_value:
            return False
        what = self._what(name)
        is_output = name in self._results and what is not None and what.dtype.kind == "f"
        return is_output or Role("gx", name) in self._found

    def _check_shapes(self) -> None:
        """Refuse arrays that JAX wants in other types, or made for others, and wrong extents."""
        names, known = self._function.results, self._known
        for role, position in {**self._given, **self._found}.items():
            if role == TIME:
                continue
            name = names[role.name] if isinstance(role.name, int) else role.name
            what = self._what(name)
            is_number = name == RETURNED or not self._is_array(name)
            if not is_number and known[position] != what:
                raise _NotByAddress
            if any(extent > _LARGEST_EXTENT for extent in known[position].shape):
                raise _NotByAddress

    def _template(self, name: str) -> Any:
        """An argument of the type of a parameter."""
        what, annotation = self._what(name), self._function.annotation(name)
        if what is None:
            if isinstance(annotation, NdarrayAnnotation):
                raise _NotByAddress
            return self._step.constants.get(name)
        if isinstance(annotation, ScalarType):
            return np.zeros(annotation.element_shape, annotation.dtype.numpy).tolist()
        rank = len(what.shape) - self._function.element_dim(name)
        if rank < 0:
            raise _NotByAddress
        return make_ndarray(
            what.dtype,
            (0,) * rank,
            element_shape=what.shape[rank:],
            needs_grad=self._has_adjoint(name),
        )


def may_read_fields(step: Step, inputs: Sequence[Shaped], outputs: Sequence[Shaped]) -> bool:
    """Whether a step reads fields; true also if that is not known before it runs.

    Args:
        step: the step.
        inputs: the shapes and dtypes of its inputs.
        outputs: those of its outputs.
    """
    alone = kernel_of(step.function.function)
    try:
        return alone is None or reads_fields(
            _Specialised(step, *alone, inputs, outputs).specialisation
        )
    except (_NotByAddress, OctantsError):
        return True


class _Call(_Specialised):
    """The value or the pullback of a kernel, with everything that no call changes.

    The arguments are those of `_Specialised`.
    """

    def __init__(self, *given: Any) -> None:
        super().__init__(*given)
        count = len(self._step.inputs)
        self._memory = _Memory(self._known[:count], self._known[count:])
        self._device = self.specialisation.device
        self._reverse = None
        if not self._is_value:
            wanted = [role.name for role in self._step.outputs]
            by_value = any(not self._is_array(name) for name in wanted)
            self._reverse = reverse_of(self.specialisation, by_value=by_value)
        self._check_kernel()
        self._distinct: list[tuple[int, int]] = []
        self._arguments = list(map(self._argument, self._function.parameters))
        time = self._given.get(TIME)
        self._time = None
        if time is not None and not self._is_value:
            self._time = self._number(time, ScalarType(i32))
        self._run = self._run_value() if self._is_value else self._run_reverse()

    def is_current(self, kernel: Kernel[..., Any]) -> bool:
        """Whether a call of the kernel runs the same specialisation now.

        Raises:
            OctantsError: it does not compile now.
        """
        if self._has_constants:  # they may be lists, whose contents may have changed
            return kernel.specialisation(self._templates) is self.specialisation
        return kernel.is_current(self.specialisation)

    def run(
        self, inputs: Sequence[int], outputs: Sequence[int], constants: Mapping[str, Any]
    ) -> bool:
        """See `RepeatedStep.run`."""
        several = self._distinct if len(self._distinct) > 1 else ()
        if not are_disjoint([(inputs[k], inputs[k] + nbytes) for k, nbytes in several]):
            return False
        addresses, _owner = self._memory.prepare(self._device, inputs, outputs)
        arguments = [each(addresses, constants) for each in self._arguments]
        if self._time is None:
            self._run((*self._owner, *arguments), addresses)
        else:
            with derivative_of(self._time(addresses, {})):
                self._run((*self._owner, *arguments), addresses)
        return True

    def _check_kernel(self) -> None:
        """Refuse kernels that write their inputs, which is an error, draw, or run as graphs."""
        if self.specialisation.wants_graph:
            raise _NotByAddress
        names = self._parameters
        for position in self.specialisation.written:
            source = self.specialisation.sources[position]
            if isinstance(source, ArgumentSource) and names[source.position] not in self._results:
                raise _NotByAddress
        reverse = self._reverse
        if not self._is_value and (reverse is None or reverse.draws):
            raise _NotByAddress
        if self._is_value and self.specialisation.primal.draws:
            raise _NotByAddress

    # -- arguments ------------------------------------------------------------------------------

    def _argument(self, name: str) -> _Argument:
        what = self._what(name)
        if what is None:
            return lambda _, constants: constants.get(name)
        if not self._is_array(name):
            return self._number(self._given[Role("x", name)], self._function.annotation(name))
        primal, adjoint = self._memory_of(name, what)
        extents = what.shape[: len(what.shape) - self._function.element_dim(name)]
        packed = struct.pack(f"<{len(extents)}q", *extents)

        def array(addresses: Sequence[int], _: Mapping[str, Any]) -> _Array:
            start = addresses[primal]
            known = {PRIMAL: start}
            if adjoint is not None:
                known[ADJOINT] = addresses[adjoint]
            return _Array(extents, packed + start.to_bytes(8, "little"), known)

        return array

    def _memory_of(self, name: str, what: Shaped) -> tuple[int, int | None]:
        """The positions of the memory of an array and of its gradient, if it has one."""
        memory, source = self._memory, self._given.get(Role("x", name))
        gradient = self._found.get(Role("gx", name))
        if name not in self._results:
            assert source is not None
            if gradient is not None:
                memory.begin(gradient, what, None)
            if not self._is_value:
                self._distinct.append((source, _nbytes(what)))
            return source, gradient
        number = self._function.results.index(name)
        if self._is_value:
            primal = self._found[Role("f", number)]
            return memory.begin(primal, what, source), None
        adjoint = None
        if self._has_adjoint(name):
            adjoint = memory.scratch(what) if gradient is None else gradient
            memory.begin(adjoint, what, self._given.get(Role("a", number)))
        assert self._reverse is not None
        parameter = self._parameters.index(name)
        if adjoint is not None and not self._reverse.uses_values_of(parameter):
            return adjoint, adjoint
        return memory.begin(memory.scratch(what), what, source), adjoint

    def _number(self, position: int, kind: ScalarType) -> _Argument:
        """A number, vector or matrix that an input holds."""
        device, what = self._device, self._memory.known[position]
        if not kind.element_shape and what.size != 1:
            raise _NotByAddress
        nbytes = _nbytes(what)

        def read(addresses: Sequence[int], _: Mapping[str, Any]) -> Any:
            memory = np.empty(nbytes, np.uint8)
            device.read(addresses[position], memory)
            numbers = memory.view(what.dtype)
            return numbers.reshape(what.shape).tolist() if kind.element_shape else numbers.item()

        return read

    # -- launches -------------------------------------------------------------------------------

    def _run_value(self) -> _Run:
        specialisation = self.specialisation
        returned = self._found.get(Role("f", len(self._function.outputs)))

        def run(arguments: tuple[Any, ...], addresses: Sequence[int]) -> None:
            result = specialisation.run(specialisation.complete(arguments))
            if returned is not None:
                self._write(addresses, returned, result)

        return run

    def _run_reverse(self) -> _Run:
        reverse, wanted = self._reverse, self._step.outputs
        assert reverse is not None
        has_fields = reads_fields(self.specialisation)
        numbers = [(r.name, self._found[r]) for r in wanted if not self._is_array(r.name)]
        seed = self._given.get(Role("a", len(self._function.outputs)))
        read = None if seed is None else self._number(seed, ScalarType(self._function.returns()[0]))

        def run(arguments: tuple[Any, ...], addresses: Sequence[int]) -> None:
            if has_fields:
                check_operands([(self.specialisation, arguments)], next_number(), is_reversed=True)
            adjoint = None if read is None else read(addresses, {})
            launched = reverse.launch(arguments, needs_results=False, seed=adjoint)
            gradients = launched.gradients_of_numbers() if numbers else {}
            for name, position in numbers:
                self._write(addresses, position, gradients[name])

        return run

    def _write(self, addresses: Sequence[int], position: int, numbers: Any) -> None:
        """Store numbers in an output."""
        what = self._memory.known[position]
        values = np.asarray(numbers, what.dtype).reshape(-1)
        self._device.write(addresses[position], values.view(np.uint8))


def _nbytes(what: Shaped) -> int:
    return what.size * what.dtype.itemsize
