"""Kernels as functions of arrays: arguments go in, new arrays come out, and so do derivatives.

`ArrayFunction` is what `octants.torch.function`, `octants.jax.function` and the functions of `ad`
that take kernels have in common. A kernel writes into arrays that are its arguments; here they are
made for each call, so that the caller sees a function without side effects, which is what the
automatic differentiation of other libraries needs.

All derivatives come from one run of the launches. A tape around it gives gradients, `Tangents`
around it give tangents, and both together the gradients of tangents: second derivatives. Gradients
of most kernels that are alone take no tape (`gradients_without_tape`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import numpy as np

from octants.ad.array_libraries.array_library_protocol import ArrayLibrary, Shaped
from octants.ad.functions.array_function_signature import RETURNED, ArraySignature
from octants.ad.functions.field_checks import begin, check_operands
from octants.ad.functions.gradients_without_tape import reverse_launch
from octants.ad.tangents import Tangents
from octants.ad.tapes.batched_gradients import BatchedGradients
from octants.ad.tapes.batched_tape import BatchedTape
from octants.ad.tapes.tape import Tape
from octants.cached_property import cached_property
from octants.data import current_runtime
from octants.data.array_base import take_array_number
from octants.data.ndarray import Ndarray, make_ndarray
from octants.diagnostics.kernel_as_function_errors import (
    ComputedFromArgument,
    InputIsWritten,
    PassedAsNumber,
)
from octants.ir.core import Companion, Space
from octants.launch.gradients.taped_memory import TapedMemory, memory_of
from octants.launch.kernel_device import device_of_array
from octants.launch.specialisation import Specialisation
from octants.locks_at_fork import released_in_children
from octants.types.specialisation_signature import ArgumentSource

ONE_AT_A_TIME = released_in_children(threading.RLock())
"""Held during an evaluation: a process records one tape at a time, and JAX and PyTorch evaluate the
functions of several devices in several threads."""


class Evaluated(NamedTuple):
    """The results of a function and, if they were asked for, their derivatives.

    `tangents` has one for each result; None for integers. `gradients` are those by the wanted
    arguments, `gradients_of_tangents` those by the tangents of the arguments, by name.
    """

    results: list[Any]
    tangents: list[Any]
    gradients: dict[str, Any]
    gradients_of_tangents: dict[str, Any]


class ArrayFunction(ArraySignature):
    """A kernel, or a Python function that launches kernels, as a function of arrays.

    A call returns the outputs in the order of the parameters, then the number that a kernel
    returns; one result alone is not in a tuple. See `ArraySignature` for the arguments.

    Attributes:
        is_one_by_one: Whether several adjoints have turned out to need a run for each.
    """

    is_one_by_one = False

    @cached_property
    def repeated(self) -> dict[Any, Any]:
        """The steps that were called before, by what the caller chooses (`calls_by_address`)."""
        return {}

    @cached_property
    def _by_library(self) -> dict[ArrayLibrary, ArrayFunction]:
        return {self.library: self}

    def with_library(self, library: ArrayLibrary) -> ArrayFunction:
        """The same function for the arrays of another library."""
        found = self._by_library.get(library)
        if found is None:
            found = self._by_library[library] = ArrayFunction(
                self.function, self.out, self.inout, library
            )
        return found

    def value(self, bound: Mapping[str, Any]) -> list[Any]:
        """The results for arguments."""
        return self.evaluate(bound).results

    def pullback(
        self, bound: Mapping[str, Any], adjoints: Sequence[Any], wanted: Sequence[str]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Propagate adjoints of the results back: the vector-Jacobian product.

        Args:
            bound: the arguments.
            adjoints: one for each result; None stands for zeros.
            wanted: the names of the arguments to differentiate by.

        Returns:
            The results, and the gradients by name: an array, or a number for a number. The
            gradients of other fields and ndarrays that the kernels use are overwritten; several
            adjoints leave them as they are, or overwrite them if they go one after the other.

        Raises:
            OctantsTypeError: there is no derivative by one of the arguments.
        """
        found = self.evaluate(bound, adjoints=adjoints, wanted=wanted)
        return found.results, found.gradients

    def pushforward(
        self, bound: Mapping[str, Any], tangents: Mapping[str, Any]
    ) -> tuple[list[Any], list[Any]]:
        """Propagate tangents of arguments: the Jacobian-vector product.

        Args:
            bound: the arguments.
            tangents: by name, for some of the arguments of floats.

        Returns:
            The results, and their tangents; None for a result of integers.

        Raises:
            OctantsTypeError: there is no derivative by one of the arguments.
        """
        found = self.evaluate(bound, tangents=tangents)
        return found.results, found.tangents

    def evaluate(
        self,
        bound: Mapping[str, Any],
        *,
        tangents: Mapping[str, Any] | None = None,
        adjoints: Sequence[Any] | None = None,
        adjoints_of_tangents: Sequence[Any] = (),
        wanted: Sequence[str] = (),
        directions: int = 1,
        memory: Mapping[str, Any] | None = None,
        needs_results: bool = True,
    ) -> Evaluated:
        """Propagate tangents of arguments, then adjoints of the results and of their tangents back.

        With f the function, J its Jacobian at x, t the tangents of x, a the adjoints and b those of
        the tangents, `gradients` are the derivatives by x of ``a f(x) + b J(x) t``, and
        `gradients_of_tangents` those by t, the pullback of b.

        Args:
            bound: the arguments.
            tangents: by name, for some of the arguments of floats; None: there are none.
            adjoints: one for each result; None stands for zeros; None for all: nothing goes back.
            adjoints_of_tangents: one for each result; None stands for zeros.
            wanted: the names of the arguments to differentiate by.
            directions: how many tangents each argument has, or adjoints each result. If there are
                several, these and what is found have a first axis for them, and there are either
                tangents or adjoints.
            memory: arrays for some of the outputs, by name, of their shape, that share no memory
                with arguments. If one has the dtype of the output, it is the result.
            needs_results: whether the results are used.

        Raises:
            OneByOne: several adjoints must be propagated one after the other.
            OctantsTypeError: there is no derivative by one of the arguments.
            OctantsRuntimeError: for gradients of tangents, if the function calls one with a
                gradient of its own.
        """
        with ONE_AT_A_TIME:
            active = (*wanted, *(tangents or ()))
            for name in active:
                if not self.is_array(name, bound[name]):
                    self.check_number(name)
            arrays = _with_outputs(self, bound, memory or {})
            if adjoints is not None and directions > 1:
                run = _Run(self, arrays, [None] * len(adjoints), wanted)
                gradients = _batched_adjoints(run, adjoints, directions)
                return _reversed(run, None, adjoints, wanted, gradients)
            if tangents is not None:
                arrays = _without_overlaps(self, arrays)
            given, duals = adjoints, None
            if tangents is not None and self.may_compute:
                given = adjoints or [None] * len(self.results)  # for the library to track
            run = _Run(self, arrays, given, active)
            if tangents is not None:
                duals = _Duals(run, tangents, directions, adjoints_of_tangents)
            if adjoints is not None:
                found = None
                if duals is None:
                    found = _reversed_without_tape(run, adjoints, wanted, needs_results)
                return found or _reversed(run, duals, adjoints, wanted)
            with run, _tracking(run, given is not None), _around(run, duals, None) as context:
                returned = self.function(*run.given.values())
            if tangents is not None:
                _check_launches(run, context.launched(), active, is_reversed=False)
            return run.evaluated(returned, duals, {})


