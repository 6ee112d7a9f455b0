"""The state of the generator at one point of the program: scopes, ranges, random choices."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

Choice = TypeVar("Choice")
Table = Sequence[tuple[float, Callable[..., Any]]]
MAX_NESTING = 5


@dataclass(frozen=True)
class Expr:
    """Source text of a scalar, and the range of its value."""

    text: str
    low: float
    high: float

    @property
    def bound(self) -> float:
        return max(abs(self.low), abs(self.high))


@dataclass
class Variable:
    """A local. `sort` is f (the run's float), d (a float of fixed type), i, l (i64), b, the name of
    an integer type, or struct:NAME.

    A frozen one may not be assigned here. Vectors and matrices have a shape, with `low` and `high`
    for their components.
    """

    name: str
    sort: str
    low: float
    high: float
    shape: tuple[int, ...] = ()
    frozen: bool = False

    @property
    def bound(self) -> float:
        return max(abs(self.low), abs(self.high))

    @property
    def expr(self) -> Expr:
        return Expr(self.name, self.low, self.high)


@dataclass
class Base:
    """An ndarray that kernels access by views only."""

    name: str
    size: int = 0


@dataclass(frozen=True)
class View:
    """The positions of the elements of a view."""

    base: Base
    first: int
    is_later: bool = False  # than another view of the same ndarray


@dataclass(frozen=True)
class Cells:
    """The cells of a sparse block: how many axes they have, none for lists, and rows of a cell."""

    block: str
    axes: int
    size: int = 1


@dataclass
class ArrayInfo:
    """An array of the program, its contents' range, and how it is given to the kernel.

    `sort` is that of a variable, or w: integers of all the values that `dtype` has.
    """

    name: str
    sort: str
    shape: tuple[int, ...]
    element_shape: tuple[int, ...]
    is_field: bool
    low: float = -2.0
    high: float = 2.0
    constant: bool = False  # never written
    dtype: str = "FP"
    has_grad: bool = True
    template: str = "{name}[{index}]"  # how an element is written
    owner: str = ""  # the field of structs that it is a member of
    is_made: bool = False  # by the profile
    content: Sequence[int] | None = None  # of integers, if not random ones
    view: View | None = None  # if it is a part of an ndarray
    limits: tuple[int, int] | None = None  # of integers of a few bits
    cells: Cells | None = None  # of a sparse field
    clamps: bool = False  # kernels use the nearest element for an index beyond an end
    imported: str = ""  # an ndarray in the same memory
    updates: Sequence[str] | None = None  # by many work items, if not all kinds are possible

    @property
    def memory(self) -> str:
        """The name of the array that has the elements."""
        return self.view.base.name if self.view else self.name

    @property
    def memory_shape(self) -> tuple[int, ...]:
        """The shape of the array that has the elements."""
        return (self.view.base.size,) if self.view else self.shape

    @property
    def is_float(self) -> bool:
        return self.sort in "fd"

    def at(self, index: str) -> str:
        """The text of an element."""
        return self.template.format(name=self.name, index=index)

    def is_in(self, text: str) -> bool:
        """Whether a text names the array, or the field of structs that it belongs to."""
        return bool(re.search(rf"\b{re.escape(self.owner or self.name)}\b", text))


@dataclass
class Role:
    """How a task accesses an array: own (a row each), read, accumulate, free (serial code)."""

    kind: str
    rows: tuple[str, ...] = ()  # the leading indices that a work item owns
    axes: int = 0  # how many axes they cover
    fn: str = "add"


@dataclass
class Domain:
    """A parallel loop's header, its counters, and the rows that a work item owns."""

    header: str
    counters: list[Variable]
    rows: tuple[str, ...]
    extents: tuple[int, ...]


@dataclass
class Function:
    """A func of the program: the shapes and sorts of its parameters, and what it returns."""

    name: str
    parameters: list[tuple[str, tuple[int, ...]]]
    sort: str
    shape: tuple[int, ...]
    cost: float
    low: float = -4.0
    high: float = 4.0


@dataclass(frozen=True)
class Grammar:
    """The makers that call each other: of expressions, of conditions, of statements."""

    floating: Callable[[Context, int], Expr]
    whole: Callable[[Context, int], Expr]
    truth: Callable[[Context, int], str]
    vector: Callable[[Context, tuple[int, ...], int], str]
    statements: Callable[[Context, int], None]
    struct: Callable[[Context, str], str]


@dataclass(frozen=True)
class Productions:
    """The additions of a profile to the grammar: rows of its tables, declarations of the module.

    `declare` adds arrays to the program and gives the lines that make types and arrays. `kernel`
    changes the body of a kernel, its parameters and its arguments. `finish` gives the lines of all
    functions and the launches their final form. With `has_recursion`, funcs may call themselves;
    with `has_private_variables`, iterations of parallel loops assign variables from before them.
    """

    floats: Table = ()
    integers: Table = ()
    statements: Table = ()
    domains: Table = ()
    returns: Sequence[tuple[str, Callable[[Context], str]]] = ()  # types, and return statements
    declare: Callable[[Shared], list[str]] | None = None
    kernel: Callable[[Context, str, list[str], list[Any]], str] | None = None
    finish: Callable[[Shared, list[str], list[Any]], tuple[list[str], list[Any]]] | None = None
    has_recursion: bool = False
    has_private_variables: bool = False


@dataclass
class Shared:
    """The state that all functions of a program share."""

    rng: random.Random
    grammar: Grammar
    productions: Sequence[Productions] = ()
    kinds: list[Any] = field(default_factory=list)  # the types of structs
    features: Counter[str] = field(default_factory=Counter)
    arrays: list[ArrayInfo] = field(default_factory=list)
    functions: list[Function] = field(default_factory=list)
    constants: list[tuple[str, float | int]] = field(default_factory=list)
    imports: list[str] = field(default_factory=list)
    preamble: list[str] = field(default_factory=list)  # what the next kernel needs before it
    counter: int = 0
    extents: tuple[int, int] = (3, 2)
    deep: tuple[int, ...] = ()  # the shape of loops over three axes
    has_random: bool = False
    size: float = 1.0  # of functions, relative to the largest
    max_cost: float = 700.0
    overwrites: bool = True  # else arrays are either read or written, so that no tape is needed

    def fresh(self, prefix: str) -> str:
        self.counter += 1
        return f"{prefix}{self.counter}"

    def rows(self, table: str) -> list[tuple[float, Callable[..., Any]]]:
        """The rows that the profile adds to a table."""
        return [row for one in self.productions for row in getattr(one, table)]


class Context:
    """One function body that is being written."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.rng = shared.rng
        self.scopes: list[list[Variable]] = [[]]
        self.lines: list[str] = []
        self.indent = 1
        self.trips = 1.0
        self.cost = 0.0
        self.roles: dict[str, Role] = {}
        self.parameters: list[ArrayInfo] = []  # arrays that a func takes
        self.in_function = False
        self.serial = False
        self.random_allowed = shared.has_random
        self.depth = 0
        self.run_time_loops = 0  # around this point
        self.loops: list[bool] = []  # of each enclosing loop, whether `continue` is safe
        self.nesting = 0
        self.returns: Callable[[Context], str] | None = None

    # -- chance ---------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def pick(self, options: Sequence[Choice]) -> Choice:
        return options[self.rng.randrange(len(options))]

    def integer(self, low: int, high: int) -> int:
        return self.rng.randint(low, high)

    def note(self, feature: str) -> None:
        self.shared.features[feature] += 1

    def choose(
        self, depth: int, simple: Table, leaves: Table, operations: Table, *args: Any
    ) -> Any:
        """Make an expression: an operation while there is depth left, else a leaf.

        Deep inside of others only the simple ones are made: names and literals.
        """
        table = operations if depth > 0 and not self.chance(0.2) else leaves
        self.nesting += 1
        try:
            return self.try_table(simple if self.nesting > MAX_NESTING else table, *args, depth - 1)
        finally:
            self.nesting -= 1

    def try_table(self, table: Table, *args: Any) -> Any:
        """A weighted choice among makers until one makes something."""
        options = list(table)
        while options:
            index = self.rng.choices(range(len(options)), [weight for weight, _ in options])[0]
            made = options.pop(index)[1](self, *args)
            if made is not None:
                return made
        raise RuntimeError("no option fits")

    # -- the grammar ----------------------------------------------------------------------------

    def constant(self, kind: type[int | float]) -> Expr | None:
        """A constant that the kernel takes from around it, of a type of Python."""
        known = [(name, value) for name, value in self.shared.constants if type(value) is kind]
        if not known:
            return None
        self.note(f"closure over {'an' if kind is int else 'a'} {kind.__name__}")
        name, value = self.pick(known)
        return Expr(name, value, value)

    def floating(self, depth: int = 2) -> Expr:
        """An expression of the run's float type."""
        return self.shared.grammar.floating(self, depth)

    def whole(self, depth: int = 2) -> Expr:
        """An i32 expression."""
        return self.shared.grammar.whole(self, depth)

    def truth(self, depth: int = 1) -> str:
        """A condition."""
        return self.shared.grammar.truth(self, depth)

    def vector(self, shape: tuple[int, ...], depth: int = 2) -> str:
        """An expression of a vector or matrix."""
        return self.shared.grammar.vector(self, shape, depth)

    def struct(self, sort: str) -> str:
        """An expression of a struct."""
        return self.shared.grammar.struct(self, sort)

    def statements(self, count: int) -> None:
        """Some statements."""
        self.shared.grammar.statements(self, count)

    # -- text -----------------------------------------------------------------------------------

    def emit(self, line: str) -> None:
        self.lines.append("    " * self.indent + line)
        self.cost += self.trips

    @contextmanager
    def block(self, header: str, trips: float = 1.0) -> Iterator[None]:
        """A compound statement; what is declared in it is forgotten after it."""
        self.emit(header)
        before, self.trips = self.trips, self.trips * trips
        self.indent += 1
        self.depth += 1
        self.scopes.append([])
        start = len(self.lines)
        try:
            yield
        finally:
            if len(self.lines) == start:
                self.emit("pass")
            self.scopes.pop()
            self.depth -= 1
            self.indent -= 1
            self.trips = before

    # -- variables ------------------------------------------------------------------------------

    def declare(
        self,
        prefix: str,
        sort: str,
        low: float,
        high: float,
        shape: tuple[int, ...] = (),
        frozen: bool = False,
    ) -> Variable:
        variable = Variable(self.shared.fresh(prefix), sort, low, high, shape, frozen)
        self.scopes[-1].append(variable)
        return variable

    def variables(
        self, sort: str, shape: tuple[int, ...] | None = (), assignable: bool = False
    ) -> list[Variable]:
        """The visible variables of a type; any vector or matrix for shape None."""
        return [
            variable
            for scope in self.scopes
            for variable in scope
            if variable.sort == sort
            and (bool(variable.shape) if shape is None else variable.shape == shape)
            and not (assignable and variable.frozen)
        ]

    def recent(self, variables: Sequence[Variable]) -> Variable | None:
        """One of the variables, rather a late one."""
        if not variables:
            return None
        weights = [1.0 + 1.5 * k for k in range(len(variables))]
        return self.rng.choices(list(variables), weights)[0]

    @property
    def max_cost(self) -> float:
        """How many statements a function may run, roughly."""
        return self.shared.max_cost

    @contextmanager
    def serial_loop(self, name: str, trips: int) -> Iterator[None]:
        """A counted loop that no frontend makes parallel."""
        if self.serial and not self.run_time_loops:
            self.emit("qd.loop_config(serialize=True)")
        with self.block(f"for {name} in range({trips}):", trips=trips):
            self.run_time_loops += 1
            yield
            self.run_time_loops -= 1

    def affordable(self, trips: float = 1.0) -> bool:
        """Whether a block of some statements may still run that often."""
        fits = len(self.lines) < 40 * self.shared.size
        return fits and self.cost + 4.0 * self.trips * trips < self.max_cost

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Names that are visible for a while, without a block of their own."""
        self.scopes.append([])
        try:
            yield
        finally:
            self.scopes.pop()


def number(value: float) -> str:
    """The text of a literal."""
    return repr(round(value, 3))
