"""A kernel compiled for one key of arguments: its module, its code, and its launch function."""

from __future__ import annotations

import copy
import dataclasses
import functools
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from operator import length_hint
from types import FunctionType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from octants import driver, options
from octants.analysis.indices.index_ranges import Regions
from octants.cache import configured_store
from octants.cache.build_inputs import value_now
from octants.cached_property import cached_property
from octants.deferred_import import Deferred
from octants.diagnostics.graph_errors import GraphReturns, HostArrayInGraph
from octants.diagnostics.launch_errors import WrongArgument
from octants.diagnostics.recursion_limit import deep_recursion
from octants.diagnostics.render import Diagnostic
from octants.diagnostics.user_frames import warn_at_spans
from octants.garbage_collection import Uncollected
from octants.ir.array_aliasing import has_memory_of_others
from octants.ir.core import Array, Companion, Module, Operation, Space
from octants.launch.bound_code import BoundKernelCode, written_arrays
from octants.launch.kernel_cache import build_environment, open_entry
from octants.launch.kernel_device import arrays_of_arguments, arrays_of_fields, common_device
from octants.launch.returned_values import next_value
from octants.launch.warm.specialisation_guards import (
    KernelReads,
    Terms,
    guard_terms,
    hidden_terms,
    make_evaluation,
    make_guard,
)
from octants.lazy_dataclass import dataclass
from octants.options import Options
from octants.runtime.arguments.argument_recognition import Recognition
from octants.runtime.arguments.argument_types import argument_type, build_argument
from octants.runtime.arguments.array_bindings import ArrayKind, kind_of
from octants.runtime.arguments.conversions import is_read_only
from octants.runtime.arguments.frozen_structs import frozen_structs
from octants.runtime.arguments.kernel_signatures import Signature
from octants.runtime.arguments.parameters import Leaf
from octants.runtime.device import Device
from octants.slow_compiles import watched
from octants.types.compile_time_reads import HiddenArgument, Read, ReadKey, key_of
from octants.types.parameter_annotations import AnyTensor
from octants.types.specialisation_signature import (
    ArgumentSource,
    ArgumentType,
    ArraySource,
    FieldSource,
    ReturnSource,
    ScalarType,
    SharedSource,
    TemplateValue,
    TemporarySource,
)
from octants.types.weak_references import parts_of, reference_to, weakly

if TYPE_CHECKING:
    from octants.analysis.memory import accessed_regions, alias_sensitivity
    from octants.frontend import Built
else:
    accessed_regions = Deferred("octants.analysis.memory.accessed_regions")
    alias_sensitivity = Deferred("octants.analysis.memory.alias_sensitivity")

LOG_ARGUMENTS = ("bounds", "starts", "words")
_WITH_ADJOINTS = " with adjoints "
_Made = TypeVar("_Made")


@dataclass(frozen=True)
class Facts:
    """The results of building a kernel that its launches need; the cache stores them.

    `arrays` equal those of its module, and `sources` is parallel to them; `written` are the
    positions of those whose primal contents a launch may change, without temporaries. `returns` has
    the types of the returned values, which are a tuple if `returns_tuple`. `hidden` are arguments
    that launches evaluate, after those of the user: numbers of Python that keep changing.
    `warnings` are about lines of the kernel.
    """

    arrays: tuple[Array, ...]
    sources: tuple[ArraySource, ...]
    returns: tuple[ScalarType, ...]
    returns_tuple: bool
    written: tuple[int, ...]
    hidden: tuple[HiddenArgument, ...] = ()
    warnings: tuple[Diagnostic, ...] = ()


_referent = weakref.ref.__call__


class HeldFields:
    """The fields that launches of a kernel use; `launch.gradients.taped_memory` owns `memories`."""

    __slots__ = ("__weakref__", "fields", "memories")

    def __init__(self, fields: list[Any]) -> None:
        self.fields = fields
        self.memories: Any = None


class NumberRead:
    """The read of a Python number, which does not keep its owner alive."""

    __slots__ = ("_owner", "key", "kind", "name", "value")

    def __init__(self, read: Read) -> None:
        self.key, self.kind, self.name, self.value = key_of(read), read.kind, read.name, read.value
        self._owner = weakly(read.owner)

    def now(self) -> Any:
        """The present value; the one at compilation if it cannot be read."""
        try:
            return value_now(self.kind, self._owner(), self.name)
        except Exception:  # the name is gone, or a property raises
            return self.value


