"""The values and derivatives of a function of arrays as steps that can be differentiated again.

PyTorch and JAX differentiate a program step by step: each step has a vector-Jacobian and a
Jacobian-vector product, which are steps themselves. A `Step` says by roles which arrays it takes
and gives. Two tables say what role an array has in the derivative of a step:

========== =============== ===================== =================================
step       takes           gives                 its derivatives
========== =============== ===================== =================================
value      x               f                     pullback, pushforward
pullback   x, a            gx = a J              second
pushforward x, t           jt = J t              second (by x in reverse mode only)
second     x, t, a, b      jt, gx, gt            none
========== =============== ===================== =================================

Here x are arguments, f results, J the Jacobian, t tangents of x, a adjoints of f, b adjoints of
``J t``. In a second step gx are the derivatives of ``a f + b J t`` by x, and ``gt = b J`` those by
t. So the gradient of a pullback along u, which is ``a J u``, is the step with t = u and b = a.

If a value has drawn random numbers, its derivatives take the number of its first launch, too, of
the kind n, and draw the same. In JAX they take the time of the value, of the kind v, and check that
no field has changed since (`field_checks`).
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from octants import driver
from octants.ad.array_libraries.array_library_protocol import ArrayLibrary, Shaped
from octants.ad.functions.array_function import ONE_AT_A_TIME, ArrayFunction
from octants.ad.functions.field_checks import derivative_of
from octants.ad.functions.repeated_runs import next_number, numbered_from
from octants.diagnostics.kernel_as_function_errors import NewDraws, NoThirdDerivative, WrongOutput
from octants.lazy_dataclass import dataclass


class Role(NamedTuple):
    """The role of an array in a step: its kind, and the parameter's name or result's position."""

    kind: str
    name: Any


class _Rules(NamedTuple):
    """The kinds in a derivative: of its directions, of the inputs that stay, of what it gives."""

    directions: Mapping[str, str]
    inputs: Mapping[str, str]
    outputs: Mapping[str, str]


_PULLBACK = {
    "value": _Rules({"f": "a"}, {"x": "x"}, {"x": "gx"}),
    "pullback": _Rules({"gx": "t"}, {"x": "x", "a": "b"}, {"x": "gx", "a": "jt"}),
    "pushforward": _Rules({"jt": "b"}, {"x": "x", "t": "t"}, {"x": "gx", "t": "gt"}),
}
_PUSHFORWARD = {
    "value": _Rules({"x": "t"}, {"x": "x"}, {"f": "jt"}),
    "pullback": _Rules({"x": "t", "a": "a"}, {"x": "x", "a": "b"}, {"gx": "gx"}),
}
_LINEAR = {
    "pullback": _Rules({"a": "a"}, {"x": "x"}, {"gx": "gx"}),
    "pushforward": _Rules({"t": "t"}, {"x": "x"}, {"jt": "jt"}),
}
"""The pushforward of a step by what it is linear in: the step itself."""
_TRANSPOSED = {
    "pullback": _Rules({"gx": "t"}, {"x": "x"}, {"a": "jt"}),
    "pushforward": _Rules({"jt": "a"}, {"x": "x"}, {"t": "gx"}),
    "second": _Rules({"gx": "t"}, {"x": "x", "b": "b"}, {"t": "gx", "a": "jt"}),
}
"""The pullback of a step by what it is linear in, t and a. By b = a and t a second step is the
pushforward of a pullback, whose Hessian is symmetric."""
_MISSING = {
    "second": (
        "third derivatives",
        "the difference of two second derivatives gives the change along a direction",
    ),
    "value": (
        "transposes of what is not known to be linear",
        "take the `vjp`, or the transpose of the linear function that `linearize` returns",
    ),
    "pushforward": (
        "tangents of tangents",
        "compose forward mode with reverse mode, such as `jacfwd` of `grad` or `jacrev`",
    ),
}
_KINDS = {"": "value", "a": "pullback", "t": "pushforward"}
NUMBER = Role("n", None)
"""The number of the first launch, an integer."""
TIME = Role("v", None)
"""The last 31 bits of the time of the value, an integer."""


@dataclass(frozen=True, eq=False)
class Derivative:
    """A step that is a derivative of another, and where its inputs come from.

    `sources` has for each input of `step` whether it is one of the directions - adjoints or
    tangents - or of the inputs of the other step, and its position there.
    """

    step: Step
    sources: tuple[tuple[bool, int], ...]

    def inputs(self, directions: Sequence[Any], inputs: Sequence[Any]) -> list[Any]:
        """The inputs of the step."""
        return [directions[k] if is_new else inputs[k] for is_new, k in self.sources]


@dataclass(frozen=True, eq=False)
class Step:
    """A value or a derivative of a function, as a function of a list of arrays."""

    function: ArrayFunction
    constants: Mapping[str, Any]
    inputs: tuple[Role, ...]
    outputs: tuple[Role, ...]

    @property
    def kind(self) -> str:
        """The row of the table above."""
        return _kind_of(self.inputs)

    def with_library(self, library: ArrayLibrary) -> Step:
        """The same step for the arrays of another library."""
        function = self.function.with_library(library)
        return Step(function, self.constants, self.inputs, self.outputs)

    def with_constants(self, constants: Mapping[str, Any] | None) -> Step:
        """The same step with other constants; None: with its own."""
        if constants is None:
            return self
        return Step(self.function, constants, self.inputs, self.outputs)

    # -- derivatives ----------------------------------------------------------------------------

    def with_number(self) -> Step:
        """The same step with one more input, the number of its first launch.

        Its derivatives have that, too.
        """
        return Step(self.function, self.constants, (*self.inputs, NUMBER), self.outputs)

    def with_time(self) -> Step:
        """The same step with one more input, the time of the value, as have its derivatives."""
        return Step(self.function, self.constants, (*self.inputs, TIME), self.outputs)

    def without_time(self) -> Step:
        """The same step without that input."""
        inputs = tuple(role for role in self.inputs if role != TIME)
        return Step(self.function, self.constants, inputs, self.outputs)

    def pullback(self, needed: Sequence[bool], present: Sequence[bool]) -> Derivative:
        """The gradients by the inputs that are `needed`, for adjoints of the `present` outputs.

        Raises:
            OctantsRuntimeError: the step has no derivative.
        """
        return self._derivative("pullback", needed, present)

    def pushforward(self, present: Sequence[bool]) -> Derivative:
        """The tangents of the outputs, for tangents of the inputs that are `present`.

        Raises:
            OctantsRuntimeError: the step has no derivative.
        """
        return self._derivative("pushforward", (), present)

    def transposed(self, linear: Sequence[bool], present: Sequence[bool]) -> Derivative:
        """The same as `pullback` by inputs in which the step is linear, whose values are unknown.

        Raises:
            OctantsRuntimeError: the step has no derivative.
        """
        return self._derivative("transposed", linear, present)

    def _derivative(self, by: str, needed: Sequence[bool], present: Sequence[bool]) -> Derivative:
        found = _derived_roles(by, self.inputs, self.outputs, tuple(needed), tuple(present))
        if found is None:
            raise NoThirdDerivative(self.function.name, *_MISSING[self.kind]).at()
        inputs, outputs, sources = found
        return Derivative(Step(self.function, self.constants, inputs, outputs), sources)

    def output_shapes(self, inputs: Sequence[Shaped]) -> list[Shaped]:
        """The shapes and dtypes of the outputs, for those of the inputs."""
        known, results = dict(zip(self.inputs, inputs, strict=True)), self.result_shapes(inputs)
        return [
            known[Role("x", name)] if isinstance(name, str) else results[name]
            for _, name in self.outputs
        ]

    def result_shapes(self, inputs: Sequence[Shaped]) -> list[Shaped]:
        """The shapes and dtypes of the results of the function, for those of the inputs."""
        pairs = zip(self.inputs, inputs, strict=True)
        given = {role.name: each for role, each in pairs if role.kind == "x"}
        return self.function.output_shapes({**self.constants, **given})

    # -- evaluation -----------------------------------------------------------------------------

    def call(self, values: Sequence[Any], memory: Sequence[Any] = ()) -> list[Any]:
        """The outputs for inputs, which are arrays of the library; None for those of integers.

        Args:
            values: the inputs.
            memory: an array of the library for each output, which shares memory with no input. An
                output may be in it instead of in a new array, if it is of the same dtype.

        Raises:
            OctantsRuntimeError: the step is a derivative, and draws other random numbers than the
                value.
        """
        return self.call_with_number(values, memory)[0]

    def call_with_number(
        self, values: Sequence[Any], memory: Sequence[Any] = ()
    ) -> tuple[list[Any], int | None]:
        """The same, and the number of the first launch if one has drawn random numbers."""
        given = dict(zip(self.inputs, values, strict=True))
        with self.as_value(given) as first_number:
            found = self._evaluate(given, memory)
        return found, first_number()

    @contextlib.contextmanager
    def as_value(self, given: dict[Role, Any]) -> Iterator[Callable[[], int | None]]:
        """A context whose launches draw what those of the value drew, and read what they read.

        Args:
            given: the inputs, of which it removes the number of the first launch and the time.

        Yields:
            A function that returns the number of the first launch if any has drawn random numbers.

        Raises:
            OctantsRuntimeError: a derivative has drawn other random numbers than the value, or has
                read a field that was written since.
        """
        number, time = given.pop(NUMBER, None), given.pop(TIME, None)
        first, draws = None if number is None else int(number), driver.state.draws
        around = contextlib.nullcontext() if time is None else derivative_of(time.item())
        with ONE_AT_A_TIME, around, numbered_from(first):
            begin, before = next_number(), draws.launches

            def first_number() -> int | None:
                return begin if draws.launches != before else None

            yield first_number
            if number is None and self.kind != "value" and first_number() is not None:
                raise NewDraws(self.function.name).at()

    def _evaluate(self, given: Mapping[Role, Any], memory: Sequence[Any]) -> list[Any]:
        """The outputs for inputs by their roles."""
        function = self.function
        bound: dict[str, Any] = {}
        tangents: dict[str, Any] = {}
        ends: dict[str, list[Any]] = {kind: [None] * len(function.results) for kind in "ab"}
        for role, value in given.items():
            if role.kind in "ab":
                ends[role.kind][role.name] = value
            else:
                into = bound if role.kind == "x" else tangents
                into[role.name] = function.as_number(role.name, value)
        bound = {n: bound.get(n, self.constants.get(n)) for n in function.inputs}
        wanted = [role.name for role in self.outputs if role.kind == "gx"]
        found = function.evaluate(
            bound,
            tangents=tangents or None,
            adjoints=None if self.kind in ("value", "pushforward") else ends["a"],
            adjoints_of_tangents=ends["b"],
            wanted=wanted,
            memory=self._memory_by_name(memory),
            needs_results=any(role.kind == "f" for role in self.outputs),
        )
        by_kind: dict[str, Any] = {
            "f": found.results,
            "jt": found.tangents,
            "gx": found.gradients,
            "gt": found.gradients_of_tangents,
        }
        results = [by_kind[role.kind][role.name] for role in self.outputs]
        return [
            self._as_array(role, each, given)
            for role, each in zip(self.outputs, results, strict=True)
        ]

    def _memory_by_name(self, memory: Sequence[Any]) -> dict[str, Any] | None:
        """The arrays for the results of a value, by the names of the parameters."""
        if not memory or self.kind != "value":
            return None
        names = self.function.results
        return {names[role.name]: each for role, each in zip(self.outputs, memory, strict=True)}

    def _as_array(self, role: Role, value: Any, given: Mapping[Role, Any]) -> Any:
        """An output as an array of the library, also if it belongs to a number."""
        library, name = self.function.library, role.name
        if value is None or library.is_array(value):
            return value
        if isinstance(name, str):
            return library.of_number(value, given[Role("x", name)])
        kind = self.function.returns()[0]
        return library.of_number(value, library.zeros(Shaped((), kind.numpy), ()))


@functools.lru_cache(1024)
def _kind_of(inputs: tuple[Role, ...]) -> str:
    """The row of the table for a step with certain inputs."""
    kinds = "".join(sorted({role.kind for role in inputs} - {"x", "n", "v"}))
    return _KINDS.get(kinds, "second")


@functools.lru_cache(1024)
def _derived_roles(
    by: str,
    inputs: tuple[Role, ...],
    outputs: tuple[Role, ...],
    needed: tuple[bool, ...],
    present: tuple[bool, ...],
) -> tuple[tuple[Role, ...], tuple[Role, ...], tuple[tuple[bool, int], ...]] | None:
    """The inputs and outputs of a derivative, and the sources of the inputs; None if there is none.

    Args:
        by: the method of `Step` that asks.
        inputs: those of the step.
        outputs: those of the step.
        needed: whether there is a gradient, by each input.
        present: whether there is a direction, for each output or, in a pushforward, each input.
    """
    varying, gives = outputs, tuple(role for role, n in zip(inputs, needed, strict=False) if n)
    table = _PULLBACK if by == "pullback" else _TRANSPOSED
    if by == "pushforward":
        varying, gives = inputs, outputs
        varies = {role.kind for role, counts in zip(inputs, present, strict=True) if counts}
        table = _PUSHFORWARD if "x" in varies else _LINEAR
    rules = table.get(_kind_of(inputs))
    if rules is None:
        return None
    found: list[tuple[Role, tuple[bool, int]]] = []
    for position, (role, counts) in enumerate(zip(varying, present, strict=True)):
        if counts:
            found.append((Role(rules.directions[role.kind], role.name), (True, position)))
    for position, role in enumerate(inputs):
        kind = role.kind if role in (NUMBER, TIME) else rules.inputs.get(role.kind)
        if kind is not None:
            found.append((Role(kind, role.name), (False, position)))
    given, sources = zip(*found, strict=True) if found else ((), ())
    return given, tuple(Role(rules.outputs[each.kind], each.name) for each in gives), sources


@functools.lru_cache(1024)
def _roles_of_value(names: tuple[str, ...], results: int) -> tuple[tuple[Role, ...], ...]:
    """The inputs and outputs of a value."""
    inputs = tuple(Role("x", name) for name in names)
    return inputs, tuple(Role("f", k) for k in range(results))


def value_step(function: ArrayFunction, bound: Mapping[str, Any], names: Sequence[str]) -> Step:
    """The value of a function, of the arguments with some names; the others are constants.

    Raises:
        OctantsTypeError: the function has no results.
    """
    if not function.results:
        problem = "names no result, nor does `inout`: name the parameters that it writes"
        raise WrongOutput(function.name, "out", problem).at()
    constants = {name: value for name, value in bound.items() if name not in names}
    return Step(function, constants, *_roles_of_value(tuple(names), len(function.results)))
