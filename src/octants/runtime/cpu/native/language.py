"""The language of the CPU's native runtime: statements of Python over words, translated to LLVM IR.

A value is a word of 64 bits: a number, or an address. ``worker.item`` is a field of the structure
at the address `worker`, or the address of the field if that is an array; the name of a variable or
of a field names its structure (`structures`). ``row[2]`` is the third word from the address `row`.
Comparisons are of signed numbers; ``//``, ``%`` and ``>>`` take unsigned ones. A variable is called
as a function without a result; a function that no source defines is one of C. Built in are::

    atomic_load(pool.next, acquire)      atomic_store(pool.stop, 1, seq_cst)
    atomic_add(pool.next, n, monotonic)  the value before; likewise atomic_sub and atomic_and
    exchanges(pool.busy, 0, 1, acquire)  whether the first number was there, and is now the second
    min(a, b)  max(a, b)  unsigned_min(a, b)  byte(address)  pause()
    memset(to, byte, count)  memcpy(to, from, count)  memmove(to, from, count)
"""

from __future__ import annotations

import ast
import ctypes
from collections.abc import Collection, Sequence
from typing import Any

from octants.diagnostics.exceptions import InternalError
from octants.runtime.cpu.native.structures import STRUCTURES

_PAUSES = {
    "x86_64": "@llvm.x86.sse2.pause()",
    "i686": "@llvm.x86.sse2.pause()",
    "aarch64": "@llvm.aarch64.hint(i32 1)",
    "arm64": "@llvm.aarch64.hint(i32 1)",
}
_OPERATIONS = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.FloorDiv: "udiv",
    ast.Mod: "urem",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.LShift: "shl",
    ast.RShift: "lshr",
}
_RELATIONS = {
    ast.Eq: "eq",
    ast.NotEq: "ne",
    ast.Lt: "slt",
    ast.LtE: "sle",
    ast.Gt: "sgt",
    ast.GtE: "sge",
}
_INTRINSICS = {"min": "llvm.smin", "max": "llvm.smax", "unsigned_min": "llvm.umin"}
_MOVES = {"memset": "i8", "memcpy": "ptr", "memmove": "ptr"}
"""The types of the second operands."""
_KINDS = {ctypes.c_int32: "i32", ctypes.c_int64: "i64", ctypes.c_void_p: "i64"}
_FIELDS = {
    (structure, name): (getattr(kind, name).offset, _KINDS.get(type_, ""))
    for structure, kind in STRUCTURES.items()
    for name, type_, *_ in kind._fields_
}
"""The offset and the type of each field; "" for an array."""
_WORD_RESULTS = {
    *("realloc", "CreateThread", "PyEval_SaveThread", "PyLong_AsVoidPtr", "PyLong_FromLongLong")
}
"""The functions of C that return a word; others return an `int`, or nothing."""


def translate(source: str, architecture: str, variables: Collection[str] = ()) -> str:
    """The LLVM IR of functions; those whose names begin with ``octants_`` are exported.

    Args:
        source: the functions.
        architecture: what they are for, as in a target triple ("x86_64").
        variables: the words that they share, which begin as zeros.
    """
    functions: list[Any] = ast.parse(source).body
    unit = _Unit({each.name for each in functions}, variables, _PAUSES.get(architecture, ""))
    texts = [_Function(unit, each).text() for each in functions]
    known = [f"@{name} = internal global i64 0\n" for name in variables]
    declared = (f"declare {head}\n" for head in sorted(unit.declarations))
    return "".join([*known, *texts, *declared])


class _Unit:
    """The names that functions share, and the declarations of the functions that they call."""

    def __init__(self, functions: set[str], variables: Collection[str], pause: str) -> None:
        self.functions, self.variables, self.pause = functions, variables, pause
        self.declarations: set[str] = set()


