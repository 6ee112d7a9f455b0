"""Outline integer code that occurs many times in a module into functions.

Each loop that is reversed in blocks computes the positions of its checkpoints, several times.
Inline that would be a third of a kernel with many loops. 64-bit divisions take long enough for the
cost of a call to make no difference.
"""

from __future__ import annotations

from octants.codegen.llvm import control_flow
from octants.codegen.llvm.function_text import FunctionText, Handler, HandlerTable
from octants.codegen.llvm.math_functions import finished
from octants.hashing import blake2b
from octants.ir import ops
from octants.ir.core import Operation, Value

_PURE = (ops.Constant, ops.Binary, ops.Compare, ops.Cast, ops.Select, ops.Yield)
_FUNCTIONS = ("sqrt", "ceil")
_IN_LINE: HandlerTable = {ops.While: control_flow.while_, ops.If: control_flow.if_}
_FEWEST, _MOST = 8, 64  # operations


def once(in_line: Handler) -> Handler:
    """Return a handler for an operation with regions that outlines it where that pays."""

    def write(f: FunctionText, op: Operation) -> None:
        values = _captured(op) if f.machine.has_functions and _pays(op) else []
        if values and all(map(f.is_one, [*values, *op.results])):
            _write(f, op, values)
        else:
            in_line(f, op)

    return write


def _write(f: FunctionText, op: Operation, values: list[Value]) -> None:
    """Call the function. The values before are passed, not those that a branch defines."""
    if not isinstance(op, ops.If) or len(op.then.ops) > 1:
        for result, found in zip(op.results, _call(f, op, values), strict=True):
            f.bind(result, found)
        return
    far, merge, before = f.fresh_label("far"), f.fresh_label("merge"), f.label
    near = [f.use(value) for value in op.then.yielded]
    f.branch_if(f.use(op.condition), merge, far, likely=True)
    f.start(far)
    found_far = _call(f, op, values)
    f.branch(merge)
    end = f.label
    f.start(merge)
    for result, value, other in zip(op.results, near, found_far, strict=True):
        phi = f.open_phi(f.type(result.type))
        phi.incoming.extend(((value, before), (other, end)))
        f.close_phi(phi)
        f.bind(result, phi.name)


def _pays(op: Operation) -> bool:
    """Return whether an operation is scalar arithmetic with a 64-bit division."""
    count, divides = 0, False
    for region in op.regions:
        for each in region.walk():
            count += 1
            if count > _MOST or not _is_arithmetic(each):
                return False
            divides |= isinstance(each, ops.Binary) and _is_division(each)
    return divides and count >= _FEWEST


def _is_arithmetic(op: Operation) -> bool:
    if isinstance(op, ops.Unary):
        return op.fn in _FUNCTIONS
    return isinstance(op, (*_PURE, ops.If, ops.While))


def _is_division(op: ops.Binary) -> bool:
    kind = op.result.type
    return op.fn in ("floordiv", "mod") and kind.is_integer and kind.bits == 64


def _captured(op: Operation) -> list[Value]:
    """Return the values that an operation uses from outside, in order of first use."""
    inside = [*op.walk_regions()]
    blocks = [region for each in (op, *inside) for region in each.regions]
    defined = {value for each in inside for value in each.results}
    defined |= {value for block in blocks for value in block.args}
    used = dict.fromkeys(value for each in (op, *inside) for value in each.operands)
    return [value for value in used if value not in defined]


def _call(f: FunctionText, op: Operation, values: list[Value]) -> list[str]:
    """Call the function and return its results, which are undefined after an interruption."""
    loops = any(isinstance(each, ops.While) for each in op.walk())
    context = ["ptr %context"] if loops else []
    passed = [value for value in values if f.use(value).startswith("%")]
    inner = FunctionText(f.kernel, f.machine, f.scalar_table, f.task)
    for value in values:
        inner.bind(value, f"%x{passed.index(value)}" if value in passed else f.use(value))
    given, parameters = (
        ", ".join(context + [f"{f.type(value.type)} {text.use(value)}" for value in passed])
        for text in (f, inner)
    )
    types = [f.type(result.type) for result in op.results]
    name = _define(f, inner, op, types, parameters)
    found = f.assign(f"call {_struct(types)} {name}({given})")
    if loops:
        f.machine.poll(f)
    return [f.assign(f"extractvalue {_struct(types)} {found}, {k}") for k in range(len(types))]


def _struct(types: list[str]) -> str:
    return f"{{ {', '.join(types)} }}"


def _define(
    f: FunctionText, inner: FunctionText, op: Operation, types: list[str], parameters: str
) -> str:
    """Add the function of an operation to the module, once, and return its name."""
    inner.start("start")
    _IN_LINE[type(op)](inner, op)
    struct, values = _struct(types), "poison"
    for position, (kind, result) in enumerate(zip(types, op.results, strict=True)):
        put = f"insertvalue {struct} {values}, {kind} {inner.use(result)}, {position}"
        values = inner.assign(put)
    inner.emit(f"ret {struct} {values}")
    inner.start(inner.exit)
    code = "\n".join([parameters, struct, *inner.entry, *inner.lines])
    name = f"@octants.shared.{blake2b(code.encode(), digest_size=6).hexdigest()}"
    head = f"define internal {struct} {name}({parameters}) noinline nounwind"
    text = finished(inner, head, f"ret {struct} zeroinitializer")
    f.text.helper(name, lambda *_: text)
    return name
