"""In debug mode, a message where a sum, a difference, a product or a shift of integers wraps.

The result is what it is without debug mode. After the operation comes a condition::

    %2: i32 = binary<add>(%0, %1)
    if(%wraps) { print<'Addition overflow detected in ...', True>(%0, %1, %2) }

A launch reports the first time at each place, and how often it happened after that.
Library functions, such as hashes, are not checked: they wrap on purpose.
"""

from __future__ import annotations

import linecache

from octants.frontend.context import Context
from octants.ir.core import Value
from octants.lang.library_function_marks import is_library_function
from octants.types.scalars import DType, Kind, i64, integer_range, u64

_CHECKED = {
    "add": ("Addition", "+"),
    "sub": ("Subtraction", "-"),
    "mul": ("Multiplication", "*"),
    "shl": ("Shift left", "<<"),
}


def is_checked(context: Context, fn: str, dtype: DType) -> bool:
    """Whether an operation is checked here."""
    if not context.debug or fn not in _CHECKED or not dtype.is_integer:
        return False
    return not is_library_function(context.scopes.frame.function)


def checked(context: Context, fn: str, a: Value, b: Value) -> Value:
    """The operation, and the message if it wraps."""
    result = context.builder.binary(fn, a, b)
    report(context, fn, a, b, result)
    return result


def report(context: Context, fn: str, a: Value, b: Value, result: Value) -> None:
    """Print the message if the result of an operation has wrapped."""
    builder = context.builder
    wraps = _TESTS[fn](context, a, b, result)
    if builder.constant_of(wraps) is False:
        return
    with builder.only_if(wraps):
        builder.print_(_message(context, fn, a.type), [a, b, result], is_counted=True)


def _message(context: Context, fn: str, dtype: DType) -> tuple[str | tuple[str], ...]:
    name, symbol = _CHECKED[fn]
    head = f"{name} overflow detected"
    span = context.builder.location
    if span is not None:
        head += f' in File "{span.file}", line {span.line}, in {span.function}'
        source = linecache.getline(span.file, span.line).rstrip("\n")
        ends_here = span.end_line in (0, span.line) and span.end_column > span.column
        end = span.end_column if ends_here else len(source)
        if source:
            carets = " " * span.column + "^" * max(1, end - span.column)
            head += f":\n    {source}\n    {carets}"
    return (f"{head}\n    ", ("",), f" {symbol} ", ("",), " wraps to ", ("",), f" ({dtype})\n")


# -- when results wrap -----------------------------------------------------------------------------


def _is_negative(context: Context, x: Value) -> Value:
    return context.builder.compare("lt", x, context.builder.constant(0, x.type))


def _sum(context: Context, a: Value, b: Value, result: Value) -> Value:
    build = context.builder
    if a.type.kind is Kind.UNSIGNED:
        return build.compare("lt", result, a)
    changes = [build.binary("xor", x, result) for x in (a, b)]
    return _is_negative(context, build.binary("and", *changes))


def _difference(context: Context, a: Value, b: Value, result: Value) -> Value:
    build = context.builder
    if a.type.kind is Kind.UNSIGNED:
        return build.compare("lt", a, b)
    changes = [build.binary("xor", a, x) for x in (b, result)]
    return _is_negative(context, build.binary("and", *changes))


def _product(context: Context, a: Value, b: Value, result: Value) -> Value:
    """By the product of twice the width; of 64 bits, by division."""
    build, dtype = context.builder, a.type
    if dtype.bits < 64:
        wide = i64 if dtype.kind is Kind.SIGNED else u64
        exact = build.binary("mul", build.cast(a, wide), build.cast(b, wide))
        return build.compare("ne", exact, build.cast(result, wide))
    wraps = build.compare("ne", build.binary("floordiv", result, a), b)
    if dtype.kind is Kind.SIGNED:
        is_minus = build.compare("eq", a, build.constant(-1, dtype))
        is_least = build.compare("eq", b, build.constant(integer_range(dtype)[0], dtype))
        wraps = build.binary("or", wraps, build.binary("and", is_minus, is_least))
    return build.binary("and", build.compare("ne", a, build.constant(0, dtype)), wraps)


def _shift(context: Context, a: Value, b: Value, result: Value) -> Value:
    build = context.builder
    back = build.binary("ushr" if a.type.kind is Kind.UNSIGNED else "shr", result, b)
    return build.compare("ne", back, a)


_TESTS = {"add": _sum, "sub": _difference, "mul": _product, "shl": _shift}
