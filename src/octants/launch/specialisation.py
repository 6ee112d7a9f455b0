"""A kernel compiled for one key of arguments: its module, its code, the function of a launch."""

from __future__ import annotations

import copy
import functools
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from types import FunctionType
from typing import Any

import numpy as np

from octants import driver, pipeline
from octants.analysis.regions import Accessed, make_regions
from octants.artifact import parameters_of
from octants.driver import Code
from octants.ir.core import Array, Companion, Module, Space
from octants.ir.ops import Atomic, CompareExchange, Load, Store
from octants.launch.guards import make_guard
from octants.options import Options
from octants.runtime.argument_types import argument_type, build_argument
from octants.runtime.arguments import Leaf
from octants.runtime.packing import Binding, Form, Place, form_of, make_launch
from octants.runtime.signatures import Signature
from octants.types.matrix_types import MatrixType, VectorType
from octants.types.signature import (
    ArgumentSource,
    ArgumentType,
    ArraySource,
    ReturnSource,
    ScalarType,
    TemporarySource,
)

PRIMAL = Companion.PRIMAL


class Program:
    """A module, compiled, with the function that launches it on arguments.

    ``apart`` says that no two of its arrays share memory in a launch.
    """

    def __init__(
        self,
        specialisation: Specialisation,
        module: Module,
        results: Sequence[Place] = (),
        outside: Mapping[Place, int] | None = None,
        *,
        apart: bool = False,
    ) -> None:
        chosen = specialisation.options
        self.module = module = pipeline.finish(module, driver.stage_of(chosen), apart=apart)
        with driver.state.compiling:
            self.code: Code = driver.compile_module(module, chosen)
        known = specialisation.sources
        added = len(module.arrays) - len(known)
        binding = Binding(
            parameters_of(module),
            module.arrays,
            [*known, *[TemporarySource()] * added],
            specialisation.count,
            specialisation.leaves,
            specialisation.forms,
            results,
            outside or {},
            written_arrays(module, (Space.NDARRAY,)),
            _accessed_places(module),
        )
        self.launch: Callable[..., tuple[Any, ...]] = make_launch(binding, self.code.run)


class Specialisation:
    """A kernel compiled for one key of arguments.

    `kernel` is the object that the user made of the function. `module` has been lowered to tasks;
    `sources` stand parallel to its arrays. `kept` holds what the key names by identity, `is_valid`
    says whether the globals that the kernel saw still are the same. `number` is that of the last
    forward launch. `apart` says, of a kernel that is differentiated, that no two of its arrays or
    their companions share memory.
    """

    apart = True

    def __init__(
        self,
        kernel: Any,
        function: FunctionType,
        signature: Signature,
        arguments: Sequence[Any],
        chosen: Options,
    ) -> None:
        self.kernel = kernel
        self.signature = signature
        self.options = chosen
        self.count = len(arguments)
        leaves = signature.leaves()
        self.leaves = {(leaf.position, leaf.path): leaf for leaf in leaves}
        self.forms: dict[tuple[int, tuple[str, ...]], Form] = {
            place: form_of(leaf.value(arguments)) for place, leaf in self.leaves.items()
        }
        self.kept = [_keep(leaf.value(arguments)) for leaf in leaves]
        self.types = _argument_types(signature, leaves, arguments)
        self.number = 0
        built = driver.build(function, self.types, signature.returns, chosen)
        self.module = built.module
        self.returns = built.return_types
        self.returns_tuple = built.returns_tuple
        self.is_valid = make_guard(built.reads)
        self.sources: list[ArraySource] = list(built.sources)
        self.sources += [TemporarySource()] * (len(self.module.arrays) - len(self.sources))
        self.programs: dict[Any, Any] = {}
        _check_writable(self, arguments)

    @functools.cached_property
    def primal(self) -> Program:
        """The kernel itself."""
        return Program(self, self.module, self.returned)

    @functools.cached_property
    def launch(self) -> Callable[..., tuple[Any, ...]]:
        return self.primal.launch

    @functools.cached_property
    def returned(self) -> list[Place]:
        """The arrays of the returned values, in order."""
        found = [
            (source.position, array)
            for array, source in zip(self.module.arrays, self.sources, strict=True)
            if isinstance(source, ReturnSource)
        ]
        return [(array, PRIMAL) for _, array in sorted(found, key=lambda entry: entry[0])]

    @functools.cached_property
    def written(self) -> list[Array]:
        """The arrays whose primal contents a launch may change, without temporaries."""
        return written_arrays(self.module)

    def leaf(self, position: int) -> Leaf:
        """The leaf that the array at ``position`` of the module comes from."""
        source = self.sources[position]
        assert isinstance(source, ArgumentSource)
        return self.leaves[source.position, source.path]

    def make_regions(self, module: Module) -> Callable[..., Mapping[int, Accessed]]:
        """What launches of a module over the kernel's arrays access, from the arguments."""

        def expression(array: Array) -> str:
            return self.leaf(module.arrays.index(array)).expression

        return make_regions(
            module,
            self.count,
            expression,
            lambda array, axis: f"{expression(array)}.shape[{axis}]",
        )

    def with_module(self, module: Module) -> Specialisation:
        """The same for another module over the same arrays."""
        twin = copy.copy(self)
        for name in ("primal", "launch", "returned", "written"):
            twin.__dict__.pop(name, None)
        twin.module = module
        twin.programs = {}
        return twin

    def run(self, arguments: Sequence[Any]) -> Any:
        """Launch the kernel, unseen by any recorder."""
        self.number = number = next(driver.state.numbers)
        results = self.launch(driver.state.seed, number, 0, *arguments)
        return self.wrap(results) if results else None

    def wrap(self, results: tuple[Any, ...]) -> Any:
        """The returned value from the flat results."""
        driver.state.look()
        if len(results) == 1 and not self.returns_tuple:
            return results[0]
        values, position = [], 0
        for kind in self.returns:
            end = position + math.prod(kind.element_shape)
            values.append(make_value(kind, results[position:end]))
            position = end
        return tuple(values) if self.returns_tuple else values[0]


