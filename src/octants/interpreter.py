"""Runs a module in plain Python: the living definition of every operation.

Slow and simple on purpose. Parallel loops run in order; a backend may run them in any order. Work
items that work together run side by side, in `block_interpreter`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from octants.abi import MAXIMUM_RECORD_BUFFER
from octants.block_interpreter import EndOfItem, run_blocks, undefined_arrays
from octants.ir import ops, scalar_semantics
from octants.ir.cooperative_tasks import cooperates, local_arrays
from octants.ir.core import (
    ArrayRef,
    Block,
    Companion,
    Module,
    Operation,
    Record,
    Space,
    Task,
    Value,
)
from octants.ir.random_draws import drawn, stream
from octants.mathlib.evaluate_with_numpy import evaluate
from octants.mathlib.function_registry import function
from octants.types.scalars import convert

Storage = dict[ArrayRef, "np.ndarray[Any, Any]"]


class AssertionFailed(Exception):
    """An `assert` operation whose condition did not hold."""


class Overflow(EndOfItem):
    """A `record_check` of a work item whose loop takes more iterations than its record holds."""

    def __init__(self, record: Record, count: int) -> None:
        super().__init__(record.name, count)
        self.record = record
        self.count = count
        self.item = 0


class Interpreter:
    """The state of a launch: the arrays, the record buffer of the current work item, messages."""

    def __init__(
        self, storage: Storage, seed: int = 0, launch: int = 0, share: int = MAXIMUM_RECORD_BUFFER
    ) -> None:
        self.storage = storage
        self.seed = seed
        self.launch = launch
        self.share = share
        self.printed: list[tuple[ops.Print, str]] = []
        self.record_buffer: dict[tuple[int, Record, int], list[Any]] = {}
        self.record_buffer_bytes = 0
        self.overflows: list[Overflow] = []

    def run(self, module: Module) -> None:
        if module.body is not None:
            self.block(module.body, {})
        for task in module.tasks:
            if task.domain is None:
                self.items(task, [{}])
                continue
            environment: dict[Value, Any] = {}
            self.block(task.domain, environment)
            lower, upper, *uniforms = (environment[value] for value in task.domain.yielded)
            starts = ([index, *uniforms] for index in range(lower, upper))
            self.items(task, (dict(zip(task.body.args, start, strict=True)) for start in starts))

    def items(self, task: Task, environments: Iterable[dict[Value, Any]]) -> None:
        """The work items of a task, of which each starts with some values."""
        if cooperates(task):
            run_blocks(self, task, environments)
            return
        own = local_arrays(task)
        for environment in environments:
            self.storage.update(undefined_arrays(own))
            self.item(task.body, environment)

    def item(self, body: Block, environment: dict[Value, Any]) -> None:
        """One work item, with a record buffer of its own."""
        self.record_buffer = {}
        try:
            self.block(body, environment)
        except Overflow as overflow:
            self.end_early(overflow, environment, body)

    def end_early(self, error: EndOfItem, environment: dict[Value, Any], body: Block) -> None:
        """Note why a work item has ended before its time."""
        assert isinstance(error, Overflow)
        error.item = environment[body.args[0]] if body.args else 0
        self.overflows.append(error)

    def execute(self, op: Operation, environment: dict[Value, Any]) -> None:
        HANDLERS[type(op)](self, op, environment)

    def block(self, block: Block, environment: dict[Value, Any]) -> list[Any]:
        for op in block.ops:
            HANDLERS[type(op)](self, op, environment)
        return [environment[value] for value in block.yielded]


def _constant(_: Interpreter, op: ops.Constant, env: dict[Value, Any]) -> None:
    env[op.result] = op.value


def _unary(_: Interpreter, op: ops.Unary, env: dict[Value, Any]) -> None:
    env[op.result] = evaluate(op.fn, op.x.type, env[op.x])


def _binary(_: Interpreter, op: ops.Binary | ops.Compare, env: dict[Value, Any]) -> None:
    env[op.result] = evaluate(op.fn, op.lhs.type, env[op.lhs], env[op.rhs])


def _fma(_: Interpreter, op: ops.Fma, env: dict[Value, Any]) -> None:
    env[op.result] = scalar_semantics.fma(op.result.type, env[op.x], env[op.y], env[op.z])


def _select(_: Interpreter, op: ops.Select, env: dict[Value, Any]) -> None:
    env[op.result] = env[op.on_true] if env[op.condition] else env[op.on_false]


def _extract(_: Interpreter, op: ops.Extract, env: dict[Value, Any]) -> None:
    index = env[op.index]
    env[op.result] = env[op.components[index if 0 <= index < len(op.components) else 0]]


def _insert(_: Interpreter, op: ops.Insert, env: dict[Value, Any]) -> None:
    values = [env[value] for value in op.components]
    if 0 <= env[op.index] < len(values):
        values[env[op.index]] = env[op.value]
    env.update(zip(op.results, values, strict=True))


def _cast(_: Interpreter, op: ops.Cast, env: dict[Value, Any]) -> None:
    env[op.result] = convert(env[op.x], op.result.type)


def _bitcast(_: Interpreter, op: ops.Bitcast, env: dict[Value, Any]) -> None:
    env[op.result] = scalar_semantics.bitcast(env[op.x], op.x.type, op.result.type)


def _random_stream(self: Interpreter, op: ops.RandomStream, env: dict[Value, Any]) -> None:
    env[op.result] = stream(self.seed, self.launch, op.task, env[op.item])


def _random(_: Interpreter, op: ops.Random, env: dict[Value, Any]) -> None:
    env[op.result] = drawn(op.result.type, env[op.stream], env[op.draw])


def _call(self: Interpreter, op: ops.Call, env: dict[Value, Any]) -> None:
    block = function(op.fn, op.given[0].type).block
    given = dict(zip(block.args, (env[value] for value in op.given), strict=True))
    (env[op.result],) = self.block(block, given)


def _float_to_int(_: Interpreter, op: ops.FloatToInt, env: dict[Value, Any]) -> None:
    env[op.result] = convert(env[op.x], op.result.type)
    if env[op.result] != int(env[op.x]):
        raise ArithmeticError(f"{env[op.x]} as {op.result.type} is not defined")


def _launch_constant(self: Interpreter, op: ops.LaunchConstant, env: dict[Value, Any]) -> None:
    env[op.result] = convert({"seed": self.seed, "launch": self.launch}[op.name], op.result.type)


def _custom_derivative(_: Interpreter, op: ops.CustomDerivative, env: dict[Value, Any]) -> None:
    env.update((result, env[value]) for result, value in zip(op.results, op.values, strict=True))


def _for(self: Interpreter, op: ops.For, env: dict[Value, Any]) -> None:
    carried = [env[value] for value in op.inits]
    for counter in range(env[op.lower], env[op.upper]):
        env.update(zip(op.body.args, [counter, *carried], strict=True))
        carried = self.block(op.body, env)
    env.update(zip(op.results, carried, strict=True))


def _while(self: Interpreter, op: ops.While, env: dict[Value, Any]) -> None:
    carried = [env[value] for value in op.inits]
    while True:
        env.update(zip(op.condition.args, carried, strict=True))
        if not self.block(op.condition, env)[0]:
            break
        env.update(zip(op.body.args, carried, strict=True))
        carried = self.block(op.body, env)
    env.update(zip(op.results, carried, strict=True))


def _if(self: Interpreter, op: ops.If, env: dict[Value, Any]) -> None:
    values = self.block(op.then if env[op.condition] else op.orelse, env)
    env.update(zip(op.results, values, strict=True))


def _parallel_for(self: Interpreter, op: ops.ParallelFor, env: dict[Value, Any]) -> None:
    task = Task("", op.body, Block(), op.location, op.options)
    indices = range(env[op.lower], env[op.upper])
    self.items(task, ({**env, op.body.args[0]: index} for index in indices))


def _element(
    self: Interpreter, op: Any, env: dict[Value, Any]
) -> tuple[np.ndarray[Any, Any], tuple[int, ...]]:
    """The array and the position that an access means; an index out of range is an error."""
    data = self.storage[op.ref.whole]
    position = tuple(env[index] for index in op.indices)
    for index, extent in zip(position, data.shape, strict=True):
        if not 0 <= index < extent:
            raise IndexError(f"{op.array.name}{list(position)} of shape {data.shape}")
    return data, position


def _load(self: Interpreter, op: ops.Load, env: dict[Value, Any]) -> None:
    data, position = _element(self, op, env)
    env[op.result] = data[position].item()


def _store(self: Interpreter, op: ops.Store, env: dict[Value, Any]) -> None:
    data, position = _element(self, op, env)
    data[position] = env[op.value]


def _atomic(self: Interpreter, op: ops.Atomic, env: dict[Value, Any]) -> None:
    data, position = _element(self, op, env)
    before, value = data[position].item(), env[op.value]
    after = value
    if op.fn != "exchange":
        after = scalar_semantics.evaluate(op.fn, op.array.dtype, before, value)
    data[position] = after
    env[op.result] = before


def _compare_exchange(self: Interpreter, op: ops.CompareExchange, env: dict[Value, Any]) -> None:
    data, position = _element(self, op, env)
    env[op.result] = data[position].item()
    if env[op.result] == env[op.expected]:
        data[position] = env[op.value]


def _shape(self: Interpreter, op: ops.Shape, env: dict[Value, Any]) -> None:
    env[op.result] = int(self.storage[ArrayRef(op.array.whole, Companion.PRIMAL)].shape[op.axis])


def _print(self: Interpreter, op: ops.Print, env: dict[Value, Any]) -> None:
    values = iter(op.values)
    pieces = [p if isinstance(p, str) else _format(next(values), env, p[0]) for p in op.parts]
    self.printed.append((op, "".join(pieces)))


def _format(value: Value, env: dict[Value, Any], specification: str) -> str:
    return scalar_semantics.format_number(env[value], value.type, specification)


def _assert(_: Interpreter, op: ops.Assert, env: dict[Value, Any]) -> None:
    if not env[op.condition]:
        raise AssertionFailed(op.message.format(*(env[value] for value in op.values)))


def _record_push(self: Interpreter, op: ops.RecordPush, env: dict[Value, Any]) -> None:
    if 0 < op.record.capacity <= env[op.index]:
        return
    self.record_buffer[_base(op, env), op.record, env[op.index]] = [
        env[value] for value in op.values
    ]
    end = env[op.base] + (env[op.index] + 1) * op.record.stride
    self.record_buffer_bytes = max(self.record_buffer_bytes, end)


def _record_pop(self: Interpreter, op: ops.RecordPop, env: dict[Value, Any]) -> None:
    index, capacity = env[op.index], op.record.capacity
    if capacity and not 0 <= index < capacity:
        index = capacity - 1
    env.update(zip(op.results, self.record_buffer[_base(op, env), op.record, index], strict=True))


def _record_end(_: Interpreter, op: ops.RecordEnd, env: dict[Value, Any]) -> None:
    env[op.result] = env[op.base] + env[op.count] * op.record.stride


def _record_capacity(self: Interpreter, op: ops.RecordCapacity, env: dict[Value, Any]) -> None:
    stride = op.record.stride
    left = max(0, self.share - env[op.taken])
    env[op.result] = max(1, left // (op.parts * stride)) if stride else MAXIMUM_RECORD_BUFFER


def _longest(_: Interpreter, op: ops.Longest, env: dict[Value, Any]) -> None:
    env[op.result] = env[op.count]


def _record_reserve(self: Interpreter, op: ops.RecordReserve, env: dict[Value, Any]) -> None:
    self.record_buffer_bytes = max(self.record_buffer_bytes, env[op.end])


def _record_check(_: Interpreter, op: ops.RecordCheck, env: dict[Value, Any]) -> None:
    if env[op.count] > op.record.capacity:
        raise Overflow(op.record, env[op.count])


def _base(op: ops.RecordPush | ops.RecordPop, env: dict[Value, Any]) -> Any:
    """The position where an execution begins; local records hold one at a time."""
    if not op.record.local:
        return env[op.base]
    if not 0 <= env[op.index] < op.record.local:
        raise IndexError(f"iteration {env[op.index]} of {op.record.local} that are local")
    return 0


def _nothing(_: Interpreter, op: ops.Fence | ops.ActAs, env: dict[Value, Any]) -> None:
    """All work items see one memory; an assertion that fails does not say whose it was."""


def _yield(_: Interpreter, op: ops.Yield, env: dict[Value, Any]) -> None:
    """Its operands are read by the operation that holds the block."""


HANDLERS: dict[type[Operation], Callable[..., None]] = {
    ops.Constant: _constant,
    ops.Unary: _unary,
    ops.Binary: _binary,
    ops.Fma: _fma,
    ops.Compare: _binary,
    ops.Select: _select,
    ops.Extract: _extract,
    ops.Insert: _insert,
    ops.Cast: _cast,
    ops.Bitcast: _bitcast,
    ops.Random: _random,
    ops.RandomStream: _random_stream,
    ops.Call: _call,
    ops.FloatToInt: _float_to_int,
    ops.LaunchConstant: _launch_constant,
    ops.CustomDerivative: _custom_derivative,
    ops.For: _for,
    ops.While: _while,
    ops.If: _if,
    ops.ParallelFor: _parallel_for,
    ops.Load: _load,
    ops.Store: _store,
    ops.Atomic: _atomic,
    ops.CompareExchange: _compare_exchange,
    ops.Shape: _shape,
    ops.Print: _print,
    ops.Assert: _assert,
    ops.RecordPush: _record_push,
    ops.RecordPop: _record_pop,
    ops.RecordEnd: _record_end,
    ops.RecordReserve: _record_reserve,
    ops.RecordCapacity: _record_capacity,
    ops.Longest: _longest,
    ops.RecordCheck: _record_check,
    ops.Fence: _nothing,
    ops.ActAs: _nothing,
    ops.Yield: _yield,
}


def run(
    module: Module,
    arrays: Mapping[Any, np.ndarray[Any, Any]],
    seed: int = 0,
    launch: int = 0,
    share: int = MAXIMUM_RECORD_BUFFER,
) -> Interpreter:
    """Run a module on numpy arrays, in place; returns the interpreter, with what was printed.

    ``arrays`` maps an array's name, or (name, `Companion`), to its data, whose shape is that of the
    array followed by that of its element; a scalar argument is an array of shape (). Temporaries
    and return values that are not given are made, as zeros; they end up in ``Interpreter.storage``.
    ``share`` is in bytes: what the records of a work item should take.
    """
    by_name = {array.name: array for array in module.arrays}
    storage: Storage = {}
    for key, data in arrays.items():
        name, companion = (key, Companion.PRIMAL) if isinstance(key, str) else key
        storage[ArrayRef(by_name[name], companion)] = data
    for array in module.arrays:
        if array.space in (Space.TEMPORARY, Space.RETURN, Space.ARGUMENT):
            for companion in array.layouts:
                if (array, companion) not in storage:
                    extents = (0,) * array.rank
                    if array.like is not None:
                        other, axis = array.like
                        extents = (storage[ArrayRef(other, Companion.PRIMAL)].shape[axis],)
                    shape = extents + array.element_shape
                    storage[ArrayRef(array, companion)] = np.zeros(shape, array.dtype.numpy)
    interpreter = Interpreter(storage, seed, launch, share)
    interpreter.run(module)
    return interpreter
