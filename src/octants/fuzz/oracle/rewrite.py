"""Rewrites a program so that CPython can follow the language's types.

    Before: s = x[i] * 2          After: s = _o.assign(_s, 's', x[i] * 2)
    Before: x[i] += s             After: _o.update(x, i, '+', s)
    Before: for i in range(n):    After: for i in _o.parallel(range(n), 0):

The body of a loop whose work items wait for each other becomes a generator: see `blocks`.

A local keeps the type of its first assignment, so every assignment goes through a cell; top-level
loops of a kernel announce their work items. Nothing else of the program changes: its control flow
is CPython's own, and so is arithmetic on compile-time numbers.
"""

from __future__ import annotations

import ast
from typing import Any, TypeGuard

from octants.fuzz.oracle.blocks import COOPERATION
from octants.fuzz.oracle.state import IllDefined

SYMBOLS: dict[type[ast.operator], str] = {
    ast.Add: "+",
    ast.Sub: "-",
    ast.Mult: "*",
    ast.Div: "/",
    ast.FloorDiv: "//",
    ast.Mod: "%",
    ast.Pow: "**",
    ast.BitAnd: "&",
    ast.BitOr: "|",
    ast.BitXor: "^",
    ast.LShift: "<<",
    ast.RShift: ">>",
}


def rewrite(source: str) -> ast.Module:
    """The module, with its kernels and funcs rewritten."""
    tree = ast.parse(source)
    classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
    for node in [*tree.body, *(part for one in classes for part in one.body)]:
        if isinstance(node, ast.FunctionDef):
            marks = {getattr(mark, "attr", None) for mark in node.decorator_list}
            if marks & {"kernel", "func", "real_func", "pyfunc"}:
                FunctionRewriter(node, is_kernel="kernel" in marks).run()
    return ast.fix_missing_locations(tree)


def bound_names(nodes: list[ast.stmt]) -> set[str]:
    """The names that statements bind."""
    parts = [part for node in nodes for part in ast.walk(node)]
    return {p.id for p in parts if isinstance(p, ast.Name) and isinstance(p.ctx, ast.Store)}


def assigned_names(nodes: list[ast.stmt]) -> set[str]:
    """The names that statements bind, or change a component of."""
    parts = [part for node in nodes for part in ast.walk(node)]
    stored = [p for p in parts if isinstance(p, ast.Subscript) and isinstance(p.ctx, ast.Store)]
    return bound_names(nodes) | {p.value.id for p in stored if isinstance(p.value, ast.Name)}


def _is_assigned_first(name: str, body: list[ast.stmt]) -> bool:
    """Whether an iteration assigns a variable as a whole before anything else mentions it."""
    for statement in body:
        names = {part.id for part in ast.walk(statement) if isinstance(part, ast.Name)}
        if name in names:
            return (
                isinstance(statement, ast.Assign)
                and [ast.unparse(target) for target in statement.targets] == [name]
                and name not in {p.id for p in ast.walk(statement.value) if isinstance(p, ast.Name)}
            )
    return False


def _block_dim(before: ast.stmt | None) -> int:
    """The work items of a block, which a ``loop_config`` may set before the loop."""
    found = ast.walk(before) if isinstance(before, ast.Expr) else ()
    for part in found:
        if isinstance(part, ast.keyword) and part.arg == "block_dim":
            return int(ast.literal_eval(part.value))
    return 128


def _is_do_while(statement: ast.stmt) -> TypeGuard[ast.While]:
    return isinstance(statement, ast.While) and ".do_while(" in ast.unparse(statement.test)


def _without_sections(statements: list[ast.stmt]) -> list[ast.stmt]:
    """Statements with those of sections and regions, which mean the same one after the other."""
    found: list[ast.stmt] = []
    for statement in statements:
        if isinstance(statement, ast.With):
            found += _without_sections(statement.body)
        else:
            found.append(statement)
    return found


