"""The mistakes that users make, one frozen class each, with a stable code.

Texts are templates over the fields of the class. Codes: OCT1xx syntax, names and control flow,
OCT2xx values, types, shapes and functions of the library, OCT3xx derivatives, OCT4xx launches,
OCT5xx fields and ndarrays on the host.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from octants.diagnostics.exceptions import (
    OctantsCallError,
    OctantsCompilationError,
    OctantsError,
    OctantsIndexError,
    OctantsNameError,
    OctantsRuntimeError,
    OctantsSyntaxError,
    OctantsTypeError,
)
from octants.diagnostics.render import Diagnostic, Label
from octants.diagnostics.span import Span

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Any:
        """Do nothing: only type checkers want to know that subclasses are like dataclasses."""
        return lambda decorated: decorated


@dataclass_transform(frozen_default=True)
class UserError:
    """The base: `diagnostic(span)` fills the templates, `exception` is what is raised.

    A subclass is a frozen dataclass of the names that it annotates, without the decorator: that
    compiles several functions for each class, which takes longer than all else of an import. If it
    has a field `advice`, and no remedy, that is the remedy.
    """

    FIELDS: ClassVar[tuple[str, ...]] = ()
    code: ClassVar[str] = "OCT000"
    exception: ClassVar[type[OctantsError]] = OctantsRuntimeError
    title: ClassVar[str] = ""
    label: ClassVar[str] = ""
    notes: ClassVar[tuple[str, ...]] = ()
    remedy: ClassVar[str] = ""

    def __init_subclass__(cls) -> None:
        cls.FIELDS = (*cls.FIELDS, *vars(cls).get("__annotations__", ()))
        if "advice" in cls.FIELDS:
            cls.remedy = cls.remedy or "{advice}"

    def __init__(self, *given: Any, **named: Any) -> None:
        named.update(zip(self.FIELDS, given, strict=False))
        missing = [name for name in self.FIELDS if name not in named and not hasattr(self, name)]
        if len(given) > len(self.FIELDS) or missing or not named.keys() <= set(self.FIELDS):
            raise TypeError(f"{type(self).__name__} takes {self.FIELDS}, not {given}, {named}")
        self.__dict__.update(named)

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError(f"{type(self).__name__} is frozen: {name} cannot be set")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self._values() == other._values()

    def __hash__(self) -> int:
        return hash((type(self), *self._values().values()))

    def __repr__(self) -> str:
        values = (f"{name}={value!r}" for name, value in self._values().items())
        return f"{type(self).__name__}({', '.join(values)})"

    def _values(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.FIELDS}

    def diagnostic(self, *labels: Label, span: Span | None = None) -> Diagnostic:
        """The error at ``span``, with further labels after the main one."""
        main = (Label(span, self._fill(self.label)),) if span is not None else ()
        notes = tuple(self._fill(note) for note in self.notes)
        title, remedy = self._fill(self.title), self._fill(self.remedy)
        return Diagnostic(self.code, title, (*main, *labels), notes, remedy)

    def at(self, span: Span | None = None, *labels: Label) -> OctantsError:
        """The exception, to be raised; without a span, it is about no line of the source."""
        return self.exception(self.diagnostic(*labels, span=span))

    def _fill(self, template: str) -> str:
        return template.format(**self._values())


# -- syntax ----------------------------------------------------------------------------------------


class UnsupportedSyntax(UserError):
    """Python that is not in the language."""

    construct: str
    advice: str
    code = "OCT101"
    exception = OctantsSyntaxError
    title = "{construct} cannot be used in a kernel"
    label = "not in the language"


class NoSource(UserError):
    """A kernel's source cannot be read."""

    name: str
    code = "OCT102"
    exception = OctantsCompilationError
    title = "the source of `{name}` cannot be found"
    notes = (
        "Octants compiles a kernel from its source text, which it reads from its file",
        "a function that was edited in its file after it was imported has no source",
    )
    remedy = (
        "if its file was edited, start the program again; define it with `def` in a file, a"
        " notebook cell or the text of `python -c`; Python does not keep what it reads from a pipe"
        " (`python - <<END`): save that as a file; give exec() a text that is a literal, or a"
        " variable of the function that calls it; keep the text of modules in a frozen program"
    )


