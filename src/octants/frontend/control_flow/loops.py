"""Loops: counted and conditional ones; the others are in `parallel_loops` and `unrolled_loops`."""

from __future__ import annotations

import ast
import dataclasses
import functools
from collections.abc import Callable, Iterator
from typing import Any

from octants.diagnostics.errors import EndlessLoop, NotAssignable, WrongLoopTargets
from octants.frontend import assignments
from octants.frontend.context import Context
from octants.frontend.control_flow import (
    conditions,
    control_flow_joins,
    early_exits,
    loop_domains,
    parallel_loops,
    unrolled_loops,
)
from octants.frontend.control_flow.control_flow_joins import Carry
from octants.frontend.control_flow.loop_domains import Domain
from octants.frontend.memory import sparse_access
from octants.frontend.scope import LoopExits, Plan, VariableRegion
from octants.frontend.syntax import source
from octants.frontend.values.expression_values import (
    GroupedDomain,
    ProductDomain,
    RangeDomain,
    Variable,
    VariableReference,
)
from octants.ir import ops
from octants.ir.core import Block, Value
from octants.lang import directives
from octants.types.scalars import u1

# -- for -------------------------------------------------------------------------------------------


def for_(context: Context, node: ast.For, guard: Value | None = None) -> bool:
    """A ``for``; at the top level, ``guard`` tells at run time that it is to be skipped."""
    flags = early_exits.loop_exits(context, node.body)
    return _for(context, node, guard, flags) and _else(context, node, flags)


def _for(context: Context, node: ast.For, guard: Value | None, flags: LoopExits) -> bool:
    frame = context.scopes.frame
    options, frame.loop_options = frame.loop_options, {}
    options |= context.concurrency
    value, is_static = _iterated(context, node, guard)
    nest = None if is_static else sparse_access.domain_of(context, value, node.iter)
    if nest is None and not is_static:
        nest = loop_domains.domain(context, value, node.iter)
    if nest is None:
        items = unrolled_loops.items_of(context, value, node.iter)
        if guard is None:
            return unrolled_loops.build(context, node, items, flags)
        build = functools.partial(unrolled_loops.build, context, node, items, flags)
        return early_exits.skippable(context, guard, frame.exit_flags(), build, node, [node])
    _check_targets(context, node, nest)
    context.scopes.lose_past_indices(node, context.span(node))
    plan = context.scopes.plan(node)
    if context.is_top_level:
        assigned = parallel_loops.assigned_variables(context, node, options, plan)
        bind = functools.partial(_bind_fresh, context, node, nest)
        if assigned is not None and parallel_loops.build(
            context, node, nest, options, guard, assigned, bind
        ):
            return True
    return _counted(context, node, nest, guard, flags)


def _iterated(context: Context, node: ast.For, guard: Value | None) -> tuple[Any, bool]:
    """The iterated value of a loop, and whether it is marked as static.

    With a guard, it is evaluated only if that is not set.
    """
    if guard is None:
        return context.evaluate_marked(node.iter)
    with context.region() as region:
        value, is_static = context.evaluate_marked(node.iter)
    if all(op.is_pure or isinstance(op, ops.Shape) for op in region.block.ops):
        context.builder.block.ops.extend(region.block.ops)
        return value, is_static
    skipped = VariableRegion(Block(), completes=False)
    joined = control_flow_joins.Join(context, guard, skipped.block, region.block)
    changes = joined.changes(skipped, region, node)
    value = _with_bounds(value, lambda leaf: joined.add_one_sided(leaf, is_then=False))
    joined.finish()
    for variable, after in changes.items():
        context.scopes.assign(variable, after)
    return value, is_static


def _with_bounds(value: Any, change: Callable[[Any], Any]) -> Any:
    """A domain with other bounds."""
    if isinstance(value, RangeDomain):
        start, stop, step = (change(each) for each in (value.start, value.stop, value.step))
        return RangeDomain(start, stop, step, value.is_reversed)
    if isinstance(value, ProductDomain):
        bounds = tuple((change(low), change(high)) for low, high in value.bounds)
        return ProductDomain(bounds, value.axes)
    if isinstance(value, GroupedDomain):
        return GroupedDomain(_with_bounds(value.inner, change))
    return value