class _Function:
    """Writes one function, whose variables are in memory: LLVM optimises nothing here."""

    def __init__(self, unit: _Unit, node: ast.FunctionDef) -> None:
        self._unit, self._node = unit, node
        self._entry: list[str] = []
        self._lines: list[str] = []
        self._variables: set[str] = set()
        self._count = 0
        self._is_open = True  # whether the block has no branch yet
        self._exits: list[str] = []  # the labels behind the loops around

    def text(self) -> str:
        """The definition."""
        node, parameters = self._node, [each.arg for each in self._node.args.args]
        for name in parameters:
            self._line(f"store i64 %{name}, ptr {self._variable(name)}")
        self._block(node.body)
        self._end("ret i64 0")
        linkage = "" if node.name.startswith("octants_") else "internal "
        given = ", ".join(f"i64 %{name}" for name in parameters)
        body = "\n".join([*self._entry, *self._lines])
        return f"define {linkage}i64 @{node.name}({given}) {{\n{body}\n}}\n"

    # -- lines ----------------------------------------------------------------------------------

    def _line(self, text: str) -> None:
        if self._is_open:
            self._lines.append(f"  {text}")

    def _result(self, text: str) -> str:
        self._count += 1
        self._line(f"%r{self._count} = {text}")
        return f"%r{self._count}"

    def _end(self, text: str) -> None:
        """End the block by a branch, unless it has one."""
        self._line(text)
        self._is_open = False

    def _labels(self, count: int) -> list[str]:
        self._count += 1
        return [f"l{self._count}.{k}" for k in range(count)]

    def _begin(self, label: str) -> None:
        """Begin a block, which the one before goes on to."""
        self._end(f"br label %{label}")
        self._lines.append(f"{label}:")
        self._is_open = True

    def _variable(self, name: str) -> str:
        """The memory of a variable."""
        if name not in self._variables:
            self._variables.add(name)
            self._entry.append(f"  %{name}.v = alloca i64")
        return f"%{name}.v"

    # -- statements -----------------------------------------------------------------------------

    def _block(self, statements: Sequence[ast.stmt]) -> None:
        for each in statements:
            getattr(self, f"_{type(each).__name__.lower()}")(each)

    def _assign(self, node: ast.Assign) -> None:
        given = node.value.elts if isinstance(node.value, ast.Tuple) else [node.value]
        values = [self._word(each) for each in given]
        for target in node.targets:
            targets = target.elts if isinstance(target, ast.Tuple) else [target]
            for each, value in zip(targets, values, strict=True):
                self._store(each, value)

    def _augassign(self, node: ast.AugAssign) -> None:
        self._store(node.target, self._word(ast.BinOp(node.target, node.op, node.value)))

    def _store(self, target: ast.expr, value: str) -> None:
        pointer, kind = self._memory(target)
        self._line(f"store {kind} {self._narrow(value, kind)}, ptr {pointer}")

    def _expr(self, node: ast.Expr) -> None:
        self._word(node.value)

    def _return(self, node: ast.Return) -> None:
        self._end(f"ret i64 {0 if node.value is None else self._word(node.value)}")

    def _if(self, node: ast.If) -> None:
        yes, no, end = self._labels(3)
        self._branch(node.test, yes, no)
        for label, body in ((yes, node.body), (no, node.orelse)):
            self._begin(label)
            self._block(body)
            self._end(f"br label %{end}")
        self._begin(end)

    def _while(self, node: ast.While) -> None:
        test, body, end = self._labels(3)
        self._begin(test)
        self._branch(node.test, body, end)
        self._begin(body)
        self._exits.append(end)
        self._block(node.body)
        self._exits.pop()
        self._end(f"br label %{test}")
        self._begin(end)

    def _break(self, _: ast.Break) -> None:
        self._end(f"br label %{self._exits[-1]}")

    # -- conditions -----------------------------------------------------------------------------

    def _branch(self, test: ast.expr, yes: str, no: str) -> None:
        """Go on to one of two blocks; what does not matter is not evaluated."""
        if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
            self._branch(test.operand, no, yes)
        elif isinstance(test, ast.BoolOp):
            is_and = isinstance(test.op, ast.And)
            for each in test.values[:-1]:
                (following,) = self._labels(1)
                self._branch(each, *((following, no) if is_and else (yes, following)))
                self._begin(following)
            self._branch(test.values[-1], yes, no)
        else:
            self._end(f"br i1 {self._truth(test)}, label %{yes}, label %{no}")

    def _truth(self, test: ast.expr) -> str:
        """A comparison, or whether a word is not 0."""
        if not isinstance(test, ast.Compare):
            return self._result(f"icmp ne i64 {self._word(test)}, 0")
        left, right = self._word(test.left), self._word(test.comparators[0])
        return self._result(f"icmp {_RELATIONS[type(test.ops[0])]} i64 {left}, {right}")

    # -- words ----------------------------------------------------------------------------------

    def _word(self, node: ast.expr) -> str:
        """The value of an expression."""
        match node:
            case ast.Constant(value=int(value)):
                return str(int(value))
            case ast.BinOp(left=left, op=op, right=right):
                operands = f"{self._word(left)}, {self._word(right)}"
                return self._result(f"{_OPERATIONS[type(op)]} i64 {operands}")
            case ast.UnaryOp(op=ast.USub(), operand=operand):
                return self._result(f"sub i64 0, {self._word(operand)}")
            case ast.Compare():
                return self._wide(self._truth(node), "i1")
            case ast.BoolOp() | ast.UnaryOp():
                return self._chosen(node, ast.Constant(1), ast.Constant(0))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                return self._chosen(test, body, orelse)
            case ast.Call(func=ast.Name(id=name), args=given):
                return self._call(name, given)
            case ast.Name(id=name) if name not in {*self._variables, *self._unit.variables}:
                return f"ptrtoint (ptr @{name} to i64)"
            case ast.Attribute() if not _field(node)[1]:
                return self._address(node)
        pointer, kind = self._memory(node)
        return self._wide(self._result(f"load {kind}, ptr {pointer}"), kind)

    def _chosen(self, test: ast.expr, one: ast.expr, other: ast.expr) -> str:
        yes, no, end = self._labels(3)
        chosen = self._variable(f"chosen.{end}")
        self._branch(test, yes, no)
        for label, value in ((yes, one), (no, other)):
            self._begin(label)
            self._line(f"store i64 {self._word(value)}, ptr {chosen}")
            self._end(f"br label %{end}")
        self._begin(end)
        return self._result(f"load i64, ptr {chosen}")

    def _wide(self, value: str, kind: str) -> str:
        extend = "zext" if kind == "i1" else "sext"
        return value if kind == "i64" else self._result(f"{extend} {kind} {value} to i64")

    def _narrow(self, value: str, kind: str) -> str:
        return value if kind == "i64" else self._result(f"trunc i64 {value} to {kind}")

    def _pointer(self, word: str) -> str:
        return self._result(f"inttoptr i64 {word} to ptr")

    # -- memory ---------------------------------------------------------------------------------

    def _memory(self, node: ast.expr) -> tuple[str, str]:
        """The memory of a variable, a field or a word, and the type of what is there."""
        match node:
            case ast.Name(id=name):
                is_shared = name in self._unit.variables and name not in self._variables
                return f"@{name}" if is_shared else self._variable(name), "i64"
            case ast.Attribute():
                return self._pointer(self._address(node)), _field(node)[1]
            case ast.Subscript(value=start, slice=index):
                offset = ast.BinOp(index, ast.Mult(), ast.Constant(8))
                return self._pointer(self._word(ast.BinOp(start, ast.Add(), offset))), "i64"
        raise InternalError(f"no memory: {ast.unparse(node)}")

    def _address(self, node: ast.Attribute) -> str:
        return self._result(f"add i64 {self._word(node.value)}, {_field(node)[0]}")

    # -- calls ----------------------------------------------------------------------------------

    def _call(self, name: str, given: list[ast.expr]) -> str:
        if name == "exchanges" or name.startswith("atomic_"):
            return self._update(name.removeprefix("atomic_"), *given)
        words = [self._word(each) for each in given]
        arguments = ", ".join(f"i64 {each}" for each in words)
        if name in _MOVES:
            return self._move(name, *words)
        if name == "byte":
            return self._wide(self._result(f"load i8, ptr {self._pointer(words[0])}"), "i8")
        if name == "pause":
            if self._unit.pause:
                self._line(f"call void {self._unit.pause}")
                self._unit.declarations.add(f"void {self._unit.pause.replace('i32 1', 'i32')}")
            return "0"
        if name in self._variables:
            function = self._result(f"load ptr, ptr {self._variable(name)}")
            self._line(f"call void {function}({arguments})")
            return "0"
        kind = "i64"
        if name in _INTRINSICS:
            name = f"{_INTRINSICS[name]}.i64"
        elif name not in self._unit.functions | _WORD_RESULTS:
            kind = "i32"
        if name not in self._unit.functions:
            types = ", ".join(["i64"] * len(words))
            self._unit.declarations.add(f"{kind} @{name}({types})")
        return self._wide(self._result(f"call {kind} @{name}({arguments})"), kind)

    def _update(self, name: str, target: ast.expr, *given: Any) -> str:
        """An atomic operation."""
        *numbers, order = given
        words = [self._word(each) for each in numbers]
        pointer, kind = self._memory(target)
        values = [f"{kind} {self._narrow(each, kind)}" for each in words]
        end = f"{order.id}, align {int(kind[1:]) // 8}"
        if name == "store":
            self._line(f"store atomic {values[0]}, ptr {pointer} {end}")
            return "0"
        if name == "load":
            return self._wide(self._result(f"load atomic {kind}, ptr {pointer} {end}"), kind)
        if name == "exchanges":
            pair = f"cmpxchg ptr {pointer}, {values[0]}, {values[1]} {order.id} monotonic"
            is_new = f"extractvalue {{ {kind}, i1 }} {self._result(pair)}, 1"
            return self._wide(self._result(is_new), "i1")
        return self._wide(self._result(f"atomicrmw {name} ptr {pointer}, {values[0]} {end}"), kind)

    def _move(self, name: str, target: str, source: str, count: str) -> str:
        kind, suffix = _MOVES[name], ".p0.i64" if name == "memset" else ".p0.p0.i64"
        moved = self._pointer(source) if kind == "ptr" else self._narrow(source, kind)
        self._unit.declarations.add(f"void @llvm.{name}{suffix}(ptr, {kind}, i64, i1)")
        arguments = f"ptr {self._pointer(target)}, {kind} {moved}, i64 {count}, i1 false"
        self._line(f"call void @llvm.{name}{suffix}({arguments})")
        return "0"


def _field(node: ast.Attribute) -> tuple[int, str]:
    """The offset and the type of a field."""
    owner: Any = node.value
    return _FIELDS[owner.id if isinstance(owner, ast.Name) else owner.attr, node.attr]