class StarParameter(UserError):
    """A parameter ``*args`` or ``**kwargs``."""

    name: str
    code = "OCT103"
    exception = OctantsSyntaxError
    title = "`{name}` takes a variable number of arguments"
    label = "not in the language"
    remedy = "name each parameter, or pass a tuple as a template() argument"


class BreakInParallel(UserError):
    """``break`` out of a parallel loop."""

    code = "OCT105"
    exception = OctantsSyntaxError
    title = "`break` cannot end a parallel loop"
    label = "its iterations run at the same time, in no order"
    remedy = "put `qd.loop_config(serialize=True)` before the loop to run it in order"


class ReturnInParallel(UserError):
    """``return`` out of a parallel loop."""

    code = "OCT106"
    exception = OctantsSyntaxError
    title = "`return` cannot leave a parallel loop"
    label = "its iterations run at the same time, in no order"
    remedy = (
        "use `continue` to end this iteration only, or put `qd.loop_config(serialize=True)` before"
        " the loop to run it in order"
    )


class WrongLoopConfig(UserError):
    """An option of ``loop_config`` that is unknown or has a wrong value."""

    problem: str
    code = "OCT108"
    exception = OctantsCallError
    title = "loop_config: {problem}"
    remedy = (
        "its options are serialize=True, parallelize=<threads>, block_dim=<threads>, name=<str>,"
        " simd=<bool or int>, bit_vectorize=<bool>"
    )


class LateLoopConfig(UserError):
    """A warning: an option for a loop in a parallel loop, where all loops run in order."""

    name: str
    code = "OCT167"
    exception = OctantsCallError
    title = "the option `{name}` does nothing in a parallel loop"
    label = "the loops in a parallel loop run in order"
    remedy = "put it before the parallel loop if that is what you mean, or remove it"


class WrongStreamBlock(UserError):
    """A block of concurrent loops that stands where it cannot, or that is given something."""

    problem: str
    word: str = "stream_parallel"
    code = "OCT157"
    exception = OctantsSyntaxError
    title = "`with qd.{word}():` {problem}"
    remedy = "write it at the top level of the kernel, around loops"


class WrongParallelSection(UserError):
    """A section without a region around it, or something else than sections in a region."""

    problem: str
    code = "OCT160"
    exception = OctantsSyntaxError
    title = "{problem}"
    remedy = (
        "write `with qd.graph.parallel():` blocks, and nothing else, directly in"
        " `with qd.graph.parallel_context():`"
    )


class UncutCheckpoint(UserError):
    """A ``with checkpoint()`` where a kernel cannot pause."""

    code = "OCT161"
    exception = OctantsSyntaxError
    title = "`with qd.checkpoint(...):` stands where the kernel cannot pause"
    remedy = (
        "write it in a kernel with `@qd.kernel(graph=True, checkpoints=True)`, at its top level or"
        " directly in `while qd.graph.do_while(...):`, and not in a function"
    )


# -- names -----------------------------------------------------------------------------------------


class UndefinedName(UserError):
    """A name that is not defined."""

    name: str
    advice: str = ""
    code = "OCT110"
    exception = OctantsNameError
    title = "`{name}` is not defined"
    label = "no such name"


class UsedBeforeAssignment(UserError):
    """A local variable that has no value yet."""

    name: str
    code = "OCT111"
    exception = OctantsNameError
    title = "`{name}` is used before it is assigned"
    label = "it has no value here"
    remedy = "assign `{name}` on every path that leads here"


class AssignedInBranch(UserError):
    """A variable that only one branch of an ``if`` assigned."""

    name: str
    code = "OCT112"
    exception = OctantsNameError
    title = "`{name}` may have no value here"
    label = "used here"
    remedy = "assign `{name}` before the `if`, or in both of its branches"