def _else(context: Context, node: ast.For | ast.While, flags: LoopExits) -> bool:
    """The ``else`` of a loop, if nothing left the loop; gives whether its end can be reached."""
    broken = [] if flags.broken is None else [flags.broken]
    if not node.orelse or any(flag.value is True for flag in broken):
        return True
    is_left = early_exits.any_set(context, [*broken, *context.scopes.frame.exit_flags()])
    if is_left is None:
        return context.build(node.orelse)
    skipped, run = VariableRegion(Block()), VariableRegion(Block())
    with context.region(run), context.stops.block():
        run.completes = context.build(node.orelse)
    control_flow_joins.join(context, is_left, skipped, run, node, [node])
    return True


# -- targets ---------------------------------------------------------------------------------------


def _targets(node: ast.For) -> list[ast.expr]:
    return node.target.elts if isinstance(node.target, ast.Tuple) else [node.target]


def _check_targets(context: Context, node: ast.For, nest: Domain) -> None:
    targets = _targets(node)
    wanted = 1 if nest.grouped else nest.targets
    if len(targets) != wanted:
        context.fail(WrongLoopTargets(len(targets), wanted), node.target)
    for target in targets:
        if not isinstance(target, ast.Name):
            context.fail(NotAssignable(assignments.describe_target(target)), target)


def _pairs(
    context: Context, node: ast.For, nest: Domain, indices: list[Value]
) -> Iterator[tuple[ast.Name, Any]]:
    values: list[Any] = [loop_domains.as_vector(context, indices)] if nest.grouped else indices
    for target, value in zip(_targets(node), values, strict=True):
        assert isinstance(target, ast.Name)
        yield target, value


def _bind_fresh(context: Context, node: ast.For, nest: Domain, indices: list[Value]) -> None:
    """Give the targets of a parallel loop the indices of an iteration, as its own variables."""
    for target, value in _pairs(context, node, nest, indices):
        context.scopes.declare(target.id, value)


def _bind(context: Context, node: ast.For, nest: Domain, indices: list[Value]) -> None:
    """Give the targets of a serial loop the indices of an iteration."""
    for target, value in _pairs(context, node, nest, indices):
        assignments.assign_name(context, target.id, value, target)


# -- counted loops ---------------------------------------------------------------------------------


def _counted(
    context: Context, node: ast.For, nest: Domain, guard: Value | None, flags: LoopExits
) -> bool:
    """A serial loop over counters; a ``while`` if something can leave it early."""
    leaves = flags.broken is not None or source.returns(node.body)
    if leaves or not nest.levels:
        nest = loop_domains.linear(context, nest)
    if guard is not None:
        nest = _guarded(context, nest, guard)
    build = _leaving_for if leaves else _plain_for
    region = _until_complete(context, node, functools.partial(build, context, node, nest, flags))
    early_exits.lose_names(context, node, region)
    return True


Attempt = Callable[[list[Variable], Plan], "VariableRegion | None"]


def _until_complete(context: Context, node: ast.stmt, build: Attempt) -> VariableRegion:
    """Build a loop, again if it turns out to change more variables than it carries."""
    plan = context.scopes.plan(node)
    while True:
        variables = _carried(context, node, plan)
        mark = len(context.builder.block.ops)
        region = build(variables, plan)
        if region is not None:
            return region
        del context.builder.block.ops[mark:]


def _guarded(context: Context, nest: Domain, guard: Value) -> Domain:
    """The domain without iterations if ``guard`` is set."""
    (low, high), *inner = nest.levels
    none = context.builder.select(guard, low, high)
    return dataclasses.replace(nest, levels=[(low, none), *inner])


def _carried(context: Context, node: ast.stmt, plan: Plan) -> list[Variable]:
    """The variables that a loop carries: those that it assigns and that exist before it."""
    named = context.scopes.changed_by([node]).values()
    held = [v.value.variable if isinstance(v.value, VariableReference) else v for v in named]
    return list(dict.fromkeys([*held, *control_flow_joins.prepare(context, plan)]))


