"""Write the mathematical functions as LLVM functions, from their code in `mathlib`.

LLVM may inline the first few calls of a module; in a large module it inlines those in loops. All
others stay calls, as do those in unrolled loops, so that compile time grows with the number of
functions and not with their calls.
"""

from __future__ import annotations

import functools

from octants.codegen.arithmetic import LibraryCall
from octants.codegen.llvm.function_text import FunctionText, Handler
from octants.codegen.llvm.llvmlite_driver import INLINABLE
from octants.hashing import blake2b
from octants.ir import ops
from octants.ir.core import Block, Value
from octants.lazy_dataclass import dataclass
from octants.lowering.math_function_bodies import lower_function
from octants.mathlib.function_registry import HELPERS, MathFunction, function
from octants.types.scalars import DType, f32

ATTRIBUTES = "nounwind willreturn nofree nosync memory(none)"
_INLINED = 8
"""The calls of a module that LLVM may inline."""

LONG = 128
"""The most operations of a slow path that stay inline, so that LLVM can vectorise its loop."""


@dataclass(frozen=True, slots=True)
class MathCall:
    """A call of a library function, of operands of its type; the handler table has its writer."""

    function: MathFunction
    operands: list[str]
    attribute: str

    @property
    def name(self) -> str:
        """The function's name in LLVM."""
        kind = "fast." * self.function.is_fast + self.function.name
        return f"@octants.math.{kind}.{self.function.dtype}"


def call(f: FunctionText, fn: str, dtype: DType, operands: list[str]) -> str:
    """Compute a function of operands of f32 or f64."""
    if f.text.fast_math and dtype is f32:
        found = f.machine.quick(f, fn, operands)
        if found is not None:
            return found
    f.text.mathematics += 1
    is_inlinable = f.text.mathematics <= _INLINED and not f.in_unrolled_loop
    attribute = f" {INLINABLE}" if is_inlinable else " noinline"
    if is_inlinable and f.is_outside_loops:
        attribute = ""  # it runs seldom
    wanted = lower_function(f.code.legal, function(fn, dtype, f.text.fast_math))
    result: str = f.table[MathCall](f, MathCall(wanted, operands, attribute))
    return result


def call_by_name(f: FunctionText, op: LibraryCall) -> str:
    """Call a function of mathematics, or one that `lowering` calls, by name."""
    if op.fn in HELPERS:
        return call_function(f, function(op.fn, op.dtype), op.operands)
    return call(f, op.fn, op.dtype, op.operands)


def call_function(f: FunctionText, wanted: MathFunction, operands: list[str]) -> str:
    """Call a function, for all lanes at once where work items are lanes."""
    wanted = lower_function(f.code.legal, wanted)
    result: str = f.table[MathCall](f, MathCall(wanted, operands, ""))
    return result


def call_scalar(f: FunctionText, op: MathCall) -> str:
    """Call a function of numbers."""
    name = f.text.helper(op.name, lambda _, name: _text(f, op.function, name))
    block = op.function.block
    types = [f.type(arg.type) for arg in block.args]
    given = list(zip(types, op.operands, strict=True))
    return f.call(name, f.type(block.yielded[0].type), given, op.attribute)


def _text(caller: FunctionText, wanted: MathFunction, name: str) -> str:
    """Return the definition of a library function."""
    block, table = wanted.block, caller.scalar_table
    branch = functools.partial(_if, table[ops.If])
    f = FunctionText(caller.kernel, caller.machine, {**table, ops.If: branch}, 0)
    register = f.type(block.yielded[0].type)
    parameters = _bind_parameters(f, block.args)
    f.start("start")
    (result,) = f.block(block)
    head = f"define internal {register} {name}({parameters}) {ATTRIBUTES}"
    return finished(f, head, f"ret {register} {result}")


def _bind_parameters(f: FunctionText, values: list[Value]) -> str:
    for number, value in enumerate(values):
        f.bind(value, f"%x{number}")
    return ", ".join(f"{f.type(value.type)} {f.use(value)}" for value in values)


def finished(f: FunctionText, head: str, last: str) -> str:
    """Return a function's text: its head, its code, and its last instruction."""
    body = ["entry:", *f.entry, "  br label %start", *f.lines, f"  {last}"]
    return "\n".join([head + " {", *body, "}\n"])


# -- slow paths ---------------------------------------------------------------------------------


def _if(in_line: Handler, f: FunctionText, op: ops.If) -> None:
    """Write a branch with a slow path; a long slow path is a function, which others may share."""
    if sum(1 for _ in op.then.walk()) <= LONG:
        in_line(f, op)
        return
    rare, usual, merge = (f.fresh_label(hint) for hint in ("rare", "usual", "merge"))
    is_usual = f.assign(f"xor i1 {f.use(op.condition)}, true")
    f.branch_if(is_usual, usual, rare, likely=True)
    f.start(rare)
    found = _call_slow_path(f, op.then)
    f.branch(merge)
    f.start(usual)
    values = f.block(op.orelse)
    incoming = [(found, rare), (values, f.label)]
    f.enter(merge)
    for position, result in enumerate(op.results):
        ways = ((values[position], label) for values, label in incoming)
        f.bind(result, f.phi(f.type(result.type), *ways))


def _call_slow_path(f: FunctionText, block: Block) -> list[str]:
    """Call a slow path as a function named by its text, and return the values it yields."""
    needed = captured(block)
    inner = FunctionText(f.kernel, f.machine, f.table, 0)
    parameters = _bind_parameters(inner, needed)
    inner.start("start")
    values = inner.block(block)
    types = [f.type(value.type) for value in block.yielded]
    struct = f"{{ {', '.join(types)} }}"
    results = "poison"
    for position, (register, value) in enumerate(zip(types, values, strict=True)):
        results = inner.assign(f"insertvalue {struct} {results}, {register} {value}, {position}")
    name = slow_path_name(parameters, inner)
    head = f"define internal {struct} {name}({parameters})"
    text = finished(inner, f"{head} cold noinline {ATTRIBUTES}", f"ret {struct} {results}")
    f.text.helper(name, lambda *_: text)
    arguments = ", ".join(f"{f.type(value.type)} {f.use(value)}" for value in needed)
    result = f.assign(f"call {struct} {name}({arguments})")
    return [f.assign(f"extractvalue {struct} {result}, {k}") for k in range(len(types))]


def slow_path_name(parameters: str, f: FunctionText) -> str:
    """Return a name for a slow path's function: a hash of its text."""
    digest = blake2b("\n".join([parameters, *f.lines]).encode(), digest_size=6).hexdigest()
    return f"@octants.math.rare.{digest}"


def captured(block: Block) -> list[Value]:
    """Return the values that a block uses from outside, in order of first use."""
    used = dict.fromkeys(value for op in block.walk() for value in op.operands)
    defined = block.defined()
    return [value for value in used if value not in defined]