class BranchTypes(UserError):
    """A variable to which the branches of an ``if`` assign values of different types."""

    name: str
    code = "OCT117"
    exception = OctantsTypeError
    title = "`{name}` has a different type in each branch of an `if`"
    label = "used here"
    remedy = "use two names, or make both a scalar, or vectors or matrices of one shape"


class AssignedInLoop(UserError):
    """A variable that was first assigned inside of a loop and is used after it."""

    name: str
    code = "OCT113"
    exception = OctantsNameError
    title = "`{name}` has no value outside of the loop that assigns it"
    label = "used here"
    notes = ("the loop may have no iterations",)
    remedy = "assign `{name}` before the loop"


class LoopIndexAfterLoop(UserError):
    """A loop's index that is used after the loop."""

    name: str
    code = "OCT114"
    exception = OctantsNameError
    title = "the loop index `{name}` does not exist after its loop"
    label = "used here"
    remedy = "copy it to a variable that was assigned before the loop"


class UnknownAttribute(UserError):
    """An attribute that an object does not have."""

    owner: str
    name: str
    advice: str = ""
    code = "OCT115"
    exception = OctantsNameError
    title = "{owner} has no attribute `{name}`"
    label = "no such attribute"


class NotAssignable(UserError):
    """The target of an assignment is not a variable or an element."""

    what: str
    advice: str = "Python values are constants of a kernel; keep what changes in a field"
    code = "OCT116"
    exception = OctantsTypeError
    title = "a kernel cannot assign to {what}"
    label = "not a local variable or an element of a field or array"


# -- compile time ----------------------------------------------------------------------------------


class NotCompileTime(UserError):
    """A run-time value where one is needed at compile time."""

    what: str
    code = "OCT120"
    exception = OctantsTypeError
    title = "{what} must be known when the kernel is compiled"
    label = "known only when the kernel runs"
    remedy = "use Python values: literals, closures, globals, template() arguments"


class StaticAssertion(UserError):
    """A static_assert that does not hold."""

    message: str
    reason: str = "this is false"
    code = "OCT121"
    exception = OctantsCompilationError
    title = "static assertion failed{message}"
    label = "{reason}"


class CompileTimeFailure(UserError):
    """Python code raised an exception while the kernel was compiled."""

    exception_name: str
    message: str
    code = "OCT122"
    exception = OctantsTypeError
    title = "{exception_name} at compile time: {message}"
    label = "evaluated while the kernel is compiled"


class MissingKey(UserError):
    """A key that a dictionary does not have."""

    dictionary: str
    key: str
    keys: str
    advice: str
    code = "OCT162"
    exception = OctantsTypeError
    title = "`{dictionary}` has no key {key}"
    label = "its keys are {keys}"


class CompileTimeVariable(UserError):
    """A variable holds a compile-time object and changes under run-time control flow."""

    name: str
    holds: str
    code = "OCT123"
    exception = OctantsTypeError
    title = "`{name}` holds {holds}, which cannot change at run time"
    label = "changed under a run-time condition or in a loop"
    remedy = "use `static(...)` for the condition or the loop, or a number in place of the object"


class EndlessRecursion(UserError):
    """Functions call each other too deeply."""

    name: str
    depth: int
    code = "OCT124"
    exception = OctantsCompilationError
    title = (
        "`{name}` calls itself, and no condition that is known at compile time ends the recursion"
    )
    label = "{depth} calls deep"
    notes = ("functions are inlined, but for a `real_func` with annotated parameters and result",)
    remedy = (
        "make it a `@qd.real_func` with annotations of numbers, vectors, matrices or structs, or"
        " end it by `if static(...)` on a template() argument"
    )


