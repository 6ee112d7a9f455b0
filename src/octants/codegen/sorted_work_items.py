"""Let the blocks of a GPU sort their work items, so that subgroups run loops of equal lengths.

A block takes a window of neighbouring work items, some for each thread, and sorts their numbers by
a key, the greatest first: it counts the items of each key in shared memory, adds up the counts, and
puts the number of each item where its key begins. Then its subgroups run the items in that order:
alternately from the first subgroup to the last one and back, so that all end at about the same
time. A launch with smaller blocks, where memory for records is short, does not sort. See
`analysis.control_flow.trip_count_keys`.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.analysis.control_flow.trip_count_keys import TripCountKey
from octants.codegen.function_emitter import ThreadFunction
from octants.codegen.instruction_writer import Operand, UnaddressedElement
from octants.ir.core import Task
from octants.types.scalars import f32, i32, i64, u1, u32

THREADS = 256
"""The threads of a block that sorts: as many as there are keys."""
_ITEMS = 4
"""The work items of a thread in a window, at most."""
SHARED_BYTES = 4 * THREADS * (1 + 2 * _ITEMS) + 16
_FRACTION = THREADS.bit_length() - 6
"""The bits of a key behind the exponent of its number, which is less than 2**31."""
_MANTISSA, _BIAS = 23, 127  # of an f32


def write(
    f: ThreadFunction,
    task: Task,
    key: TripCountKey,
    bounds: tuple[Operand, Operand],
    run: Callable[[Operand], None],
) -> None:
    """Write a loop over windows; ``run`` writes the work item with a number (i64)."""
    _Sorting(f, task, key, bounds).write(run)


class _Sorting:
    def __init__(
        self,
        f: ThreadFunction,
        task: Task,
        key: TripCountKey,
        bounds: tuple[Operand, Operand],
    ) -> None:
        self._f, self._task, self._key = f, task, key
        self._code = code = f.code
        self._first, self._upper = bounds
        self._own, self._threads = code.thread_in_block(), code.threads_in_block()
        self._one = code.constant(1, u32)
        self._start = code.variable(i64)  # the first item of the window
        self._counts = code.shared_array("key counts", u32, THREADS)
        self._keys = code.shared_array("keys", u32, THREADS * _ITEMS)
        self._differ = UnaddressedElement(
            code.shared_array("keys differ", u32, 1), code.constant(0, u32)
        )
        self._order = code.shared_array("order", u32, THREADS * _ITEMS)

    def write(self, run: Callable[[Operand], None]) -> None:
        code, threads = self._code, self._code.threads()
        one, most = code.constant(1, i64), code.constant(_ITEMS, i64)
        count = code.apply("sub", i64, self._upper, self._first)
        rounded = code.apply("add", i64, count, code.apply("sub", i64, threads, one))
        items = code.apply("quotient", i64, rounded, threads)  # of a thread
        items = code.choose(code.compare("lt", i64, items, most), i64, items, most)
        before = code.apply("sub", i64, code.thread(), code.convert(self._own, u32, i64))
        begin = code.apply("mul", i64, before, items)
        code.write(self._start, code.apply("add", i64, self._first, begin))
        step = code.apply("mul", i64, threads, items)
        self._size = code.apply("mul", u32, code.convert(items, i64, u32), self._threads)

        def window() -> None:
            self._sort()
            self._each(lambda at: self._run(at, run))
            code.write(self._start, code.apply("add", i64, code.read(self._start), step))

        code.loop(lambda: code.compare("lt", i64, code.read(self._start), self._upper), window)

    def _each(self, write: Callable[[Operand], None]) -> None:
        """Deal the positions of a window (u32) out to the threads."""
        code, position = self._code, self._code.variable(u32)
        code.write(position, self._own)

        def iterate() -> None:
            write(code.read(position))
            code.write(position, code.apply("add", u32, code.read(position), self._threads))

        code.loop(lambda: code.compare("lt", u32, code.read(position), self._size), iterate)

    def _item(self, position: Operand) -> Operand:
        """Return the number of the item at a position before sorting, i64."""
        code = self._code
        return code.apply("add", i64, code.read(self._start), code.convert(position, u32, i64))

    def _if_there(self, position: Operand, then: Callable[[], object]) -> None:
        """Write code for positions where there is an item, before sorting or after it."""
        code = self._code
        code.branch(code.compare("lt", i64, self._item(position), self._upper), then)

    # -- sorting ----------------------------------------------------------------------------------

    def _sort(self) -> None:
        """Compute the keys, and put the positions in order unless all keys are equal."""
        code, zero = self._code, self._code.constant(0, u32)
        code.store(UnaddressedElement(self._counts, self._own), u32, zero)
        code.store(self._differ, u32, zero)
        code.barrier("block")
        first = self._key_of(code.read(self._start))

        def compare(position: Operand) -> None:
            def note() -> None:
                key = self._key_of(self._item(position))
                code.store(UnaddressedElement(self._keys, position), u32, key)
                differs = code.compare("ne", u32, key, first)
                code.branch(differs, lambda: code.store(self._differ, u32, self._one))

            self._if_there(position, note)

        self._each(compare)
        code.barrier("block")
        differ = code.compare("ne", u32, code.load(self._differ, u32), zero)
        is_whole = code.compare("eq", u32, self._threads, code.constant(THREADS, u32))
        self._is_mixed = code.apply("and", u1, differ, is_whole)
        code.branch(self._is_mixed, self._order_positions)
        code.barrier("block")

    def _order_positions(self) -> None:
        self._each(lambda position: self._if_there(position, lambda: self._count(position)))
        self._code.barrier("block")
        self._add_up()
        self._each(lambda position: self._if_there(position, lambda: self._put(position)))

    def _count(self, position: Operand) -> Operand:
        """Count the key of a position; return how many there were, or where its first one goes."""
        code = self._code
        key = code.load(UnaddressedElement(self._keys, position), u32)
        return code.atomic("add", u32, UnaddressedElement(self._counts, key), self._one)

    def _put(self, position: Operand) -> None:
        target = UnaddressedElement(self._order, self._count(position))
        self._code.store(target, u32, position)

    def _key_of(self, item: Operand) -> Operand:
        """Return the key of an item, u32; that of the greatest number is the least.

        The keys of small numbers differ; of greater ones some have the same key.
        """
        code, f, (index,) = self._code, self._f, self._task.body.args
        f.bind(index, code.convert(item, i64, index.type))
        for op in self._key.slice:
            f.operation(op)
        bits = code.bitcast(code.convert(self._number(), i32, f32), f32, i32)
        scaled = code.apply("shr", i32, bits, code.constant(_MANTISSA - _FRACTION, i32))
        least = (_BIAS << _FRACTION) - 1
        low, high = code.constant(least, i32), code.constant(least + THREADS - 1, i32)
        scaled = code.choose(code.compare("gt", i32, scaled, low), i32, scaled, low)
        scaled = code.choose(code.compare("lt", i32, scaled, high), i32, scaled, high)
        return code.convert(code.apply("sub", i32, high, scaled), i32, u32)

    def _number(self) -> Operand:
        """Return what items are sorted by, i32; greater numbers count as the greatest."""
        code, f, end, start = self._code, self._f, self._key.end, self._key.start
        if start is None and end.type is i32:
            return f.use(end)
        number, zero = f.wide(end), code.constant(0, i64)
        if start is not None:
            number = code.apply("sub", i64, number, f.wide(start))
        most = code.constant((1 << 31) - 1, i64)
        number = code.choose(code.compare("gt", i64, number, zero), i64, number, zero)
        number = code.choose(code.compare("lt", i64, number, most), i64, number, most)
        return code.convert(number, i64, i32)

    def _add_up(self) -> None:
        """Replace each count by the sum of those before it, by doubling distances."""
        code, own = self._code, UnaddressedElement(self._counts, self._own)
        total, distance = code.variable(u32), code.variable(u32)
        count = code.load(own, u32)
        code.write(total, count)
        code.write(distance, self._one)

        def add() -> None:
            far = code.read(distance)
            is_there = code.compare("ge", u32, self._own, far)
            source = code.choose(is_there, u32, code.apply("sub", u32, self._own, far), self._own)
            other = code.load(UnaddressedElement(self._counts, source), u32)
            other = code.choose(is_there, u32, other, code.constant(0, u32))
            code.write(total, code.apply("add", u32, code.read(total), other))
            code.barrier("block")
            code.store(own, u32, code.read(total))
            code.barrier("block")
            code.write(distance, code.apply("add", u32, far, far))

        code.loop(
            lambda: code.compare("lt", u32, code.read(distance), code.constant(THREADS, u32)), add
        )
        code.store(own, u32, code.apply("sub", u32, code.read(total), count))
        code.barrier("block")

    # -- running ----------------------------------------------------------------------------------

    def _run(self, position: Operand, run: Callable[[Operand], None]) -> None:
        """Run the item at a position of the order; every other round goes backwards."""
        code = self._code
        number = code.apply("ushr", u32, position, code.constant(THREADS.bit_length() - 1, u32))
        bit = code.apply("and", u32, number, self._one)
        mirrored = code.apply("xor", u32, position, code.constant(THREADS - 1, u32))
        is_odd = code.compare("ne", u32, bit, code.constant(0, u32))
        position = code.choose(is_odd, u32, mirrored, position)

        def run_item() -> None:
            chosen = code.variable(u32)
            code.write(chosen, position)
            ordered = UnaddressedElement(self._order, position)
            code.branch(self._is_mixed, lambda: code.write(chosen, code.load(ordered, u32)))
            run(self._item(code.read(chosen)))

        self._if_there(position, run_item)
