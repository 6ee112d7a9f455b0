"""Steps of other libraries for several directions, all in each launch.

``jacrev`` and ``jacfwd`` of PyTorch and JAX use them: they apply ``vmap`` to a derivative.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from octants.ad.array_libraries.array_library_protocol import ArrayLibrary, Shaped
from octants.ad.functions.batched_directions import pull_back, push_forward
from octants.ad.functions.higher_derivatives import Role, Step
from octants.lazy_dataclass import dataclass

_DIRECTIONS = {"pullback": "a", "pushforward": "t"}
"""The kind of the directions of a step that may have several."""


@dataclass(frozen=True, eq=False)
class BatchedStep:
    """A step for the elements of a batch; `is_batched` says which inputs have an axis for them.

    That axis is the first. `step` may be such a step itself.
    """

    step: Any
    count: int
    is_batched: Sequence[bool]

    @property
    def is_possible(self) -> bool:
        """Whether the elements differ in directions only, so that a launch may have several."""
        if not isinstance(self.step, Step) or self.step.kind not in _DIRECTIONS:
            return False
        pairs = zip(self.step.inputs, self.is_batched, strict=True)
        batched = {role.kind for role, is_batched in pairs if is_batched}
        return batched == {_DIRECTIONS[self.step.kind]}

    @property
    def outputs(self) -> tuple[Role, ...]:
        """The outputs of the step."""
        found: tuple[Role, ...] = self.step.outputs
        return found

    def output_shapes(self, inputs: Sequence[Shaped]) -> list[Shaped]:
        """The shapes and dtypes of the outputs; see `Step.output_shapes`."""
        single = [
            Shaped(each.shape[is_batched:], each.dtype)
            for each, is_batched in zip(inputs, self.is_batched, strict=True)
        ]
        shapes = self.step.output_shapes(single)
        return [Shaped((self.count, *each.shape), each.dtype) for each in shapes]

    def with_library(self, library: ArrayLibrary) -> BatchedStep:
        """The same step for the arrays of another library."""
        return BatchedStep(self.step.with_library(library), self.count, self.is_batched)

    def element(self, inputs: Sequence[Any], number: int) -> list[Any]:
        """The inputs for an element of the batch, or what else belongs to them."""
        return [
            each[number] if is_batched and each is not None else each
            for each, is_batched in zip(inputs, self.is_batched, strict=True)
        ]

    def call(
        self,
        values: Sequence[Any],
        memory: Sequence[Any] = (),  # noqa: ARG002
    ) -> list[Any]:
        """The outputs for inputs, with a first axis for the batch; None for those of integers.

        See `Step.call`; no output is in `memory`.
        """
        step = self.step
        given = dict(zip(step.inputs, values, strict=True))
        with step.as_value(given):
            by_name = self._evaluate(given)
        return [self._as_array(role, by_name[role.name], given) for role in step.outputs]

    def _evaluate(self, given: Mapping[Role, Any]) -> Any:
        """The outputs for inputs by their roles, by name or position."""
        step, function = self.step, self.step.function
        bound = {role.name: each for role, each in given.items() if role.kind == "x"}
        bound = {name: function.as_number(name, each) for name, each in bound.items()}
        bound = {name: bound.get(name, step.constants.get(name)) for name in function.inputs}
        directions = {
            role.name: self._directions(role, each, is_batched)
            for (role, each), is_batched in zip(given.items(), self.is_batched, strict=False)
            if role.kind != "x"
        }
        if step.kind == "pushforward":
            _, found = push_forward(function, bound, directions, self.count)
            return dict(enumerate(found))
        adjoints = [directions.get(k) for k in range(len(function.results))]
        wanted = [role.name for role in step.outputs]
        return pull_back(function, bound, adjoints, wanted, self.count)[1]

    def _directions(self, role: Role, value: Any, is_batched: bool) -> Any:
        """The directions of an input or an output; those of a number are an array of numpy."""
        function = self.step.function
        if not is_batched:
            value = function.library.join([value[None]] * self.count)
        is_number = role.kind == "t" and not function.is_array(role.name, value)
        return np.asarray(value.tolist()) if is_number else value

    def _as_array(self, role: Role, value: Any, given: Mapping[Role, Any]) -> Any:
        """An output as an array of the library, also if it belongs to a number."""
        function, name = self.step.function, role.name
        library = function.library
        if isinstance(name, str):
            like = given[Role("x", name)]
            is_array = function.is_array(name, like)
        else:
            like, is_array = None, name < len(function.outputs)
        if value is None or is_array:
            return value
        if not isinstance(name, str):
            like = library.zeros(Shaped((), function.returns()[0].numpy), ())
        return library.join([library.of_number(each, like)[None] for each in value])
