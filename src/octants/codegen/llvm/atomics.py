"""Atomic updates: instructions where there are any, else loops of compare-and-exchange.

All are relaxed: they are updates of numbers, and order nothing else.
"""

from __future__ import annotations

from collections.abc import Callable

from octants.codegen.llvm import arithmetic, halves
from octants.codegen.llvm.function import FunctionText
from octants.codegen.llvm.memory import address
from octants.codegen.reductions import Collect, Deliver, neutral
from octants.ir import ops
from octants.types.scalars import DType, f16, f32, u1

_BOOL = {"add": "or", "sub": "xor", "mul": "and", "min": "and", "max": "or"}
_INTEGER = {"add": "add", "sub": "sub", "and": "and", "or": "or", "xor": "xor", "exchange": "xchg"}
_FLOAT = {"add": "fadd", "sub": "fsub", "exchange": "xchg"}


def atomic(f: FunctionText, op: ops.Atomic) -> None:
    """Bind the result to the value before, unless nobody wants it."""
    if op in f.collected:
        _collect_one(f, op)
        return
    place = address(f, op.array, op.companion, op.indices)
    if op.ref in f.sums:
        add_to(f, op, place, f.use(op.value))
        return
    f.bind(op.result, update(f, op.fn, op.array.dtype, place, f.use(op.value)))


def update(f: FunctionText, fn: str, dtype: DType, place: str, value: str) -> str:
    """Update a place; gives the value before."""
    if dtype is u1:
        return _bool(f, fn, place, value)
    instruction = _instruction(fn, dtype)
    if instruction is None:
        return _loop(f, fn, dtype, place, value)
    order = f"{f.order}, align {dtype.size}"
    return f.assign(f"atomicrmw {instruction} ptr {place}, {f.type(dtype)} {value} {order}")


def add_to(f: FunctionText, op: ops.Atomic, place: str, value: str) -> None:
    """Update a place plainly where workers are kept apart in this launch, else atomically."""
    dtype = op.array.dtype

    def plainly() -> None:
        suffix = f.kernel.scopes.suffix(op.ref)
        old = f.assign(f"load {f.type(dtype)}, ptr {place}, align {dtype.size}{suffix}")
        new = arithmetic.combine(f, op.fn, dtype, old, value)
        f.emit(f"store {f.type(dtype)} {new}, ptr {place}, align {dtype.size}{suffix}")

    either(f, plainly, lambda: update(f, op.fn, dtype, place, value))


def either(f: FunctionText, plainly: Callable[[], object], shared: Callable[[], object]) -> None:
    """Code for a launch in which workers are kept apart, and for one in which they are not."""
    alone, together, further = (f.fresh_label(hint) for hint in ("alone", "together", "further"))
    f.branch_if(f.shared, together, alone)
    for label, write in ((alone, plainly), (together, shared)):
        f.start(label)
        write()
        f.branch(further)
    f.start(further)


# -- reductions ---------------------------------------------------------------------------------


def collect(f: FunctionText, wanted: Collect) -> None:
    """Another variable says whether there were any updates."""
    reduction = wanted.reduction
    dtype = reduction.dtype
    total = f.once((reduction, "total"), f"alloca {f.type(dtype)}, align 8")
    any_ = f.once((reduction, "any"), "alloca i1, align 1")
    start = f.literal(neutral(reduction.fn, dtype), dtype)
    f.entry.append(f"  store {f.type(dtype)} {start}, ptr {total}, align 8")
    f.entry.append(f"  store i1 false, ptr {any_}, align 1")
    f.collected.update(dict.fromkeys(reduction.atomics, (total, any_)))


def _collect_one(f: FunctionText, op: ops.Atomic) -> None:
    total, any_ = f.collected[op]
    dtype = f32 if op.array.dtype is f16 else op.array.dtype
    old = f.assign(f"load {f.type(dtype)}, ptr {total}, align 8")
    new = arithmetic.combine(f, op.fn, dtype, old, f.use(op.value))
    f.emit(f"store {f.type(dtype)} {new}, ptr {total}, align 8")
    f.emit(f"store i1 true, ptr {any_}, align 1")


def deliver(f: FunctionText, wanted: Deliver, read: Callable[[str], str] | None = None) -> None:
    """``read`` gives what was collected from the place of the variable."""
    reduction = wanted.reduction
    dtype, (total, any_) = reduction.dtype, f.collected[reduction.atomics[0]]
    some, further = f.fresh_label("update"), f.fresh_label("further")
    f.branch_if(f.assign(f"load i1, ptr {any_}, align 1"), some, further)
    f.start(some)
    for op in reduction.recipe:
        f.table[type(op)](f, op)
    place = address(f, reduction.array, reduction.companion, reduction.indices)
    value = read(total) if read else f.assign(f"load {f.type(dtype)}, ptr {total}, align 8")
    update(f, reduction.fn, reduction.array.dtype, place, value)
    f.branch(further)
    f.start(further)


# -- instructions and loops ---------------------------------------------------------------------