class RecursiveArgument(UserError):
    """An argument for a `ref` that a function with a recursion at run time cannot take."""

    name: str
    parameter: str
    problem: str
    code = "OCT127"
    exception = OctantsTypeError
    title = "`{name}` calls itself, and cannot take this argument for `{parameter}`"
    label = "{problem}"
    notes = ("its calls get a copy of the variable, and copy it back when they return",)
    remedy = "pass a local variable in place of an element, and store it afterwards"


class TooDeep(UserError):
    """Code that is nested so deeply that Python itself gives up."""

    kernel: str
    code = "OCT126"
    exception = OctantsCompilationError
    title = "kernel `{kernel}` nests too deeply to be compiled"
    label = "Python's recursion ends here"
    notes = (
        "nested expressions, branches, loops and inlined calls count",
        "so do lists in lists, such as a list that contains itself",
    )
    remedy = "give names to the steps of long expressions; split long chains of `elif` or `and`"


class NumberTooLarge(UserError):
    """An integer that no type can hold."""

    number: str
    code = "OCT125"
    exception = OctantsTypeError
    title = "the integer {number} does not fit in 64 bits"
    label = "too large"
    remedy = "use a float"


# -- types -----------------------------------------------------------------------------------------


class TypeChange(UserError):
    """A variable is assigned a value of another type."""

    name: str
    before: str
    after: str
    code = "OCT130"
    exception = OctantsTypeError
    title = "`{name}` is {before} and cannot become {after}"
    label = "{after} is assigned here"
    notes = ("the type of a variable is fixed by its first assignment",)
    remedy = "use another name"


class ShapeMismatch(UserError):
    """A value of one shape is stored to a variable or an element of another."""

    what: str
    wanted: str
    given: str
    code = "OCT131"
    exception = OctantsTypeError
    title = "{what} holds {wanted}, not {given}"
    label = "{given} is stored here"
    advice: str = ""


class NotAValue(UserError):
    """Something that is no number, vector, matrix or struct where a value is needed."""

    what: str
    code = "OCT132"
    exception = OctantsTypeError
    title = "{what} is not a value that a kernel can compute with"
    label = "a number, vector, matrix or struct is needed"
    advice: str = ""


class IdentityOfRunTimeValue(UserError):
    """``is`` between run-time values."""

    code = "OCT133"
    exception = OctantsSyntaxError
    title = "`is` compares objects, but run-time numbers are not objects"
    label = "known only when the kernel runs"
    remedy = "use `==`"


class NoMembership(UserError):
    """``in`` with something that is not a compile-time collection."""

    code = "OCT134"
    exception = OctantsTypeError
    title = "`in` needs a tuple, list, set or dict that is known at compile time"
    label = "not a compile-time collection"
    remedy = "compare with `==` in a loop"


class WrongLoopBound(UserError):
    """A bound of a loop that is not an integer."""

    what: str
    code = "OCT135"
    exception = OctantsTypeError
    title = "the bounds of a loop are integers, not {what}"
    label = "this is {what}"
    remedy = "convert it: `qd.i32(...)`"


class NotIterable(UserError):
    """A loop over something that has no elements."""

    what: str
    code = "OCT136"
    exception = OctantsTypeError
    title = "a loop cannot run over {what}"
    label = "not iterable"
    remedy = "loop over range(...), ndrange(...), a field, an array, or a static(...) sequence"


class UnknownLength(UserError):
    """A list, tuple or dict of as many items as a range has that is known at run time only."""

    code = "OCT166"
    exception = OctantsTypeError
    title = "the number of items of a list, tuple or dict must be known at compile time"
    label = "its bounds are known only when the kernel runs"
    remedy = "write a `for` loop that stores to a field, an array or a `qd.Vector`"


class LoopBoundTooLarge(UserError):
    """A literal bound of a loop that its counter cannot hold."""

    number: str
    code = "OCT163"
    exception = OctantsTypeError
    title = "a loop cannot count to {number}"
    label = "too large"
    notes = ("loops count in i64, from -2^63 to 2^63 - 1",)
    remedy = "count from 0, and add the first number in the loop: `qd.u64(first) + i`"