def _plain_for(
    context: Context,
    node: ast.For,
    nest: Domain,
    flags: LoopExits,
    variables: list[Variable],
    plan: Plan,
) -> VariableRegion | None:
    """A `For` for each level of the nest; None if the body must be built again."""
    carry = Carry(context, variables)
    counters = [Value(low.type) for low, _ in nest.levels]
    arguments = [carry.arguments() for _ in nest.levels]
    region = VariableRegion(Block([counters[-1], *arguments[-1]]))
    with context.region(region):
        carry.bind(arguments[-1])
        with early_exits.body(context, flags):
            _bind(context, node, nest, nest.indices(counters))
            context.build(node.body)
    if not carry.is_complete(region, plan, node):
        return None
    with context.builder.into(region.block):
        context.builder.yield_(carry.yields(region))
    carry.finish(region, _nested(context, nest, counters, arguments, carry.inits, region.block))
    return region


def _nested(
    context: Context,
    nest: Domain,
    counters: list[Value],
    arguments: list[list[Value]],
    inits: list[Value],
    body: Block,
) -> list[Value]:
    """Append the loops around a body, the innermost first; gives their results."""
    for depth in range(len(nest.levels) - 1, 0, -1):
        outer = Block([counters[depth - 1], *arguments[depth - 1]])
        with context.builder.into(outer):
            loop = context.builder.for_(*nest.levels[depth], arguments[depth - 1], body)
            context.builder.yield_(loop.results)
        body = outer
    return context.builder.for_(*nest.levels[0], inits, body).results


# -- loops that can be left ------------------------------------------------------------------------


def _leaving_for(
    context: Context,
    node: ast.For,
    nest: Domain,
    flags: LoopExits,
    variables: list[Variable],
    plan: Plan,
) -> VariableRegion | None:
    """A `While` over the counter and the carried variables, which include the flags."""
    builder = context.builder
    ways_out = _ways_out(context, node.body, flags)
    carry = Carry(context, [*variables, *ways_out])
    (low, high) = nest.levels[0]
    check = VariableRegion(Block([Value(low.type), *carry.arguments()]))
    with context.region(check):
        counter, *values = check.block.args
        carry.bind(values)
        goes_on = builder.compare("lt", counter, high)
        builder.yield_([_unless(context, goes_on, early_exits.any_set(context, ways_out))])
    region = VariableRegion(Block([Value(low.type), *carry.arguments()]))
    with context.region(region):
        counter, *values = region.block.args
        carry.bind(values)
        _clear(context, ways_out)
        with early_exits.body(context, flags):
            _bind(context, node, nest, nest.indices([counter]))
            context.build(node.body)
    if not carry.is_complete(region, plan, node):
        return None
    with builder.into(region.block):
        after = builder.binary("add", counter, builder.constant(1, counter.type))
        builder.yield_([after, *carry.yields(region)])
    loop = builder.while_([low, *carry.inits], check.block, region.block)
    carry.finish(region, loop.results[1:])
    return region


def _ways_out(context: Context, body: list[ast.stmt], flags: LoopExits) -> list[Variable]:
    """The flags that end a loop."""
    ways_out = [] if flags.broken is None else [flags.broken]
    if flags.broken is not None:
        context.scopes.claim(flags.broken)
    if source.returns(body):
        ways_out.append(context.scopes.frame.returned)
    return ways_out


def _clear(context: Context, flags: list[Variable]) -> None:
    """No flag is set at the start of an iteration, since it would not have begun."""
    for flag in flags:
        context.scopes.assign(flag, False)


def _unless(context: Context, goes_on: Value, is_left: Value | None) -> Value:
    if is_left is None:
        return goes_on
    builder = context.builder
    return builder.binary("and", goes_on, builder.unary("not", is_left))


# -- while -----------------------------------------------------------------------------------------