def _keep(value: Any) -> Any:
    """What the key of an argument names by identity; arrays that it does not name stay free."""
    if isinstance(value, (list, tuple)):
        return tuple(map(_keep, value))
    is_named = form_of(value) == "" and not isinstance(value, (int, float, np.generic))
    return value if is_named else None


def written_arrays(
    module: Module, spaces: Collection[Space] = (Space.FIELD, Space.NDARRAY)
) -> list[Array]:
    """The arrays of some spaces whose primal contents a module may change."""
    found: dict[Array, None] = {}
    for op in module.walk():
        if isinstance(op, (Store, Atomic, CompareExchange)) and op.companion is PRIMAL:
            found[op.array] = None
    return [array for array in found if array.space in spaces]


def _accessed_places(module: Module) -> set[Place]:
    """The companions of arrays that a module reads or writes."""
    return {(op.array, op.companion) for op in module.walk() if isinstance(op, _ACCESSES)}


_ACCESSES = (Load, Store, Atomic, CompareExchange)


def _argument_types(
    signature: Signature, leaves: Sequence[Leaf], arguments: Sequence[Any]
) -> list[ArgumentType]:
    """The type of each parameter, from those of its leaves."""
    types: list[ArgumentType] = []
    for position, annotation in enumerate(signature.annotations):
        own = [leaf for leaf in leaves if leaf.position == position]
        types.append(
            build_argument(annotation, [argument_type(leaf, leaf.value(arguments)) for leaf in own])
        )
    return types


def _check_writable(specialisation: Specialisation, arguments: Sequence[Any]) -> None:
    """An array that numpy holds for read-only cannot be written; its flags are in the key."""
    for array in specialisation.written:
        if array.space is Space.NDARRAY:
            leaf = specialisation.leaf(specialisation.module.arrays.index(array))
            flags = getattr(leaf.value(arguments), "flags", None)
            if flags is not None and not flags.writeable:
                raise leaf.error("the kernel writes this array, which is read-only", "pass a copy")


def make_value(kind: ScalarType, flat: Sequence[Any]) -> Any:
    """A number, vector or matrix of its components."""
    shape = kind.element_shape
    if not shape:
        return flat[0]
    rows, columns = shape if len(shape) == 2 else (shape[0], 1)
    vector, matrix = VectorType(rows, kind.dtype), MatrixType(rows, columns, kind.dtype)
    made = vector if len(shape) == 1 else matrix
    return made(*flat)
