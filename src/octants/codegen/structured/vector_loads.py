"""Write loops with loads of 16 bytes: see `codegen.vector_loads`.

Loads are combined within an iteration where subgroups exchange factors. Where they exchange
products, a thread has no registers left for that.

A driver's compiler moves no load to an earlier iteration. So long loops run in chunks of four
iterations, each of which begins with all loads, also those of single elements. Where an iteration
loads few bytes, and few work items leave many registers for each, a chunk has eight iterations.
Local vectors that such a loop reads are arrays of four elements each. With few work items, no sum
of a chunk comes before its loads. Where subgroups exchange factors, blocks share memory, so that
the compiler gives a thread more registers: there it may unroll the loop, and order the loads.
"""

from __future__ import annotations

from octants.analysis.floats.slow_paths import is_unbounded_sine
from octants.codegen import record_buffer_access
from octants.codegen.adjacent_loads import (
    ITERATIONS,
    Rows,
    find_pieces,
    find_rows,
    is_long_and_quick,
    loaded_bytes,
    local_rows,
)
from octants.codegen.instruction_writer import Operand
from octants.codegen.memory import address_of
from octants.codegen.structured.control_flow import bind_all, write_all, write_for
from octants.codegen.structured.function_emitter import StructuredFunction
from octants.codegen.vector_loads import is_aligned, several_iterations, write_twice
from octants.ir import ops
from octants.ir.cooperative_tasks import local_arrays, nbytes
from octants.ir.core import Operation, Task

_MORE = 2 * ITERATIONS
"""Iterations whose loads a loop begins with where a thread has the registers."""
_MOST_BYTES = 64
"""The most bytes of an iteration's loads that are single elements."""
_FEW_BYTES, _FEW_ITEMS = 32, 1 << 14
"""The bytes of all loads of an iteration, and the work items, that leave these registers."""
_MOST_LOCAL = 5 << 10
"""The most bytes of a work item's local memory with which an H200 has a subgroup's in the cache."""


def for_(body: StructuredFunction, op: ops.For) -> None:
    """Write a loop in chunks, or with vector loads, if it qualifies, or as elsewhere."""
    has_vectors = body.code.loads_four_words and not _has_slow_paths(body, op)
    rows = find_rows(body, op) if has_vectors else {}
    if rows or (has_vectors and is_long_and_quick(body, op) and _loads(op)):
        _in_chunks(body, op, rows)
    elif pieces := find_pieces(body, op) if has_vectors and body.products else {}:
        write_twice(body, op, pieces, lambda: _as_elsewhere(body, op))
    else:
        _as_elsewhere(body, op)


def _has_slow_paths(body: StructuredFunction, op: ops.For) -> bool:
    """Return whether a chunk would have several copies of a long slow path.

    The driver's compiler copies functions to their calls. Those of gradients pay.
    """
    return not body.products and any(map(is_unbounded_sine, op.body.ops))


def _as_elsewhere(body: StructuredFunction, op: ops.For) -> None:
    """Write a loop as it is. Its pushes are reserved before."""
    record_buffer_access.reserve(body, op, runs=False)
    write_for(body, op, body.block, body.condition)


def _loads(op: ops.For) -> list[ops.Load]:
    """Return the loads whose indices do not depend on what the loop carries.

    There are none if none is global, or if a thread has no registers for those of iterations.
    """
    late = set(op.body.args[1:])
    found: list[ops.Load] = []
    for each in op.body.ops:
        if not late.isdisjoint(each.operands):
            late.update(each.results)
        elif isinstance(each, ops.Load):
            found.append(each)
    return found if 0 < sum(map(loaded_bytes, found)) <= _MOST_BYTES else []