def while_(context: Context, node: ast.While) -> bool:
    """A ``while``; its condition is evaluated as often as in Python."""
    context.scopes.lose_past_indices(node, context.span(node))
    flags = early_exits.loop_exits(context, node.body)
    build = functools.partial(_while, context, node, flags)
    if (
        not _is_do_while(context, node.test)
        and not context.scopes.plan(node).is_rotated
        and _condition_is_pure(context, node)
    ):
        region = _until_complete(context, node, functools.partial(build, None))
    else:
        runs_once = _is_do_while(context, node.test)
        first = True if runs_once else conditions.condition(context, node.test)
        again = Variable("$again", first, (context.scopes.frame.key, "$again"), u1)
        context.scopes.claim(again)
        region = _until_complete(context, node, functools.partial(build, again))
    early_exits.lose_names(context, node, region)
    if isinstance(node.test, ast.Constant) and node.test.value:
        return flags.broken is not None
    return _else(context, node, flags)


def _is_do_while(context: Context, test: ast.expr) -> bool:
    """Whether a condition is looked at only when the body has run; see `syntax.do_while`."""
    if not isinstance(test, ast.Call) or not ast.unparse(test.func).endswith("do_while"):
        return False
    return context.evaluate_reference(test.func) is directives.do_while


def _condition_is_pure(context: Context, node: ast.While) -> bool:
    """Whether the condition has no effects; it is built for that, and thrown away."""
    plan = context.scopes.plan(node)
    carry = Carry(context, _carried(context, node, plan))
    plan.is_rotated = _condition_region(context, node, carry, []) is None
    return not plan.is_rotated


def _while(
    context: Context,
    node: ast.While,
    flags: LoopExits,
    again: Variable | None,
    variables: list[Variable],
    plan: Plan,
) -> VariableRegion | None:
    """A `While` whose first region computes the condition, or reads it from ``again``.

    In the latter case the condition has effects: it is evaluated before the loop, and at the end of
    each iteration.
    """
    ways_out = _ways_out(context, node.body, flags)
    carried = [*([again] if again is not None else []), *variables, *ways_out]
    carry = Carry(context, carried)
    if again is None:
        check = _condition_region(context, node, carry, ways_out)
    else:
        check = _reading_region(context, carry)
    assert check is not None
    region = VariableRegion(Block(carry.arguments()))
    with context.region(region):
        carry.bind(region.block.args)
        _clear(context, ways_out)
        with early_exits.body(context, flags):
            context.build(node.body)
        if again is not None:
            is_left = early_exits.any_set(context, ways_out)
            context.scopes.assign(again, _goes_on(context, node, is_left))
    if not carry.is_complete(region, plan, node):
        return None
    with context.builder.into(region.block):
        context.builder.yield_(carry.yields(region))
    loop = context.builder.while_(carry.inits, check.block, region.block)
    carry.finish(region, loop.results)
    return region


def _reading_region(context: Context, carry: Carry) -> VariableRegion:
    """The condition region that gives the first of the carried values."""
    check = VariableRegion(Block(carry.arguments()))
    with context.builder.into(check.block):
        context.builder.yield_([check.block.args[0]])
    return check


def _condition_region(
    context: Context, node: ast.While, carry: Carry, ways_out: list[Variable]
) -> VariableRegion | None:
    """The condition for another iteration; None if it has effects."""
    check = VariableRegion(Block(carry.arguments()))
    with context.region(check):
        carry.bind(check.block.args)
        is_left = early_exits.any_set(context, ways_out)
        _clear(context, ways_out)
        bound = {variable: variable.value for variable in carry.before}
        goes_on = _goes_on(context, node, is_left)
        has_changes = any(variable.value is not value for variable, value in bound.items())
        context.builder.yield_([goes_on])
    new = set(check.changed) - set(bound)
    has_effects = any(op.has_effects for op in check.block.walk())
    return None if has_changes or new or check.new or has_effects else check


def _goes_on(context: Context, node: ast.While, is_left: Value | None) -> Value:
    """Whether another iteration runs; the condition is not looked at if the loop was left."""
    if is_left is None:
        test = conditions.condition(context, node.test)
        if test is True and not source.can_be_left(node):
            context.fail(EndlessLoop(), node.test)
        return test if isinstance(test, Value) else context.constant(test)
    stays = context.builder.unary("not", is_left)
    result: Value = conditions.either(
        context, stays, stays, lambda: conditions.condition(context, node.test), True, node
    )
    return result