def _batched_adjoints(run: _Run, adjoints: Sequence[Any], count: int) -> BatchedGradients:
    """The gradients of a tape for several adjoints, with those of the results."""
    function, gradients = run.function, BatchedGradients(count)
    for name, adjoint in zip(function.outputs, adjoints, strict=False):
        if adjoint is not None and function.is_float(name, run.arrays):
            library = function.library
            dtype = library.shaped(run.arrays[name]).dtype  # JAX may narrow it
            made = library.ndarray(library.copy(adjoint, dtype), function.element_dim(name), False)
            gradients.add(run.passed[name], made, name)
    return gradients


def _reversed_without_tape(
    run: _Run, adjoints: Sequence[Any], wanted: Sequence[str], needs_results: bool
) -> Evaluated | None:
    """Call a function, and propagate adjoints of its results back, if that takes no tape."""
    function = run.function
    numbers = [name for name in wanted if not function.is_array(name, run.arrays[name])]
    _, seed = _loss(function, adjoints)
    found = reverse_launch(
        function.function,
        [*run.passed.values()],
        needs_results=needs_results,
        seed=seed,
        by_value=bool(numbers),
    )
    if found is None:
        return None
    launched = [(found.specialisation, found.arguments)]
    check_operands(launched, run.first_number, run.is_own, is_reversed=True)
    gradients = found.gradients_of_numbers() if numbers else {}
    for name in wanted:
        if name not in numbers:
            gradients[name] = function.library.gradient(run.passed[name])
    return run.evaluated(found.returned, None, {name: gradients[name] for name in wanted})