def _in_chunks(body: StructuredFunction, op: ops.For, rows: Rows) -> None:
    """Write a loop over chunks of iterations, and the remaining ones.

    These are a loop, unless it is known how many there are.
    """
    code, dtype = body.code, op.lower.type
    loads = _Loads(body, op, rows)
    count, orders_loads = loads.iterations, loads.orders_loads
    counter, *carried = variables = [body.variable(arg) for arg in op.body.args]
    lower, upper = body.use(op.lower), body.use(op.upper)
    write_all(body, variables, [lower, *(body.use(init) for init in op.inits)])
    end = code.apply("and", dtype, upper, code.constant(-count, dtype))
    aligned = is_aligned(body, op, rows, count)
    if aligned is not None:
        end = code.choose(aligned, dtype, end, lower)

    def iterate(number: Operand) -> None:
        body.bind(op.body.args[0], number)
        bind_all(body, op.body.args[1:], carried)
        write_all(body, carried, body.block(op.body))

    def chunk(number: Operand, length: int) -> None:
        numbers = [body.add(number, body.number(k, dtype), dtype) for k in range(length)]
        loaded = loads.of(numbers)

        def iterate_loaded(k: int) -> None:
            if k == 0 and orders_loads and loads.has_few_items:
                code.hold_loads()
            body.loaded.update(loaded[k])
            iterate(numbers[k])

        several_iterations(body, rows, number, dtype, iterate_loaded, length)

    def advance(number: Operand, iterations: int) -> None:
        step = body.number(iterations, dtype)
        if dtype.bits == 32 and orders_loads:  # else the driver unrolls the loop
            step = code.opaque(step, dtype)
        code.write(counter, code.apply("add", dtype, number, step))

    def whole() -> None:
        number = code.read(counter)
        chunk(number, count)
        advance(number, count)

    def one() -> None:
        number = code.read(counter)
        iterate(number)
        advance(number, 1)

    code.loop(lambda: code.compare("lt", dtype, code.read(counter), end), whole)
    known = code.known(upper)
    if known is None or aligned is not None or (rows and known % count):
        code.loop(lambda: code.compare("lt", dtype, code.read(counter), upper), one)
    elif known % count:
        chunk(body.number(known - known % count, dtype), known % count)
    bind_all(body, op.results, carried)


class _Loads:
    """The loads of a loop that come before the iterations of a chunk, besides those of rows."""

    def __init__(self, body: StructuredFunction, op: ops.For, rows: Rows) -> None:
        self._body, self._counter = body, op.body.args[0]
        in_rows = {load for loads in rows.values() for load in loads}
        found = [load for load in _loads(op) if load not in in_rows]
        self._fours = [load for load in local_rows(op) if load.ref in body.local_rows]
        self._single = [load for load in found if load not in self._fours]
        self._operations = _with_indices(op, self._single)
        nbytes = sum(row.stride for row in rows) + sum(map(loaded_bytes, found))
        task = body.kernel.module.tasks[body.task]
        self.has_few_items = ops.has_few_items(task, _FEW_ITEMS)
        has_registers = nbytes <= _FEW_BYTES and self.has_few_items
        self.iterations = _MORE if has_registers else ITERATIONS
        self.orders_loads = not body.products or _local_bytes(task) > _MOST_LOCAL
        """Whether no loop is unrolled, and no sum precedes the loads of its chunk."""

    def of(self, numbers: list[Operand]) -> list[dict[Operation, Operand]]:
        """Write those of iterations, of which the first one is a multiple of four."""
        loaded: list[dict[Operation, Operand]] = []
        for k, number in enumerate(numbers):
            self._body.bind(self._counter, number)
            if k % ITERATIONS == 0:
                fours = {load: self._four(load) for load in self._fours}
            for each in self._operations:
                self._body.operation(each)
            loaded.append({load: self._body.use(load.result) for load in self._single})
            loaded[k].update((load, words[k % ITERATIONS]) for load, words in fours.items())
        return loaded

    def _four(self, load: ops.Load) -> list[Operand]:
        address = address_of(self._body, load.array, load.companion, load.indices)
        return self._body.code.load_four_words(address, load.array.dtype)


def _local_bytes(task: Task) -> int:
    """Return the bytes of a work item's local vectors and records."""
    records = {op.record for op in task.body.walk() if isinstance(op, ops.RecordAccess)}
    recorded = (each.local * sum(slot.size for slot in each.slots) for each in records)
    return sum(map(nbytes, local_arrays(task))) + sum(recorded)


def _with_indices(op: ops.For, loads: list[ops.Load]) -> list[Operation]:
    """Return loads of an iteration, and what it computes of their indices, in order."""
    found = list[Operation]()
    needed = {value for load in loads for value in load.results}
    for each in reversed(op.body.ops):
        if not needed.isdisjoint(each.results):
            found.append(each)
            needed.update(each.operands)
    return found[::-1]