class Specialisation:
    """A kernel compiled for one key of arguments.

    It keeps nothing alive that it was compiled for, neither the objects that the key names nor the
    fields that it uses: when one of them ends, the kernel forgets the specialisation. A caller that
    launches it without passing all of them, such as the reverse pass of a tape, must keep the
    result of `holding`.

    Attributes:
        kernel: The object that the user made of the function.
        arrays, sources, written, returns, returns_tuple, hidden: Those of `Facts`.
        key: The key of the arguments.
        held_alive: Objects without weak references, and fields that were made for the kernel.
        is_valid: Tells whether the globals that the kernel read still have the same values.
        guard: The conditions of `is_valid` in generated code.
        entry: The function of a warm call, by `recognition` of arguments with the same key.
        structs: The frozen dataclasses among the arguments.
        options: The options of `init`, with the number of the `device` that it runs on.
        number: The number of the last forward launch.
        born: The number of the last launch of any kernel before this one was compiled.
        numbers: The reads of numbers. The kernel is not specialised for those in `varying`, which
            launches `evaluate`.
        noalias: For a kernel that is differentiated: no two of its arrays or their companions share
            memory.
        derived: The variants, programs and facts that `derive` made, by their keys.
        fast_paths: What fast paths of launches have found out, by their keys.
    """

    noalias = True
    entry: Callable[..., Any] | None = None
    recognition: Recognition | None = None
    key: tuple[Any, ...] = ()

    def __init__(
        self,
        kernel: Any,
        signature: Signature,
        arguments: Sequence[Any],
        chosen: Options,
        varying: frozenset[ReadKey] = frozenset(),
    ) -> None:
        self.kernel = kernel
        self.signature = signature
        self.varying = varying
        self.count = len(arguments)
        leaves = signature.leaves()
        self.leaves = {(leaf.position, leaf.path): leaf for leaf in leaves}
        arrays = arrays_of_arguments(leaves, arguments)
        self._choose_device(chosen, common_device(signature.kernel, arrays))
        device = self.device
        self.kinds: dict[tuple[int, tuple[str, ...]], ArrayKind] = {
            key: kind_of(leaf.value(arguments), device) for key, leaf in self.leaves.items()
        }
        self.wants_graph: bool = kernel.wants_graph
        if self.wants_graph:
            _check_fits_graph(signature, leaves, self.kinds)
        self.held_alive: list[Any] = [
            _part_without_weak_reference(leaf.value(arguments)) for leaf in leaves
        ]
        self.structs = frozen_structs(leaves, arguments)
        self._leaf_types = [_leaf_type(leaf, leaf.value(arguments), device) for leaf in leaves]
        self._held: Callable[[], HeldFields | None] = _nothing
        self.number = 0
        self.given_in_segments: Callable[[], tuple[Any, ...] | None] = _nothing
        self.born = driver.last_number(length_hint(driver.state.numbers, -1))
        self.derived: dict[Any, Any] = {}
        self.fast_paths: dict[Any, Any] = {}
        self._make_module: Callable[[], Module] = self._build_again
        self._prefix: tuple[Any, ...] = ()
        reads = self._find_or_build()
        arrays += arrays_of_fields([array.name for array in self.arrays], self.sources)
        number = common_device(signature.kernel, arrays)
        if number != self.device.number:  # that of its fields
            built_for = build_environment(self.options)
            self._choose_device(chosen, number)
            if build_environment(self.options) != built_for:
                self.__dict__.pop("module", None)
                reads = self._find_or_build()
        warn_at_spans(self._facts.warnings)
        self.varying = frozenset(key_of(read) for read in reads if read.varies)
        self.numbers = [NumberRead(read) for read in reads if type(read.value) in (int, float)]
        self._take_hidden()
        self._watch(reads, arguments)
        driver.state.specialisations.add(self)  # not before: one that failed has no `arrays`
        _check_writable(self, arguments)

    def _choose_device(self, chosen: Options, number: int) -> None:
        """Run on the device with a number."""
        is_default = number == chosen.device
        self.options = chosen if is_default else options.replace(chosen, device=number)
        self.device = driver.device_at(number)

    def _take_hidden(self) -> None:
        """Append the hidden arguments to those of the user."""
        for each in self.hidden:
            leaf = Leaf(self.signature.kernel, "a global", self.count, (), ScalarType(each.dtype))
            self.leaves[self.count, ()], self.kinds[self.count, ()] = leaf, ""
            self.count += 1

    def _watch(self, reads: Sequence[Read], arguments: Sequence[Any]) -> None:
        """Generate the conditions of launches, and forget the kernel when an object that it needs
        ends.
        """
        leaves = zip(self.signature.leaves(), self._leaf_types, strict=True)
        templates = [leaf for leaf, give in leaves if isinstance(give(), TemplateValue)]
        values = [(leaf.value(arguments), leaf.expression) for leaf in templates]
        seen = KernelReads(reads, self.kernel.function, [value for value, _ in values])
        known = {id(value): name for value, name in values if reference_to(value) is not None}
        self.guard = _with_hidden(guard_terms(seen, known), hidden_terms(seen, self.hidden, known))
        terms = hidden_terms(seen, self.hidden)
        self.evaluate = make_evaluation(terms, self.hidden)
        self.is_valid = make_guard(_with_hidden(guard_terms(seen), terms))
        self.held_alive += seen.fields_held_weakly()
        forget = functools.partial(_forget, weakref.ref(self))
        self._ends = [
            weakref.ref(value, forget) for value in seen.ends() if reference_to(value) is not None
        ]

    @property
    def types(self) -> list[ArgumentType]:
        """The type of each parameter; the values of templates must be alive."""
        types: list[list[ArgumentType]] = [[] for _ in self.signature.annotations]
        for leaf, give in zip(self.signature.leaves(), self._leaf_types, strict=True):
            types[leaf.position].append(give())
        return list(map(build_argument, self.signature.annotations, types))

    def holding(self) -> HeldFields:
        """An object that keeps the fields alive that launches use."""
        held = self._held()
        if held is None:
            held = HeldFields(list(map(_referent, self.field_references)))
            self._held = weakref.ref(held)
        return held

    @cached_property
    def field_references(self) -> list[weakref.ref[Any]]:
        """Weak references to the fields whose addresses the kernel knows."""
        sources = [source for source in self.sources if isinstance(source, FieldSource)]
        return [source.reference for source in sources]

    # -- finding it in the cache, or building it -----------------------------------------------

    def _find_or_build(self) -> Sequence[Read]:
        """Load the kernel from the cache, or build it; return what it reads."""
        function: FunctionType = self.kernel.function
        returns, chosen = self.signature.returns, self.options
        self._cache_entry = open_entry(function, lambda: self.types, returns, chosen)
        facts, reads = self._load_from_cache() or self._build_from_source()
        self._take(facts)
        if self._cache_entry is not None:
            self._cache_entry.release()
        return reads

    def _load_from_cache(self) -> tuple[Facts, Sequence[Read]] | None:
        """Load the kernel from the cache; None if it is not there."""
        entry = self._cache_entry
        reads = None if entry is None else entry.find_reads()
        facts = None if entry is None or reads is None else entry.find("facts", None)
        if reads is None or facts is None:
            return None
        fits = make_guard(hidden_terms(KernelReads(reads, self.kernel.function, ()), facts.hidden))
        return (facts, reads) if fits is None or fits() else None

    def _build_from_source(self) -> tuple[Facts, Sequence[Read]]:
        """Build the kernel from its source."""
        built = self._build()
        self.module = built.module
        facts = _facts_of(built)
        if self._cache_entry is not None and not self._cache_entry.settle(built):
            self._cache_entry = None
        if self._cache_entry is not None:
            self._cache_entry.write_part("facts", facts, lambda _: None)
        return facts, built.reads

    def _build(self) -> Built:
        function: FunctionType = self.kernel.function
        returns = self.signature.returns
        with watched(function.__name__, "frontend"):
            return driver.build(function, self.types, returns, self.options, varying=self.varying)

    def _build_again(self) -> Module:
        """Build the module of a cached kernel, for something that is not in the cache."""
        with driver.state.compiling:
            built = self._build()
            if self._cache_entry is not None and not self._cache_entry.is_of(built):
                self._cache_entry = None  # what it reads has just changed
            return built.module

    def _take(self, facts: Facts) -> None:
        """Have the facts as attributes."""
        self._facts = facts
        self.arrays, self.sources, self.written = facts.arrays, facts.sources, facts.written
        self.returns, self.returns_tuple = facts.returns, facts.returns_tuple
        self.hidden = facts.hidden

    # -- what it is ----------------------------------------------------------------------------

    @cached_property
    def module(self) -> Module:
        """The kernel, lowered to tasks; built on demand, which launches never do."""
        return self._make_module()

    @cached_property
    def has_only_fields(self) -> bool:
        """Whether all arrays that the kernel uses are fields, which are the same at each launch."""
        pairs = zip(self.arrays, self.sources, strict=True)
        return all(each.space is Space.FIELD and isinstance(s, FieldSource) for each, s in pairs)

    def relies_on_memory_of(self, array: Any) -> bool:
        """Whether the kernel was built knowing that no ndarray is the memory of a field."""
        return any(map(has_memory_of_others, self.arrays)) and any(
            getattr(reference(), "primal", None) is array for reference in self.field_references
        )

    @cached_property
    def has_gradients(self) -> bool:
        """Whether an array that the kernel uses has a gradient."""
        return any(array.has(Companion.ADJOINT) for array in self.arrays)

    @cached_property
    def returned(self) -> tuple[int, ...]:
        """The positions of the arrays of the returned values, in order."""
        found = {
            source.position: number
            for number, source in enumerate(self.sources)
            if isinstance(source, ReturnSource)
        }
        return tuple(found[position] for position in sorted(found))

    # -- what is derived from it, and stored ---------------------------------------------------

    def derive(self, key: tuple[Any, ...], make: Callable[[], _Made]) -> _Made:
        """Make something of the kernel once for each key, in this process or an earlier one."""
        found: _Made | None = self.derived.get(key)
        if found is None:
            with driver.state.compiling, deep_recursion(self.signature.kernel), Uncollected():
                found = self.derived.get(key)  # another thread may have made it
                if found is None:
                    found = self.derived[key] = self._cached_or_made(key, make)
        return found

    def _cached_or_made(self, key: tuple[Any, ...], make: Callable[[], _Made]) -> _Made:
        part = " ".join(map(str, (*self._prefix, *key)))
        if self._cache_entry is None:
            return self._made(key, make)
        found: _Made | None = self._cache_entry.find(part, self._object)
        if found is None:
            found = self._made(key, make)
            if self._cache_entry is not None:
                write = functools.partial(self._cache_entry.write_part, part, found, self._name)
                unfinished = driver.unfinished()
                if unfinished:
                    configured_store.later([making.wait for making in unfinished], write)
                else:
                    write()
        return found

    def _made(self, key: tuple[Any, ...], make: Callable[[], _Made]) -> _Made:
        with watched(self.kernel.function.__name__, str(key[0])):
            return make()

    def _name(self, value: Any) -> str | None:
        """The name of an object that the cache stores by name."""
        if value is self:
            return "kernel"
        if isinstance(value, Specialisation):
            names = ((name, known) for name, known in self._clones() if known is value)
            return next(names, (None,))[0]
        is_primal = isinstance(value, BoundKernelCode) and value is self.derived.get(("primal",))
        return "primal" if is_primal else None

    def _object(self, name: str) -> Any:
        """The object with such a name."""
        if name == "primal":
            return self.primal
        of_kernel, _, positions = name.partition(_WITH_ADJOINTS)
        found = self if of_kernel == "kernel" else self.with_log
        return found.with_adjoints(tuple(map(int, positions.split()))) if positions else found

    def _clones(self) -> Iterator[tuple[str, Specialisation]]:
        """The clones that code in the cache may belong to, with their names there."""
        clones = {"kernel": self, "kernel with log": self.__dict__.get("with_log")}
        for name, clone in clones.items():
            if clone is not None:
                yield name, clone
                for positions, batched in clone._with_adjoints.items():
                    yield name + _WITH_ADJOINTS + " ".join(map(str, positions)), batched

    @cached_property
    def primal(self) -> BoundKernelCode:
        """The compiled kernel itself."""

        def make() -> BoundKernelCode:
            module = self.module
            disjoint = alias_sensitivity.disjoint_refs(module) if self.noalias else ()
            return BoundKernelCode(self, module, self.returned, disjoint=disjoint)

        return self.derive(("primal",), make)

    @cached_property
    def primal_of_aliases(self) -> BoundKernelCode:
        """The compiled kernel for launches whose arrays share memory, which `primal` refuses."""

        def make() -> BoundKernelCode:
            return BoundKernelCode(self, self.module, self.returned)

        return self.derive(("primal", "aliased"), make)

    @cached_property
    def launch(self) -> Callable[..., tuple[Any, ...]]:
        return self.primal.launch

    @cached_property
    def regions(self) -> Regions:
        """The elements that launches access, as a function of the arguments."""
        return self.derive(("regions",), lambda: self.make_regions(self.module))

    def leaf(self, position: int) -> Leaf:
        """The leaf of the argument that the array at ``position`` comes from."""
        source = self.sources[position]
        assert isinstance(source, ArgumentSource)
        return self.leaves[source.position, source.path]

    def make_regions(self, module: Module, reads: Collection[Operation] | None = None) -> Regions:
        """The elements that launches of a module over the kernel's arrays access, from the
        arguments.

        With ``reads`` only these operations count as reads.
        """

        def expression(array: Array) -> str:
            return self.leaf(module.arrays.index(array)).expression

        return accessed_regions.make_regions(
            module,
            self.count,
            expression,
            lambda array, axis: f"{expression(array)}.shape[{axis}]",
            reads,
        )

    # -- clones --------------------------------------------------------------------------------

    def with_module(self, key: tuple[Any, ...], make: Callable[[], Module]) -> Specialisation:
        """A clone for another module over the same arrays, which is made on demand."""
        clone = copy.copy(self)
        made = "module", "primal", "primal_of_aliases", "launch", "regions"
        for name in (*made, "with_log", "_with_adjoints"):
            clone.__dict__.pop(name, None)
        clone._make_module = make
        clone._prefix = (*self._prefix, *key)
        clone.derived, clone.fast_paths = {}, {}
        written = self.derive((*key, "written"), lambda: _positions_written(clone.module))
        clone._take(dataclasses.replace(self._facts, written=written))
        return clone

    @cached_property
    def with_log(self) -> Specialisation:
        """A clone with three more arguments: the arrays of a log."""
        clone = copy.copy(self)
        clone.__dict__.pop("_with_adjoints", None)
        kind: ArrayKind = "numpy" if self.device.shares_memory else "octants"
        added = clone._append_arguments([f"log {name}" for name in LOG_ARGUMENTS], kind)
        clone._take(dataclasses.replace(self._facts, sources=(*self.sources, *added)))
        return clone

    @cached_property
    def _with_adjoints(self) -> dict[tuple[int, ...], Specialisation]:
        """The clones of `with_adjoints`, by the positions."""
        return {}

    def with_adjoints(self, positions: tuple[int, ...]) -> Specialisation:
        """A clone whose launches are passed ndarrays with the adjoints of the arrays at positions.

        It owns reverse kernels for several adjoints.
        """
        if not positions:
            return self
        found = self._with_adjoints.get(positions)
        if found is None:
            clone = found = self._with_adjoints[positions] = copy.copy(self)
            clone.__dict__.pop("_with_adjoints")
            names = [f"adjoints of {self.arrays[k].name}" for k in positions]
            added = clone._append_arguments(names, "octants")
            clone._take(dataclasses.replace(self._facts, sources=(*self.sources, *added)))
        return found

    def with_arrays(
        self, key: tuple[Any, ...], make: Callable[[], Module], names: Sequence[str]
    ) -> Specialisation:
        """A clone for another module, which has more arrays behind those of this kernel.

        Args:
            key: The key of the clone in the cache.
            make: Makes the module, on demand.
            names: The names, in messages, of its additional ndarrays. Launches are passed these
                arrays, which are of Octants, after all other arguments.
        """
        clone = self.with_module(key, make)
        clone._held = _nothing
        given = iter(clone._append_arguments(names, "octants"))
        arrays = self.derive((*key, "arrays"), lambda: tuple(clone.module.arrays))
        sources: list[ArraySource] = list(self.sources)
        for array in arrays[len(sources) :]:
            inner = SharedSource() if array.space is Space.SHARED else TemporarySource()
            sources.append(next(given) if array.space is Space.NDARRAY else inner)
        clone._take(
            dataclasses.replace(clone._facts, arrays=arrays, sources=tuple(sources), hidden=())
        )
        return clone

    def _append_arguments(self, names: Sequence[str], kind: ArrayKind) -> list[ArgumentSource]:
        """Add arrays to the arguments of a clone."""
        first = self.count
        self.count = first + len(names)
        self.leaves, self.kinds = dict(self.leaves), dict(self.kinds)
        for position, name in enumerate(names, first):
            leaf = Leaf(self.signature.kernel, name, position, (), AnyTensor())
            self.leaves[position, ()], self.kinds[position, ()] = leaf, kind
        return [ArgumentSource(position) for position in range(first, self.count)]

    # -- launches ------------------------------------------------------------------------------

    def complete(self, arguments: tuple[Any, ...]) -> tuple[Any, ...]:
        """Append the hidden arguments to those of a launch."""
        return arguments if self.evaluate is None else (*arguments, *self.evaluate())

    def run(self, arguments: Sequence[Any]) -> Any:
        """Launch the kernel without a recorder."""
        self.number = number = next(driver.state.numbers)
        results = self.launch(driver.state.seed, number, 0, *arguments)
        return self.wrap(results) if results else None

    def wrap(self, results: tuple[Any, ...]) -> Any:
        """Make the returned value of the flat results."""
        device = self.device
        if device.shares_memory or device.pending:  # else reading the results has synchronised
            driver.state.synchronize()
        if len(results) == 1 and not self._rebuilds:
            return results[0]
        left = iter(results)
        kinds = self.signature.returns or self.returns
        values = [next_value(kind, left) for kind in kinds]
        return tuple(values) if self.returns_tuple else values[0]

    @cached_property
    def _rebuilds(self) -> bool:
        """Whether a single number is only part of the returned value."""
        kinds = self.signature.returns or self.returns
        is_number = all(isinstance(kind, ScalarType) and not kind.element_shape for kind in kinds)
        return self.returns_tuple or not is_number