def _reversed(
    run: _Run,
    duals: _Duals | None,
    adjoints: Sequence[Any],
    wanted: Sequence[str],
    gradients: BatchedGradients | None = None,
) -> Evaluated:
    """Call a function under a tape, and propagate adjoints of its results back.

    Args:
        run: the arguments.
        duals: their tangents; None: there are none.
        adjoints: one for each result; None stands for zeros.
        wanted: the names of the arguments to differentiate by.
        gradients: those of the tape if there are several adjoints, all in each reverse launch.

    Raises:
        OneByOne: several adjoints must be propagated one after the other.
        OctantsRuntimeError: a kernel takes what the library computed from an argument.
    """
    function = run.function
    numbers = [name for name in wanted if not function.is_array(name, run.arrays[name])]
    loss, seed = _loss(function, adjoints)
    options = {"seed": seed, "argument_gradients": function.function if numbers else False}
    tape = Tape(loss, clear_gradients=False, **options)
    if gradients is not None:
        tape = _BatchedScratchTape(run, gradients, loss, **options)
    elif duals is None and function.may_compute:
        tape = _ScratchTape(run, loss, clear_gradients=False, **options)
    if function.library.refuses_gradient_ends:
        tape.refuse_gradient_ends()
    with run, tape:
        with _tracking(run, function.may_compute), _around(run, duals, tape):
            returned = function.function(*run.given.values())
        _check_launches(run, tape.launched(), wanted, is_reversed=duals is None)
        for name in function.outputs:
            tape.untracked.check(memory_of(run.passed[name], name))
        if gradients is None:
            own = () if duals is None else duals.ndarrays.values()
            _clear_gradients_between(tape, [*run.passed.values(), *own])
    found = dict(*tape.argument_gradients(function.function)) if numbers else {}
    for name in wanted:
        if name in numbers:
            continue
        if gradients is None:
            found[name] = function.library.gradient(run.passed[name])
        else:
            found[name] = _batched_gradient(run, name, gradients)
    return run.evaluated(returned, duals, {name: found[name] for name in wanted})