class WrongLoopTargets(UserError):
    """The number of a loop's indices does not match what it runs over."""

    given: int
    wanted: int
    code = "OCT137"
    exception = OctantsSyntaxError
    title = "the loop has {given} target(s), but its range has {wanted} index(es)"
    label = "one name per index"
    remedy = (
        "give one name per index, or write `for I in qd.grouped(...)` for all indices as one vector"
    )


class WrongUnpacking(UserError):
    """An assignment to several targets from a value of another length."""

    targets: int
    what: str
    code = "OCT138"
    exception = OctantsSyntaxError
    title = "{what} cannot be assigned to {targets} targets"
    label = "one name for each element"


class SidesDiffer(UserError):
    """A conditional expression whose branches have different types."""

    first: str
    second: str
    code = "OCT139"
    exception = OctantsTypeError
    title = "one value of the conditional expression is {first}, the other one is {second}"
    label = "both must be scalars, or vectors or matrices of one shape"


# -- indices ---------------------------------------------------------------------------------------


class WrongIndexCount(UserError):
    """Too many or too few indices."""

    what: str
    wanted: str
    given: int
    code = "OCT140"
    exception = OctantsIndexError
    title = "{what} takes {wanted}, not {given}"
    label = "{given} given"
    advice: str = ""


class IndexOutOfRange(UserError):
    """A compile-time index outside of its range."""

    what: str
    index: int
    axis: int
    extent: int
    code = "OCT141"
    exception = OctantsIndexError
    title = "index {index} is out of range for axis {axis} of {what}"
    label = "the extent of this axis is {extent}"


class WrongIndex(UserError):
    """An index that is not an integer."""

    what: str
    code = "OCT142"
    exception = OctantsTypeError
    title = "an index is an integer, not {what}"
    label = "this is {what}"
    advice: str = "convert it: `qd.i32(...)`"


class NotIndexable(UserError):
    """A subscript of something that has no elements."""

    what: str
    code = "OCT143"
    exception = OctantsTypeError
    title = "{what} cannot be indexed"
    label = "it has no elements"


class RunTimeIndex(UserError):
    """A run-time index into a Python sequence."""

    what: str
    code = "OCT144"
    exception = OctantsTypeError
    title = "{what} cannot be indexed by a value that is known only at run time"
    label = "a Python object that exists at compile time only"
    advice: str = "make it a `qd.Vector([...])`, or index it in a loop over static(range(...))"


class MissingCompanion(UserError):
    """``x.grad`` of something without a gradient."""

    array: str
    name: str
    code = "OCT145"
    exception = OctantsNameError
    title = "`{array}` has no `.{name}`"
    label = "it has none"
    remedy = "create it with needs_{name}=True"


# -- calls -----------------------------------------------------------------------------------------


class NotCallable(UserError):
    """A call of something that is no function."""

    what: str
    code = "OCT150"
    exception = OctantsTypeError
    title = "{what} is not a function"
    label = "called here"


class PythonFunction(UserError):
    """A call of a plain Python function with run-time values."""

    name: str
    code = "OCT151"
    exception = OctantsTypeError
    title = "`{name}` is a Python function and cannot be called with run-time values"
    label = "called here"
    advice: str = "decorate it with `@qd.func`"


class ListChanges(UserError):
    """A method changes a list of a kernel where the list's length would depend on run time."""

    name: str
    where: str
    code = "OCT146"
    exception = OctantsTypeError
    title = "`{name}` cannot change a {kind} {where}"
    label = "called here"
    remedy = "a {kind} changes while the kernel is compiled: use a `qd.Vector` or an array"
    kind: str = "list"


class KernelInKernel(UserError):
    """A kernel calls a kernel."""

    name: str
    code = "OCT152"
    exception = OctantsSyntaxError
    title = "a kernel cannot call the kernel `{name}`"
    label = "called here"
    remedy = "make the called one a `@qd.func`"