def _check_fits_graph(
    signature: Signature,
    leaves: Sequence[Leaf],
    kinds: Mapping[tuple[int, tuple[str, ...]], ArrayKind],
) -> None:
    """Refuse arguments and results that ``graph=True`` does not allow."""
    if signature.returns:
        raise GraphReturns(signature.kernel).at()
    for leaf in leaves:
        is_array = not isinstance(leaf.annotation, ScalarType)
        if is_array and kinds[leaf.position, leaf.path] == "staged":
            raise HostArrayInGraph(signature.kernel, leaf.name).at()


def _nothing() -> None:
    """The result of a dead weak reference."""


def _with_hidden(guard: Terms, hidden: Terms) -> Terms:
    """Join conditions and scopes."""
    return [*guard[0], *hidden[0]], {**guard[1], **hidden[1]}


def _forget(reference: weakref.ref[Specialisation], _: Any) -> None:
    """Forget a specialisation because an object that it needs has ended."""
    specialisation = reference()
    if specialisation is not None:
        specialisation.kernel.forget(specialisation)


def _part_without_weak_reference(value: Any) -> Any:
    """The part of an argument that the key names by identity, and that has no weak reference."""
    parts = tuple(parts_of(value))
    if parts:
        return tuple(map(_part_without_weak_reference, parts))
    is_named = kind_of(value, driver.device()) == "" and not isinstance(
        value, (int, float, np.generic)
    )
    return value if is_named and reference_to(value) is None else None