class _ScratchTape(Tape):
    """A tape of a function, which may write and read arrays that the library has made within it."""

    def __init__(self, run: _Run, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self._run = run

    def launch(self, specialisation: Specialisation, arguments: tuple[Any, ...]) -> Any:
        return super().launch(self._run.prepared(self.paused, specialisation, arguments), arguments)


class _BatchedScratchTape(_ScratchTape, BatchedTape):
    """The same for several adjoints."""


def _tracking(run: _Run, is_needed: bool) -> AbstractContextManager[object]:
    """A context in which the library tracks what it computes from active arguments."""
    function = run.function
    if not is_needed:
        return contextlib.nullcontext()

    def refuse(target: Any) -> None:
        found = (f"`{name}`" for name in function.outputs if run.given[name] is target)
        raise ComputedFromArgument(function.name, f"writes to {next(found, 'an array')}").at()

    return function.library.tracking_computations(run.written, refuse)


def _check_launches(
    run: _Run,
    launched: Iterable[tuple[Specialisation, tuple[Any, ...]]],
    active: Sequence[str],
    *,
    is_reversed: bool,
) -> None:
    """Raise an error if the launches make the derivatives wrong.

    Args:
        run: the arguments.
        launched: the launches.
        active: the arguments to differentiate by.
        is_reversed: whether all derivatives are by reverse launches.

    Raises:
        OctantsRuntimeError: a kernel took what the library has computed from an active argument,
            or took such an argument as a number, or wrote an input; or a field has changed since
            the value was computed.
    """
    function, launched = run.function, list(launched)
    names = run.names_of_inputs()
    check_operands(launched, run.first_number, run.is_own, is_reversed=is_reversed)
    for specialisation, arguments in launched:
        kernel = specialisation.signature.kernel
        if function.may_compute and any(map(function.library.is_computed, arguments)):
            raise ComputedFromArgument(function.name, f"passes `{kernel}`").at()
        numbers, written = _argument_uses(specialisation)
        for name in (names.get(id(arguments[position])) for position in numbers):
            if name is not None and name in active:
                raise PassedAsNumber(kernel, name).at()
        for name in (names.get(id(arguments[position])) for position in written):
            if name is not None:
                raise InputIsWritten(function.name, kernel, name).at()


def _argument_uses(specialisation: Specialisation) -> tuple[list[int], list[int]]:
    """The positions of the arguments that a kernel takes as floats, and of those that it writes."""
    known, key = specialisation.fast_paths, "argument uses"
    if key not in known:
        numbers, written = [], []
        pairs = zip(specialisation.arrays, specialisation.sources, strict=True)
        for position, (array, source) in enumerate(pairs):
            if isinstance(source, ArgumentSource):
                if array.space is Space.ARGUMENT and array.dtype.is_float:
                    numbers.append(source.position)
                if position in specialisation.written:
                    written.append(source.position)
        known[key] = numbers, written
    found: tuple[list[int], list[int]] = known[key]
    return found


def _batched_gradient(run: _Run, name: str, gradients: BatchedGradients) -> Any:
    """The gradients by an argument, as an array with a first axis for the adjoints."""
    library, array = run.function.library, run.arrays[name]
    found = gradients.find(run.passed[name])
    if found is not None:
        return library.of_ndarray(found, array)
    what = library.shaped(array)
    return library.zeros(Shaped((gradients.count, *what.shape), what.dtype), [array])


class _Run:
    """The arguments of the function: arrays of the call, with gradients where they are active.

    `arrays` are those of the library, by the names of the parameters, `passed` what becomes of
    them for a kernel, and `given` for the function. `first_number` is that of the first launch.
    `written` are arrays that the library may update.
    """

    def __init__(
        self,
        function: ArraySignature,
        arrays: Mapping[str, Any],
        adjoints: Sequence[Any] | None,
        active: Sequence[str],
    ) -> None:
        self.function = function
        self.arrays = arrays
        self.first_number, self._first_array = begin(), take_array_number()
        self._is_differentiated = adjoints is not None or bool(active)
        begins: dict[str, Any] = {}
        if adjoints is not None:
            begins = dict.fromkeys(active, True)
            for name, adjoint in zip(function.outputs, adjoints, strict=False):
                begins[name] = True if adjoint is None else adjoint
        self.passed = {
            name: self._argument(name, value, begins.get(name))
            for name, value in self.arrays.items()
        }
        self.given = {name: function.library.given(value) for name, value in self.passed.items()}
        self.written = [self.given[name] for name in function.outputs]
        self._activated: list[Any] = []

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: object) -> None:
        for array in self._activated:
            self.function.library.deactivate(array)

    def prepared(
        self, paused: int, specialisation: Specialisation, arguments: tuple[Any, ...]
    ) -> Specialisation:
        """The kernel of a launch, before which arrays of the library that it writes get gradients.

        Derivatives pass through arrays that the function has made: scratch memory.
        """
        if paused or specialisation.evaluate is not None:
            return specialisation
        written = [arguments[position] for position in _argument_uses(specialisation)[1]]
        activated = [array for array in written if self._activate(array)]
        self._activated += activated
        self.written += activated
        if not activated:
            return specialisation
        found: Specialisation = specialisation.kernel.specialisation(arguments)
        return found

    def _activate(self, array: Any) -> bool:
        is_passed = any(array is each for each in self.passed.values())
        return not is_passed and self.function.library.activate(array)

    @property
    def device(self) -> int | None:
        """The number of the device that the arrays are on; None where that of `init` is taken."""
        numbers = map(device_of_array, self.passed.values())
        return next((number for number in numbers if number is not None), None)

    def names_of_inputs(self) -> dict[int, str]:
        """The names of the arrays that the function may only read, by their identities."""
        return {
            id(each): name
            for arrays in (self.passed, self.given)
            for name, each in arrays.items()
            if name not in self.function.outputs and self.function.is_array(name, self.arrays[name])
        }

    def is_own(self, array: Any) -> bool:
        """Whether an ndarray is that of an array of the call, or was made within it."""
        function = self.function
        return array.octants_number >= self._first_array or any(
            array is each and function.is_array(name, self.arrays[name])
            for name, each in self.passed.items()
        )

    def _argument(self, name: str, value: Any, adjoint: Any) -> Any:
        function = self.function
        if not function.is_array(name, value):
            return value
        if not function.is_float(name, self.arrays):
            adjoint = None
        element_dim, observed = function.element_dim(name), self._is_differentiated
        return function.library.argument(value, element_dim, adjoint, observed=observed)

    def evaluated(
        self, returned: Any, duals: _Duals | None, gradients: dict[str, Any]
    ) -> Evaluated:
        """The results of the call."""
        function, arrays = self.function, self.arrays
        results = [
            function.library.result(self.passed[name], arrays[name]) for name in function.outputs
        ]
        if function.returns():
            results.append(returned)
        if duals is None:
            return Evaluated(results, [], gradients, {})
        return Evaluated(results, duals.of_results(), gradients, duals.gradients())