class HostFunction(UserError):
    """A kernel calls what has to be called on the host, or in each launch."""

    name: str
    advice: str
    code = "OCT165"
    exception = OctantsSyntaxError
    title = "`{name}` cannot be called in a kernel"
    label = "would be called once, while the kernel is compiled"


class WrongArguments(UserError):
    """A call that does not fit the parameters."""

    name: str
    problem: str
    code = "OCT153"
    exception = OctantsCallError
    title = "`{name}()` {problem}"
    label = "called here"


class WrongDeclaration(UserError):
    """A variable of a kernel that is annotated with something that is no type."""

    name: str
    annotation: str
    code = "OCT170"
    exception = OctantsTypeError
    title = "`{name}` is declared as {annotation}, which is no type of a variable"
    label = "declared here"
    remedy = "use a type such as `qd.f32`, `qd.math.vec3`, `int` or a struct"


class WrongArgumentType(UserError):
    """An argument of a func that does not fit the annotation of its parameter."""

    function: str
    name: str
    wanted: str
    given: str
    code = "OCT169"
    exception = OctantsTypeError
    title = "`{function}()` takes {wanted} as `{name}`, not {given}"
    label = "called here"
    remedy = "change the argument, or the annotation of `{name}`"


class MissingReturn(UserError):
    """A function returns a value on some of its ways only."""

    name: str
    code = "OCT154"
    exception = OctantsSyntaxError
    title = "`{name}` may end without returning a value"
    label = "some paths through it return a value, others do not"
    remedy = "add a `return` at its end"


class WrongReturn(UserError):
    """Returned values that do not fit the annotation, or each other."""

    problem: str
    advice: str = ""
    code = "OCT155"
    exception = OctantsTypeError
    title = "{problem}"
    label = "returned here"


class WrongFormat(UserError):
    """A format of ``print`` or of a message that does not fit."""

    problem: str
    code = "OCT156"
    exception = OctantsCallError
    title = "{problem}"
    label = "formatted here"
    remedy = "formats are those of Python: `{{:.3f}}`, `{{:5d}}`"


class LossyAssignment(UserError):
    """A warning: an assignment that cuts off a part of a number."""

    held: str
    given: str
    what: str
    code = "OCT158"
    exception = OctantsTypeError
    title = "an {given} is assigned to an {held}: {what}"
    label = "the {given} becomes an {held} here"
    remedy = (
        "begin with a value of the wider type: `a: qd.{given} = ...`; if you mean the conversion,"
        " write it: `qd.cast(..., qd.{held})`"
    )


class HiddenArray(UserError):
    """A warning: an assignment to the name of an array makes a variable that nothing reads."""

    name: str
    advice: str
    code = "OCT164"
    exception = OctantsTypeError
    title = "`{name}` is the name of an array, which this assignment does not change"
    label = "makes a local variable, which nothing reads"


class IndexLeavesArray(UserError):
    """A warning: in some iteration of a loop, an index is outside of the array."""

    which: str
    array: str
    side: str
    extent: int
    code = "OCT171"
    exception = OctantsIndexError
    title = "an index for {which} of `{array}` goes {side} of its {extent} elements"
    label = "outside of the array in some iteration of the loop"
    remedy = (
        "end the loop earlier, or access the element under an `if`; `init(debug=True)` makes the"
        " first such access an error"
    )


class UnusedComparison(UserError):
    """A warning: a statement that is a comparison, probably instead of an assignment."""

    code = "OCT168"
    exception = OctantsTypeError
    title = "this comparison has no effect"
    label = "its result is not used"
    remedy = "to assign, write `=`"


class EndlessLoop(UserError):
    """A ``while`` whose condition is always true, and that nothing leaves."""

    code = "OCT159"
    exception = OctantsSyntaxError
    title = "this loop never ends: its condition is always true, and nothing in it leaves the loop"
    label = "always true"
    remedy = "leave it with `break` or `return`, or change the condition in the loop"