class FunctionRewriter(ast.NodeTransformer):
    """Rewrites one function in place."""

    def __init__(self, function: ast.FunctionDef, is_kernel: bool) -> None:
        self.function = function
        self.is_kernel = is_kernel
        self.outer_names: set[str] = set()
        self.shared: set[str] = set()
        self.loops = 0  # around this point, so that a loop here runs in order
        self.task = 0

    def run(self) -> None:
        function = self.function
        prologue = [_parse("_s = _o.scope()")]
        for argument in function.args.args:
            if argument.arg == "self":  # by reference
                continue
            note = ast.unparse(argument.annotation) if argument.annotation else "None"
            name = argument.arg
            prologue.append(_parse(f"{name} = _o.enter(_s, {name!r}, {name}, {note})"))
        self.returns = ast.unparse(function.returns) if function.returns else "None"
        if not self.is_kernel:
            for argument in function.args.args:
                argument.annotation = None
        body = self._kernel_body() if self.is_kernel else self._block(function.body)
        function.body = prologue + body
        function.returns = None

    def _block(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for position, statement in enumerate(statements):
            self._require_order(statements, position)
            result.extend(self._statement(statement))
        return result

    def _statement(self, statement: ast.stmt) -> list[ast.stmt]:
        new = self.visit(statement)
        return new if isinstance(new, list) else [new]

    def _require_order(self, statements: list[ast.stmt], position: int) -> None:
        """A loop in a branch of a kernel's serial code must say that it is serial.

        It would be parallel if the branch is decided when the kernel is compiled.
        """
        if self.is_kernel and not self.loops and self._is_parallel(statements, position):
            raise IllDefined("a loop in serial code that may be parallel")

    # -- tasks ----------------------------------------------------------------------------------

    def _kernel_body(self) -> list[ast.stmt]:
        statements = _without_sections(self.function.body)
        loops = [s for s in statements if _is_do_while(s)]
        inner = [s for loop in loops for s in _without_sections(loop.body)]
        rest = [s for s in statements if s not in loops]
        arguments = {argument.arg for argument in self.function.args.args}
        serial = [
            s
            for stretch in (rest, inner)
            for k, s in enumerate(stretch)
            if not self._is_parallel(stretch, k)
        ]
        self.outer_names = bound_names(serial) - arguments
        self.task = 0  # even for serial stretches, empty ones too, odd for parallel loops
        return [_parse("_o.begin_task(0)"), *self._tasks(statements)]

    def _tasks(self, statements: list[ast.stmt]) -> list[ast.stmt]:
        result: list[ast.stmt] = []
        for position, statement in enumerate(statements):
            if self._is_parallel(statements, position):
                assert isinstance(statement, ast.For)
                before = statements[position - 1] if position else None
                result.extend(self._parallel_loop(statement, self.task + 1, before))
                self.task += 2
                result.append(_parse(f"_o.begin_task({self.task})"))
                result += self._block(statement.orelse)
            elif _is_do_while(statement):
                result.append(self._do_while(statement))
            else:
                result.extend(self._statement(statement))
        return result

    def _do_while(self, loop: ast.While) -> ast.stmt:
        """A loop whose body runs at least once, and whose tasks are the kernel's."""
        assert isinstance(loop.test, ast.Call)
        (counter,) = loop.test.args
        body = [_parse("_o.tick()"), *self._tasks(_without_sections(loop.body))]
        body.append(_parse(f"if not {ast.unparse(counter)}[None]: break"))
        return ast.While(test=ast.Constant(True), body=body, orelse=[])

    def _is_parallel(self, statements: list[ast.stmt], position: int) -> bool:
        statement = statements[position]
        if not isinstance(statement, ast.For) or ast.unparse(statement.iter).startswith(
            "qd.static("
        ):
            return False
        before = statements[position - 1] if position else None
        text = ast.unparse(before) if isinstance(before, ast.Expr) else ""
        return not ("loop_config" in text and "serialize=True" in text)

    def _parallel_loop(self, loop: ast.For, task: int, before: ast.stmt | None) -> list[ast.stmt]:
        changed = assigned_names(loop.body) & self.outer_names
        private = {name for name in changed if _is_assigned_first(name, loop.body)}
        self.shared = changed - private
        fresh = sorted(bound_names(loop.body) - self.outer_names)
        is_shared = bool(self.shared)
        self.loops += 1
        body = self._block(loop.body)
        self.loops -= 1
        self.shared = set()
        if fresh:
            body.insert(0, _parse(" = ".join([*fresh, "_o.unassigned"])))
        domain, number = self.visit(loop.iter), ast.Constant(task)
        if ".simt." not in ast.unparse(loop):
            parallel = _call("parallel", domain, number, ast.Constant(bool(private)))
            return [ast.For(loop.target, parallel, body, [])]
        if is_shared:
            raise IllDefined("a local of the kernel, assigned by a loop in blocks")
        name = f"_block_body{task}"
        head = ast.parse(f"def {name}(_point):\n    for _target in [_point]: pass\n    if 0: yield")
        (function,) = head.body
        assert isinstance(function, ast.FunctionDef) and isinstance(function.body[0], ast.For)
        function.body[0].target = loop.target
        function.body += body
        arguments = domain, number, ast.Constant(_block_dim(before)), ast.Name(name, ast.Load())
        run = ast.Attribute(ast.Name("_blocks", ast.Load()), "run", ast.Load())
        return [function, ast.Expr(ast.Call(run, list(arguments), []))]

    # -- statements -----------------------------------------------------------------------------

    def visit_Assign(self, node: ast.Assign) -> Any:
        if len(node.targets) > 1:
            return self._chain(node)
        value = self.visit(node.value)
        target = node.targets[0]
        if isinstance(target, ast.Name):
            return self._bind(target.id, value)
        if isinstance(target, ast.Tuple):
            return self._unpack(target, value)
        if isinstance(target, ast.Subscript):
            target_element = ast.Subscript(
                self._container(target), self.visit(target.slice), ast.Store()
            )
            return ast.Assign(targets=[target_element], value=value)
        return ast.Assign(targets=[self.visit(target)], value=value)

    def _chain(self, node: ast.Assign) -> list[ast.stmt]:
        """``a = b = value``: every target gets the value."""
        held = ast.Assign(targets=[ast.Name("_value", ast.Store())], value=self.visit(node.value))
        made: list[ast.stmt] = [held]
        for target in node.targets:
            one = ast.Assign(targets=[target], value=ast.Name("_value", ast.Load()))
            made.extend(self._statement(one))
        return made

    def visit_AnnAssign(self, node: ast.AnnAssign) -> Any:
        assert isinstance(node.target, ast.Name) and node.value is not None
        value = ast.Call(func=node.annotation, args=[self.visit(node.value)], keywords=[])
        return self._bind(node.target.id, value)

    def visit_AugAssign(self, node: ast.AugAssign) -> Any:
        value, symbol = self.visit(node.value), SYMBOLS[type(node.op)]
        if isinstance(node.target, ast.Name):
            return self._bind_update(node.target.id, symbol, value)
        assert isinstance(node.target, ast.Subscript | ast.Attribute)
        where, index = self._target(node.target, symbol)
        if isinstance(node.target.value, ast.Attribute):  # the value may assign to this member
            return ast.Expr(_call("update_then", index, ast.Constant(symbol), value, where))
        update = _call("update", where, index, ast.Constant(symbol), value)
        match node.target:
            case ast.Subscript(value=ast.Name(id=name)) if name in self.shared:
                update = _call("accumulate_component", ast.Constant(name), *update.args)
        return ast.Expr(update)

    def _target(
        self, target: ast.Subscript | ast.Attribute, mode: str = "write"
    ) -> tuple[Any, Any]:
        if isinstance(target, ast.Attribute):
            return self.visit(target.value), ast.Constant(target.attr)
        return self._container(target, mode), self.visit(target.slice)

    def _container(self, target: ast.Subscript, mode: str = "write") -> Any:
        if isinstance(target.value, ast.Name) and target.value.id in self.shared:
            name = target.value.id
            return _call(
                "touch", ast.Constant(name), ast.Name(name, ast.Load()), ast.Constant(mode)
            )
        return self.visit(target.value)

    def _bind(self, name: str, value: Any) -> ast.stmt:
        if name in self.shared:
            value = _call("touch", ast.Constant(name), value, ast.Constant("write"))
        cell = _call("assign", ast.Name("_s", ast.Load()), ast.Constant(name), value)
        return ast.Assign(targets=[ast.Name(name, ast.Store())], value=cell)

    def _bind_update(self, name: str, symbol: str, value: Any) -> ast.stmt:
        before: Any = ast.Name(name, ast.Load())
        local = ast.Name("_s", ast.Load()), ast.Constant(name)
        if name in self.shared:
            before = _call("touch", ast.Constant(name), before, ast.Constant(symbol))
            cell = _call("accumulate", *local, ast.Constant(symbol), before, value)
        else:
            cell = _call("assign", *local, _call("updated", ast.Constant(symbol), before, value))
        return ast.Assign(targets=[ast.Name(name, ast.Store())], value=cell)

    def _unpack(self, target: ast.Tuple, value: Any) -> Any:
        names = [element.id for element in target.elts if isinstance(element, ast.Name)]
        if len(names) < len(target.elts):
            return self._unpack_targets(target, value)
        listed = ast.Tuple([ast.Constant(name) for name in names], ast.Load())
        scope = ast.Name("_s", ast.Load())
        return ast.Assign(targets=[target], value=_call("assign_all", scope, listed, value))

    def _unpack_targets(self, target: ast.Tuple, value: Any) -> list[ast.stmt]:
        """Unpacking where some targets are members or components."""
        held = [f"_value{k}" for k in range(len(target.elts))]
        names = ast.Tuple([ast.Name(name, ast.Store()) for name in held], ast.Store())
        made: list[ast.stmt] = [ast.Assign(targets=[names], value=_call("taken", value))]
        for name, element in zip(held, target.elts, strict=True):
            one = ast.Assign(targets=[element], value=ast.Name(name, ast.Load()))
            made.extend(self._statement(one))
        return made

    def visit_While(self, node: ast.While) -> Any:
        self.loops += 1
        body = [_parse("_o.tick()"), *self._block(node.body)]
        self.loops -= 1
        return ast.While(self.visit(node.test), body, self._block(node.orelse))

    def visit_For(self, node: ast.For) -> Any:
        in_order = not _is_static(node.iter)
        self.loops += in_order
        body = self._block(node.body)
        self.loops -= in_order
        return ast.For(node.target, self.visit(node.iter), body, self._block(node.orelse))

    def visit_Match(self, node: ast.Match) -> Any:
        cases = [
            ast.match_case(case.pattern, case.guard and self.visit(case.guard), body)
            for case in node.cases
            for body in [self._block(case.body)]
        ]
        return ast.Match(self.visit(node.subject), cases)

    def visit_NamedExpr(self, node: ast.NamedExpr) -> Any:
        name = node.target.id
        if name in self.shared:
            raise IllDefined("a local of the kernel, assigned in an expression")
        scope, value = ast.Name("_s", ast.Load()), self.visit(node.value)
        return ast.NamedExpr(node.target, _call("assign", scope, ast.Constant(name), value))

    def visit_If(self, node: ast.If) -> Any:
        body, orelse = self._block(node.body), self._block(node.orelse)
        return ast.If(test=self.visit(node.test), body=body, orelse=orelse)

    def visit_Expr(self, node: ast.Expr) -> Any:
        if isinstance(node.value, ast.Call):
            return ast.Expr(self._call(node.value, used=False))
        return node

    def visit_Return(self, node: ast.Return) -> Any:
        if node.value is None:
            return node
        annotation = ast.parse(self.returns, mode="eval").body
        return ast.Return(_call("leave", self.visit(node.value), annotation))

    # -- expressions ----------------------------------------------------------------------------

    def visit_Call(self, node: ast.Call) -> Any:
        return self._call(node, used=True)

    def _call(self, node: ast.Call, used: bool) -> Any:
        name = node.func.attr if isinstance(node.func, ast.Attribute) else ""
        if name in COOPERATION and ".simt." in f"{ast.unparse(node.func)}.":
            operands = [ast.Constant(name), *map(self.visit, node.args)]
            return ast.Yield(ast.Tuple(operands, ast.Load()))
        if name == "select":
            condition, *sides = node.args
            thunks = [_thunk(self.visit(side)) for side in sides]
            return _call("select", self.visit(condition), *thunks)
        if name.startswith("atomic_"):
            target = node.args[0]
            assert isinstance(target, ast.Subscript | ast.Attribute)
            fn = ast.Constant(name[len("atomic_") :])
            where, index = self._target(target)
            return _call("atomic", where, index, fn, self.visit(node.args[1]), ast.Constant(used))
        return self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> Any:
        """Its range is known when a kernel is compiled."""
        conditions = [self.visit(condition) for condition in node.ifs]
        return ast.comprehension(node.target, _call("static", self.visit(node.iter)), conditions, 0)

    def visit_Dict(self, node: ast.Dict) -> Any:
        return _call("Items", self.generic_visit(node))

    def visit_DictComp(self, node: ast.DictComp) -> Any:
        return _call("Items", self.generic_visit(node))

    def visit_Name(self, node: ast.Name) -> Any:
        if isinstance(node.ctx, ast.Load) and node.id in self.shared:
            return _call("touch", ast.Constant(node.id), node, ast.Constant("read"))
        return node

    def visit_UnaryOp(self, node: ast.UnaryOp) -> Any:
        operand = self.visit(node.operand)
        if isinstance(node.op, ast.Not):
            return _call("negate", operand)
        return ast.UnaryOp(node.op, operand)

    def visit_IfExp(self, node: ast.IfExp) -> Any:
        if _is_static(node.test):
            return self.generic_visit(node)
        sides = [_thunk(self.visit(side)) for side in (node.body, node.orelse)]
        return _call("choose", self.visit(node.test), *sides)

    def visit_BoolOp(self, node: ast.BoolOp) -> Any:
        *others, result = [self.visit(value) for value in node.values]
        is_and = ast.Constant(isinstance(node.op, ast.And))
        for value in reversed(others):
            result = _call("decide", is_and, value, _thunk(result))
        return result


def _thunk(body: ast.expr) -> ast.Lambda:
    empty = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.Lambda(args=empty, body=body)


def _call(name: str, *arguments: Any) -> ast.Call:
    function = ast.Attribute(ast.Name("_o", ast.Load()), name, ast.Load())
    return ast.Call(func=function, args=list(arguments), keywords=[])


def _parse(text: str) -> ast.stmt:
    return ast.parse(text).body[0]


def _is_static(node: ast.expr) -> bool:
    """Whether a condition, or what a loop runs over, is a call of ``static``."""
    return ast.unparse(node).startswith("qd.static(")