class _Duals:
    """The tangents of a run, as ndarrays by the names of the parameters, or `RETURNED`."""

    def __init__(
        self,
        run: _Run,
        tangents: Mapping[str, Any],
        directions: int,
        adjoints: Sequence[Any],
    ) -> None:
        self._run = run
        self.directions = directions
        self._batch = (directions,) if directions > 1 else ()
        self._given = dict(tangents)
        self.ndarrays: dict[str, Ndarray] = {}
        self.by_value: dict[str, Ndarray] = {}
        function = run.function
        ends = dict(zip(function.results, adjoints, strict=False))
        for name in (*tangents, *(each for each in function.outputs if each not in tangents)):
            if function.is_float(name, run.arrays):
                self.ndarrays[name] = self._made(name, ends.get(name))
        for kind in function.returns():
            if kind.is_float:
                made = make_ndarray(kind, self._batch, needs_grad=True, device=run.device)
                self.ndarrays[RETURNED] = made
                adjoint = ends.get(RETURNED)
                made.grad.fill(0.0 if adjoint is None else float(adjoint))

    def _made(self, name: str, adjoint: Any) -> Ndarray:
        """The tangent of a parameter, as it begins."""
        run, given = self._run, self._given.get(name)
        function = run.function
        library, array = function.library, run.arrays[name]
        if not function.is_array(name, array):
            kind = function.annotation(name)
            options: dict[str, Any] = {"needs_grad": True, "device": run.device}
            element_shape = kind.element_shape
            made = make_ndarray(kind.dtype, self._batch, element_shape=element_shape, **options)
            shape = (*self._batch, *element_shape)
            made.from_numpy(np.asarray(given, kind.dtype.numpy).reshape(shape))
            self.by_value[name] = made
            return made
        if given is None:
            what = library.shaped(array)
            given = library.zeros(Shaped((*self._batch, *what.shape), what.dtype), [array])
        elif name in function.outputs:
            given = library.copy(given)
        needs_grad = _has_gradient(run.passed[name])
        made = library.ndarray(given, function.element_dim(name), needs_grad)
        if adjoint is not None:
            made.grad.copy_from(library.ndarray(adjoint, function.element_dim(name), False))
        return made

    def of_results(self) -> list[Any]:
        """The tangents of the results; None for integers."""
        function = self._run.function
        found = [self._array(name, self.ndarrays.get(name)) for name in function.outputs]
        if function.returns():
            made = self.ndarrays.get(RETURNED)
            found.append(None if made is None else _number(made))
        return found

    def gradients(self) -> dict[str, Any]:
        """The gradients by the tangents that were given, where there are any."""
        found = {}
        for name in self._given:
            made = self.ndarrays[name]
            if name in self.by_value:
                found[name] = _number(made.grad)
            elif made.has_grad():
                found[name] = self._array(name, made.grad)
        return found

    def _array(self, name: str, ndarray: Ndarray | None) -> Any:
        if ndarray is None:
            return None
        return self._run.function.library.of_ndarray(ndarray, self._run.arrays[name])


