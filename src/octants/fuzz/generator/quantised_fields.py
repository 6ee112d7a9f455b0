"""Quantised fields: integers, fixed-point numbers and floats of a few bits that share words."""

from __future__ import annotations

from octants.fuzz.generator.context import ArrayInfo, Productions, Shared
from octants.fuzz.generator.integer_widths import HIGH, LOW

WORD = 64  # bits


def declare(shared: Shared) -> list[str]:
    """Make fields that share a word, and now and then a `quant_array`."""
    lines = _word(shared)
    if shared.rng.random() < 0.5:
        lines += _array(shared)
    return lines


def _word(shared: Shared) -> list[str]:
    rng = shared.rng
    left, lines = WORD, []
    fields: list[ArrayInfo] = []
    together = _floats_together(shared) if rng.random() < 0.4 else None
    if together is not None:
        left -= together[0]
    while left >= 7 and len(fields) < rng.randint(2, 4):
        make = rng.choice([_integer, _integer, _fixed, _fixed, _float])
        size = 2 if make is _fixed and left >= 30 and rng.random() < 0.3 else 1
        bits, array, kind = make(shared, min(left // size, 40))
        array.shape = shared.arrays[0].shape
        array.element_shape = (size,) if size > 1 else ()
        maker = f"qd.Vector.field({size}, {kind})" if size > 1 else f"qd.field({kind})"
        lines.append(f"{array.name} = {maker}")
        fields.append(array)
        left -= bits * size
    shared.arrays += fields
    word = shared.fresh("W")
    lines.append(f"{word} = qd.BitpackedFields(max_num_bits={WORD})")
    lines.append(f"{word}.place({', '.join(array.name for array in fields)})")
    if together is not None:
        _, array, kind = together
        array.shape = shared.arrays[0].shape
        shared.arrays.append(array)
        lines.append(f"{array.name} = qd.Vector.field(2, {kind})")
        lines.append(f"{word}.place({array.name}, shared_exponent=True)")
    lines.append(f"qd.root.dense(qd.i, {shared.arrays[0].shape[0]}).place({word})")
    shared.features["fields in a word"] += 1
    return lines


def _array(shared: Shared) -> list[str]:
    rng, (first, *_) = shared.rng, shared.arrays[0].shape
    make = rng.choice([_integer, _fixed])
    count = 2 if first > 6 else first
    _, array, kind = make(shared, 32 // count)
    array.shape = (first, count) if first > 6 else (first,)
    shared.arrays.append(array)
    shared.features["quant_array"] += 1
    tree = f"qd.root.dense(qd.i, {first}).quant_array(qd.j, {count}, max_num_bits=32)"
    if first <= 6:
        tree = f"qd.root.quant_array(qd.i, {count}, max_num_bits=32)"
    return [f"{array.name} = qd.field({kind})", f"{tree}.place({array.name})"]


Made = tuple[int, ArrayInfo, str]
"""How many bits an element has, a field without a shape, and its type."""


def _integer(shared: Shared, most: int) -> Made:
    """Integers, whose updates wrap around; `content` keeps their inputs in range."""
    rng = shared.rng
    bits, signed = rng.randint(1, min(most, 31)), rng.random() < 0.5
    name = shared.fresh("q")
    array = ArrayInfo(name, "w", (), (), True, LOW, HIGH, dtype="qd.i32", has_grad=False)
    array.limits = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    array.is_made = True
    shared.features[f"quantised integers, {'' if signed else 'un'}signed"] += 1
    return bits, array, f"qd.types.quant.int({bits}, {signed})"


def _fixed(shared: Shared, most: int) -> Made:
    """Fixed-point numbers: sums of them are exact, so that their order does not matter."""
    rng = shared.rng
    bits, signed = rng.randint(4, min(most, 24)), rng.random() < 0.7
    largest = rng.choice([1.0, 2.0, 3.0, 8.0])
    name, low = shared.fresh("q"), -largest if signed else 0.0
    array = ArrayInfo(name, "d", (), (), True, low, largest, dtype="qd.f32", has_grad=False)
    array.is_made, array.updates = True, ("add", "min", "max")
    shared.features["fixed-point numbers"] += 1
    return bits, array, f"qd.types.quant.fixed({bits}, {signed}, max_value={largest})"


def _float(shared: Shared, most: int) -> Made:
    """Floats, each of which a work item has for itself: sums of them are rounded."""
    rng = shared.rng
    exponent = rng.randint(5, min(7, most - 2))
    fraction = rng.randint(2, min(22, most - exponent))
    name = shared.fresh("q")
    array = ArrayInfo(name, "d", (), (), True, -4.0, 4.0, dtype="qd.f32", has_grad=False)
    array.is_made, array.updates = True, ()
    shared.features["floats of a few bits"] += 1
    return exponent + fraction, array, f"qd.types.quant.float({exponent}, {fraction})"


def _floats_together(shared: Shared) -> Made:
    """Vectors of floats with one exponent."""
    exponent, fraction = shared.rng.randint(5, 7), shared.rng.randint(4, 20)
    array = ArrayInfo(
        shared.fresh("q"), "d", (), (2,), True, -4.0, 4.0, dtype="qd.f32", has_grad=False
    )
    array.is_made, array.updates = True, ()
    shared.features["floats with one exponent"] += 1
    kind = f"qd.types.quant.float({exponent}, {fraction})"
    return exponent + 2 * fraction, array, kind


PRODUCTIONS = Productions(declare=declare)