def _instruction(fn: str, dtype: DType) -> str | None:
    if dtype.is_float:
        return None if dtype is f16 else _FLOAT.get(fn)
    if fn in ("min", "max"):
        return fn if dtype.is_signed else f"u{fn}"
    return _INTEGER.get(fn)


def _bool(f: FunctionText, fn: str, place: str, value: str) -> str:
    byte = f.assign(f"zext i1 {value} to i8")
    instruction = _INTEGER[_BOOL.get(fn, fn)]
    old = f.assign(f"atomicrmw {instruction} ptr {place}, i8 {byte} {f.order}, align 1")
    return f.assign(f"icmp ne i8 {old}, 0")


def _loop(f: FunctionText, fn: str, dtype: DType, place: str, value: str) -> str:
    """Compute the new value until nobody has changed the old one meanwhile, or there is none."""
    retry, done = f.fresh_label("retry"), f.fresh_label("done")
    bits = f"i{dtype.bits}"
    first = f.assign(f"load atomic {bits}, ptr {place} {f.order}, align {dtype.size}")
    before = f.label
    f.branch(retry)
    f.start(retry)
    expected = f.open_phi(bits)
    expected.incoming.append((first, before))
    old = _from_bits(f, dtype, expected.name)
    new = value if fn == "exchange" else arithmetic.combine(f, fn, dtype, old, value)
    bits_of_new = _to_bits(f, dtype, new)
    if fn in ("min", "max"):  # mostly the place has it already
        exchange = f.fresh_label("exchange")
        f.branch_if(f.apply("icmp eq", bits, bits_of_new, expected.name), done, exchange)
        f.start(exchange)
    found, swapped = _exchange(f, dtype, place, expected.name, bits_of_new)
    expected.incoming.append((found, f.label))
    f.close_phi(expected)
    f.branch_if(swapped, done, retry)
    f.start(done)
    return old


def _exchange(
    f: FunctionText, dtype: DType, place: str, expected: str, new: str
) -> tuple[str, str]:
    """Compare and exchange bits: what was found, and whether it was what was expected."""
    bits = f"i{dtype.bits}"
    pair = f.assign(
        f"cmpxchg ptr {place}, {bits} {expected}, {bits} {new} {f.order} monotonic,"
        f" align {dtype.size}"
    )
    found = f.assign(f"extractvalue {{ {bits}, i1 }} {pair}, 0")
    return found, f.assign(f"extractvalue {{ {bits}, i1 }} {pair}, 1")


def _to_bits(f: FunctionText, dtype: DType, x: str) -> str:
    if dtype is f16:
        return halves.to_integer(f, x)
    return f.assign(f"bitcast {f.type(dtype)} {x} to i{dtype.bits}") if dtype.is_float else x


def _from_bits(f: FunctionText, dtype: DType, x: str) -> str:
    if dtype is f16:
        return halves.from_integer(f, x)
    return f.assign(f"bitcast i{dtype.bits} {x} to {f.type(dtype)}") if dtype.is_float else x


def compare_exchange(f: FunctionText, op: ops.CompareExchange) -> None:
    """Bind the result to the value before."""
    place = address(f, op.array, op.companion, op.indices)
    found = exchange_if(f, op.array.dtype, place, f.use(op.expected), f.use(op.value))
    f.bind(op.result, found)


def exchange_if(f: FunctionText, dtype: DType, place: str, expected: str, value: str) -> str:
    """Store a value where another one is expected; gives the value before."""
    if dtype.is_float:
        return _float_compare_exchange(f, dtype, place, expected, value)
    if dtype is u1:
        expected, value = (f.convert("zext", "i1", x, "i8") for x in (expected, value))
        pair = f.assign(f"cmpxchg ptr {place}, i8 {expected}, i8 {value} {f.order} monotonic")
        return f.apply("icmp ne", "i8", f.assign(f"extractvalue {{ i8, i1 }} {pair}, 0"), 0)
    return _exchange(f, dtype, place, expected, value)[0]


def _float_compare_exchange(
    f: FunctionText, dtype: DType, place: str, expected: str, value: str
) -> str:
    """Numbers are compared, not bits: zeros are equal, a NaN is not."""
    retry, swap, done = (f.fresh_label(hint) for hint in ("retry", "swap", "done"))
    bits, register = f"i{dtype.bits}", f.type(dtype)
    first = f.assign(f"load atomic {bits}, ptr {place} {f.order}, align {dtype.size}")
    before = f.label
    f.branch(retry)
    f.start(retry)
    current = f.open_phi(bits)
    current.incoming.append((first, before))
    old = _from_bits(f, dtype, current.name)
    f.branch_if(f.assign(f"fcmp oeq {register} {old}, {expected}"), swap, done)
    f.start(swap)
    found, swapped = _exchange(f, dtype, place, current.name, _to_bits(f, dtype, value))
    current.incoming.append((found, f.label))
    f.close_phi(current)
    f.branch_if(swapped, done, retry)
    f.start(done)
    return old