@contextlib.contextmanager
def _around(run: _Run, duals: _Duals | None, tape: Tape | None) -> Any:
    """The context in which launches compute tangents, if there are some."""
    if duals is None:
        yield None
        return
    function = run.function
    returned = duals.ndarrays.get(RETURNED)
    tangents = Tangents(tape, function.kernel, duals.by_value, returned, duals.directions)
    for name, made in duals.ndarrays.items():
        if name not in duals.by_value and name != RETURNED:
            tangents.add(run.passed[name], made, name)
    if function.may_compute:
        tangents.prepare = run.prepared
    if function.library.refuses_gradient_ends:
        tangents.refuse_gradient_ends()
    with tangents:
        yield tangents


def _number(ndarray: Ndarray) -> Any:
    """The numbers of an ndarray; a float if there is one."""
    held = ndarray.to_numpy()
    return held if held.shape else float(held)


def _has_gradient(array: Any) -> bool:
    """Whether an argument of a kernel has a gradient."""
    if isinstance(array, Ndarray):
        return array.has_grad()
    return bool(getattr(array, "requires_grad", False))


def _with_outputs(
    function: ArraySignature, bound: Mapping[str, Any], memory: Mapping[str, Any]
) -> dict[str, Any]:
    """The arguments, with copies of those that are updated, and outputs of zeros."""
    library = function.library
    given = [value for name, value in bound.items() if function.is_array(name, value)]
    found = dict(bound)
    for name, what in zip(function.outputs, function.output_shapes(bound), strict=False):
        is_copy = name in function.inout
        target = memory.get(name)
        if target is not None and target.dtype == what.dtype:
            found[name] = target
            library.assign(target, bound[name] if is_copy else 0)
        else:
            found[name] = library.copy(bound[name]) if is_copy else library.zeros(what, given)
    return {name: found[name] for name in function.parameters}


def _without_overlaps(function: ArraySignature, arrays: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, with copies of arrays that share memory with one before: each has a tangent
    of its own.
    """
    found = dict(arrays)
    seen: list[TapedMemory] = []
    for name, value in arrays.items():
        if function.is_array(name, value):
            memory = memory_of(value, name)
            if any(memory.overlaps(other) for other in seen):
                found[name] = function.library.copy(value)
            seen.append(memory)
    return found


def _loss(function: ArraySignature, adjoints: Sequence[Any]) -> tuple[Any, Any]:
    """The loss of the tape, and its adjoint: the number that a kernel returns, if it counts."""
    kinds = function.returns()
    if not kinds or not kinds[0].is_float or adjoints[-1] is None:
        return None, None
    seed = adjoints[-1]
    return function.function, seed.tolist() if hasattr(seed, "tolist") else seed


def _clear_gradients_between(tape: Tape, ours: Iterable[Any]) -> None:
    """Clear the gradients of the fields and ndarrays that launches used besides the arguments.

    Values pass through them, so what an earlier call has left there must not.
    """
    own = {id(value) for value in ours}
    for gradient in current_runtime.runtime().arrays(Companion.ADJOINT):
        array = gradient.primal
        if gradient.is_allocated and id(array) not in own and tape.uses(array.identity):
            gradient.clear()
