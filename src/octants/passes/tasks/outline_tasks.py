"""Cuts the body of a kernel into tasks: parallel loops and the serial stretches between them.

Before::

    kernel @k
    array @x: f32, 1, ndarray, () [primal]
    body {
      %0: i32 = constant<0>()
      %1: f32 = load<@x, primal>(%0)
      %2: i32 = shape<@x, 0>()
      parallel_for<{}>(%0, %2) { (%3: i32):
        store<@x, primal>(%1, %3)
        yield()
      }
      yield()
    }

After::

    kernel @k
    array @x: f32, 1, ndarray, () [primal]
    array @temporary_0: f32, 0, temporary, () [primal]
    serial @k_0 {
      %0: i32 = constant<0>()
      %1: f32 = load<@x, primal>(%0)
      store<@temporary_0, primal>(%1)
      yield()
    }
    parallel @k_1 {
      %2: i32 = constant<0>()
      %3: i32 = shape<@x, 0>()
      yield(%2, %3)
    } { (%4: i32):
      %5: f32 = load<@temporary_0, primal>()
      store<@x, primal>(%5, %4)
      yield()
    }

A value that a later task uses is recomputed there if it is cheap and depends on the launch alone
(constants, extents, arguments, integer arithmetic on them); any other travels in a launch-temporary
array. A float is never recomputed by arithmetic, so that each has one adjoint. One of f16 travels
as f32, since many work items may add to its adjoint.
"""

from __future__ import annotations

from octants.ir import ops
from octants.ir.core import (
    Array,
    Block,
    Companion,
    Module,
    Operation,
    Space,
    Task,
    Value,
    rebuild,
    replace_operands,
)
from octants.simplify.dead_code import prune_block
from octants.types.scalars import DType, register_type


def outline_tasks(module: Module) -> None:
    """Replace ``module.body`` by ``module.tasks``, in place."""
    assert module.body is not None
    _Outliner(module).run(module.body)
    module.body = None


class _Outliner:
    def __init__(self, module: Module) -> None:
        self.module = module
        self.segment_of: dict[Value, int] = {}
        self.definition: dict[Value, Operation] = {}
        self.operands: dict[Operation, list[Value]] = {}  # as they were before any was replaced
        self.cheap: set[Value] = set()
        self.temporaries: dict[Value, Array] = {}

    def run(self, body: Block) -> None:
        segments = _segments(body)
        for number, segment in enumerate(segments):
            for op in segment:
                self._note(op, number)
        tasks = [self._task(number, segment) for number, segment in enumerate(segments)]
        for number, task in enumerate(tasks):
            if not task.is_parallel:
                self._store_temporaries(task.body, number)
                task.body.ops.append(ops.Yield([]))
            if task.is_parallel or prune_block(task.body):
                self.module.tasks.append(task)

    def _note(self, op: Operation, number: int) -> None:
        for value in op.results:
            self.segment_of[value] = number
            self.definition[value] = op
            self.operands[op] = op.operands
            if self._is_cheap(op):
                self.cheap.add(value)

    def _is_cheap(self, op: Operation) -> bool:
        if isinstance(op, (ops.Constant, ops.Shape)):
            return True
        if isinstance(op, ops.Load):
            if op.array.space is not Space.ARGUMENT:
                return False
            return all(index in self.cheap for index in op.indices)
        if not op.is_pure or len(op.results) != 1 or op.result.type.is_float:
            return False
        return all(value in self.cheap and not value.type.is_float for value in op.operands)

    def _task(self, number: int, segment: list[Operation]) -> Task:
        """A segment as a task, with what it needs of earlier segments up front."""
        name = f"{self.module.name}_{number}"
        first = segment[0]
        if isinstance(first, ops.ParallelFor):
            return self._parallel(name, first, number)
        block = Block()
        self._import_into(segment, number, _Importer(self, block))
        block.ops.extend(segment)
        return Task(name, block, location=first.location)

    def _import_into(self, operations: list[Operation], number: int, imported: _Importer) -> None:
        for op in operations:
            _replace_operands(op, number, self.segment_of, imported)
            for region in op.regions:
                self._import_into(region.ops, number, imported)

    def _parallel(self, name: str, op: ops.ParallelFor, number: int) -> Task:
        domain, prologue = Block(), Block()
        bounds = _Importer(self, domain)
        domain_yield = ops.Yield([bounds.value(op.lower), bounds.value(op.upper)])
        domain.ops.append(domain_yield)
        self._import_into(op.body.ops, number, _Importer(self, prologue))
        op.body.ops[:0] = prologue.ops
        return Task(name, op.body, domain, location=op.location, options=op.options)

    def temporary(self, value: Value) -> Array:
        """The array in launch-temporary memory that carries a value to later tasks."""
        if value not in self.temporaries:
            array = Array(
                f"temporary_{len(self.temporaries)}",
                register_type(value.type),
                0,
                Space.TEMPORARY,
                layouts={Companion.PRIMAL: None},
            )
            self.temporaries[value] = array
            self.module.arrays.append(array)
        return self.temporaries[value]

    def _store_temporaries(self, block: Block, number: int) -> None:
        """Store right after its definition each value that a later segment loads."""
        stored: list[Operation] = []
        for op in block.ops:
            stored.append(op)
            for value in op.results:
                array = self.temporaries.get(value)
                if array is not None and self.segment_of.get(value) == number:
                    travelling = _converted(stored, value, array.dtype)
                    stored.append(ops.Store(array, Companion.PRIMAL, travelling, []))
        block.ops[:] = stored


class _Importer:
    """Brings values of earlier segments into a block, each once."""

    def __init__(self, outliner: _Outliner, block: Block) -> None:
        self._outliner = outliner
        self._block = block
        self._known: dict[Value, Value] = {}

    def value(self, value: Value) -> Value:
        if value not in self._known:
            self._known[value] = self._import(value)
        return self._known[value]

    def _import(self, value: Value) -> Value:
        """Define a value of another segment in this one: computed again if cheap, else loaded."""
        if value in self._outliner.cheap:
            definition = self._outliner.definition[value]
            operands = self._outliner.operands[definition]
            copy = rebuild(definition, [self.value(used) for used in operands])
        else:
            array = self._outliner.temporary(value)
            copy = ops.Load(array, Companion.PRIMAL, [], results=[Value(array.dtype, value.name)])
            self._block.ops.append(copy)
            return _converted(self._block.ops, copy.result, value.type)
        self._block.ops.append(copy)
        return copy.result


def _converted(code: list[Operation], value: Value, dtype: DType) -> Value:
    """A value as a type; the conversion, where it needs one, is appended to some code."""
    if value.type is dtype:
        return value
    cast = ops.Cast(value, results=[Value(dtype, value.name)])
    code.append(cast)
    return cast.result


def _segments(body: Block) -> list[list[Operation]]:
    """The operations of a body, without its yield, cut before and after each parallel loop."""
    segments: list[list[Operation]] = []
    for op in body.ops[:-1]:
        parallel = isinstance(op, ops.ParallelFor)
        if parallel or not segments or isinstance(segments[-1][0], ops.ParallelFor):
            segments.append([])
        segments[-1].append(op)
    return segments


def _replace_operands(
    op: Operation, number: int, segment_of: dict[Value, int], imported: _Importer
) -> None:
    def resolve(value: Value) -> Value:
        return imported.value(value) if segment_of.get(value, number) != number else value

    replace_operands(op, resolve)