def _facts_of(built: Built) -> Facts:
    module, sources = built.module, list(built.sources)
    sources += [TemporarySource()] * (len(module.arrays) - len(sources))
    return Facts(
        tuple(module.arrays),
        tuple(sources),
        built.return_types,
        built.returns_tuple,
        _positions_written(module),
        built.hidden,
        built.warnings,
    )


def _positions_written(module: Module) -> tuple[int, ...]:
    position = {array: number for number, array in enumerate(module.arrays)}
    return tuple(position[array] for array in written_arrays(module))


def _leaf_type(leaf: Leaf, value: Any, device: Device) -> Callable[[], ArgumentType]:
    """A function that returns the type of a leaf, and keeps no value of a template alive."""
    kind = argument_type(leaf, value, device)
    if not isinstance(kind, TemplateValue):
        return lambda: kind
    give = weakly(kind.value)
    return lambda: TemplateValue(give())


_READ_ONLY = (
    "the kernel writes this array, which is read-only",
    "pass a copy, `np.array(x)`; in programs of JAX use `octants.jax.function`",
)


def _check_writable(specialisation: Specialisation, arguments: Sequence[Any]) -> None:
    """Refuse read-only arrays that the kernel writes; being read-only is part of the key."""
    for position in specialisation.written:
        source = specialisation.sources[position]
        if isinstance(source, FieldSource) and is_read_only(source.field):
            kernel, name = specialisation.signature.kernel, specialisation.arrays[position].name
            raise WrongArgument(kernel, name, *_READ_ONLY).at()
        if specialisation.arrays[position].space is Space.NDARRAY:
            leaf = specialisation.leaf(position)
            if is_read_only(leaf.value(arguments)):
                raise leaf.error(*_READ_ONLY)
