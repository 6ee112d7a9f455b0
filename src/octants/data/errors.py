"""The mistakes with fields, ndarrays and host access: OCT5xx."""

from __future__ import annotations

import enum

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsArgumentError,
    OctantsAttributeError,
    OctantsCompilationError,
    OctantsHostIndexError,
    OctantsMemoryError,
    OctantsRuntimeTypeError,
    OctantsValueError,
)
from octants.types.matrix_values import Matrix

# -- making arrays ---------------------------------------------------------------------------------


class WrongDtype(UserError):
    """A dtype that is not one."""

    what: str
    problem: str
    code = "OCT501"
    exception = OctantsArgumentError
    title = "{what}: {problem}"
    remedy = "pass a type such as `qd.f32`, `float`, or `qd.types.vector(3, qd.f32)`"


class WrongExtents(UserError):
    """A shape or the dimensions of a block that cannot be."""

    what: str
    given: str
    least: int
    code = "OCT502"
    exception = OctantsArgumentError
    title = "{what}: the shape cannot be {given}"
    remedy = "a shape is an integer or a tuple of integers, each at least {least}"


class ExtentTooLarge(UserError):
    """An axis with indices that an i32 cannot hold."""

    what: str
    given: str
    code = "OCT507"
    exception = OctantsValueError
    title = "{what}: indices are i32, too narrow for {given}"
    remedy = "an axis has at most 2147483647 elements, its offset included: use more axes"


class WrongElementShape(UserError):
    """A number of rows or columns that cannot be."""

    what: str
    given: str
    code = "OCT503"
    exception = OctantsValueError
    title = "{what}: an element cannot have the shape {given}"
    remedy = "the numbers of rows and columns are integers of at least 1"


class NotDifferentiable(UserError):
    """A gradient of a type that has none."""

    what: str
    dtype: str
    companion: str
    code = "OCT504"
    title = "{what}: {dtype} has no {companion}; only f16, f32 and f64 have"
    remedy = "leave out `needs_grad` and `needs_dual`, or use a floating-point type"


class WrongArrayOption(UserError):
    """A keyword of `field` or `tensor` with a value that it cannot have."""

    what: str
    option: str
    problem: str
    advice: str = ""
    code = "OCT505"
    exception = OctantsValueError
    title = "{what}: `{option}` {problem}"


class OutOfMemory(UserError):
    """The device refused memory."""

    what: str
    size: str
    code = "OCT506"
    exception = OctantsMemoryError
    title = "{what} needs {size} of memory, more than the device has left"
    remedy = "make it smaller, use a narrower type, or free other arrays"


# -- placing fields --------------------------------------------------------------------------------


class NotPlaced(UserError):
    """A field was used before it was placed."""

    name: str
    code = "OCT510"
    title = "the {name} is used, but it has no shape and is not placed"
    remedy = "give it a shape, or place it: `qd.root.dense(qd.i, n).place(x)`"


class PlacedTwice(UserError):
    """A field was placed a second time."""

    name: str
    code = "OCT511"
    title = "the {name} is placed already"
    remedy = "place each field once; a field with a shape is placed already"


class CannotPlace(UserError):
    """Something else than a field was to be placed."""

    given: str
    code = "OCT512"
    exception = OctantsRuntimeTypeError
    title = "place() was given {given}, which is not a field"
    remedy = (
        "pass fields, their `.grad` or `.dual`, or lists of them; a field can get a gradient until"
        " its first use, when it gets its memory"
    )


class WrongAxes(UserError):
    """The axes of a block, or their number, cannot be."""

    problem: str
    code = "OCT513"
    exception = OctantsValueError
    title = "{problem}"
    remedy = "axes are `qd.i`, `qd.ij`, ... or `qd.axes(0, 2)`, each once, with an extent for each"


class TreeIsAllocated(UserError):
    """A tree was changed after its memory was allocated."""

    what: str
    code = "OCT514"
    title = "{what}: the memory of this tree is allocated already"
    notes = ("a tree is allocated when one of its fields is first used",)
    remedy = (
        "place all its fields before that; or start again from `qd.root`, which is a new tree now"
    )


class NotFinalized(UserError):
    """A field of a `FieldsBuilder` was used before `finalize`."""

    name: str
    code = "OCT515"
    title = "the {name} is used, but its FieldsBuilder is not finalized"
    remedy = "call `finalize()` on the builder first"


class BuilderIsFinalized(UserError):
    """A `FieldsBuilder` was used after `finalize`."""

    code = "OCT509"
    title = "this FieldsBuilder is finalized: nothing can be added to its tree"
    remedy = "make another `qd.FieldsBuilder()`"


class UnevenComponents(UserError):
    """Components of vectors that were placed one by one have no common spacing."""

    name: str
    code = "OCT522"
    exception = OctantsValueError
    title = "the components of the {name} are not placed at equal distances"
    remedy = (
        "place all components in blocks of the same shape, in order; `layout=qd.Layout.SOA` does it"
    )


class MissingComponents(UserError):
    """Only some components of a field of vectors are placed."""

    name: str
    placed: int
    count: int
    code = "OCT523"
    title = "the {name} is used, but only {placed} of its {count} components are placed"
    remedy = "place them all, or the field as a whole"


class WrongCompanionShape(UserError):
    """A gradient was placed with another shape than its field."""

    name: str
    shape: str
    companion: str
    companion_shape: str
    code = "OCT516"
    exception = OctantsValueError
    title = "the {name} has {shape}, but its {companion} was placed with {companion_shape}"
    remedy = "place both in blocks of the same shape and with the same offset"


class CompanionWithoutField(UserError):
    """A gradient was placed, but not what it is the gradient of."""

    name: str
    companion: str
    code = "OCT517"
    title = "the {companion} of the {name} is placed, but the field itself is not"
    remedy = "place the field too: `block.place(x, x.grad)`"


class CompanionOnOtherDevice(UserError):
    """A gradient or a dual was placed in a tree on another device than its field's."""

    what: str
    device: int
    companion: str
    companion_device: int
    code = "OCT508"
    title = "{what} is on device {device}, and its {companion} on device {companion_device}"
    remedy = "place both in trees on the same device"


class MissingCompanion(UserError):
    """A gradient or dual that does not exist was used."""

    name: str
    companion: str
    keyword: str
    attribute: str
    code = "OCT518"
    title = "the {name} has no {companion}"
    remedy = (
        "create it with `{keyword}=True`; or, for fields, call `block.place(x, x.{attribute})` or"
        " `qd.root.lazy_{attribute}()` before the first use"
    )


class UnsupportedNode(UserError):
    """A sparse or quantised kind of block."""

    kind: str
    advice: str
    code = "OCT519"
    title = "blocks of kind `{kind}` are not supported yet"


# -- the life of arrays ----------------------------------------------------------------------------


class UsedAfterReset(UserError):
    """An array of an earlier `init` was used."""

    what: str
    code = "OCT520"
    title = (
        "the {what} was made before the last `qd.init()` or `qd.reset()`, which freed its memory"
    )
    remedy = "create it again after `qd.init()`"


class UsedAfterDestroy(UserError):
    """A field of a destroyed tree was used."""

    what: str
    code = "OCT521"
    title = "the {what} was used after its tree was destroyed"
    remedy = "call `destroy()` only when the fields of the tree are no longer needed"


# -- access from the host --------------------------------------------------------------------------

IS_KERNEL_MISSING = (
    "outside of kernels, `for i in x` goes over the elements of `x`: if this is a kernel, put"
    " `@qd.kernel` above it"
)


class WrongNumberOfIndices(UserError):
    """Too many or too few indices."""

    what: str
    axes: int
    given: str
    advice: str = "give one index or slice per axis, None where there is no axis"
    code = "OCT530"
    exception = OctantsHostIndexError
    title = "{what} has {axes} axes, but its index is {given}"


class WrongIndex(UserError):
    """An index that is not an integer."""

    what: str
    given: str
    advice: str = "`x.to_numpy()` can be indexed by arrays"
    code = "OCT531"
    exception = OctantsRuntimeTypeError
    title = "{what}: an index is an integer, not {given}"


class IndexOutOfRange(UserError):
    """An index outside of the array."""

    what: str
    index: int
    axis: int
    first: int
    last: int
    code = "OCT532"
    exception = OctantsHostIndexError
    title = (
        "{what}: index {index} is out of range on axis {axis}, which goes from {first} to {last}"
    )


class WrongView(UserError):
    """A part of an array that no view can be."""

    problem: str
    advice: str
    code = "OCT542"
    exception = OctantsValueError
    title = "a BufferView cannot be {problem}"


class GradientAssigned(UserError):
    """An assignment to the gradient, or the dual, of an array, which is an array of its own."""

    name: str
    code = "OCT543"
    exception = OctantsAttributeError
    title = "`x.{name}` cannot be another array: it is a part of `x`"
    notes = ("an array has a gradient if it is made with `needs_grad=True`",)
    remedy = (
        "write to its elements: `x.{name}.copy_from(y)`, `x.{name}.from_numpy(values)`,"
        " `x.{name}.fill(0)`, or `x.{name}[i] = value`"
    )


class WrongValue(UserError):
    """A value that an array cannot hold."""

    what: str
    given: str
    wanted: str
    advice: str = ""
    code = "OCT533"
    exception = OctantsRuntimeTypeError
    title = "{what}: cannot store {given}; {wanted} is needed"


class ValueChanges(UserError):
    """A warning: a number from the host is another one in the type of an array."""

    what: str
    given: str
    dtype: str
    stored: str
    code = "OCT534"
    exception = OctantsCompilationError
    title = "{what}: {given} becomes {stored} in {dtype}"
    remedy = "convert the value first, or use an array of a type that can hold it"


class NotOneNumber(UserError):
    """An array of several elements stands where a number is needed."""

    what: str
    shape: str
    code = "OCT540"
    exception = OctantsRuntimeTypeError
    title = "{what} of shape {shape} is not one number"
    remedy = "read an element, `x[i]`, or all by `x.to_numpy()`"


class NotIterable(UserError):
    """A loop of the host over an array that has not exactly one axis."""

    what: str
    rank: int
    code = "OCT541"
    exception = OctantsRuntimeTypeError
    title = "{what} has {rank} axes; the host can loop over arrays with one axis only"
    remedy = "loop over `x.to_numpy()`; if this is a kernel, put `@qd.kernel` above it"


class WrongArrayShape(UserError):
    """An array of another shape was to be copied into ours."""

    what: str
    needed: str
    given: str
    code = "OCT535"
    exception = OctantsValueError
    title = "{what}: an array of shape {needed} is needed, not {given}"


class WrongArray(UserError):
    """Something that is not the array that is needed."""

    what: str
    given: str
    needed: str
    advice: str = ""
    code = "OCT536"
    exception = OctantsRuntimeTypeError
    title = "{what} takes {needed}, not {given}"


class CannotShare(UserError):
    """The memory of an array cannot be given away without a copy."""

    what: str
    problem: str
    advice: str = "leave out `copy=False`"
    code = "OCT537"
    exception = OctantsValueError
    title = "{what}: {problem}"


class ReadOnly(UserError):
    """The host was to write the memory of a library that does not allow it."""

    what: str
    code = "OCT539"
    exception = OctantsValueError
    title = "the {what} shares memory that another library has marked as read-only"
    remedy = "copy it: `y = qd.ndarray(...)`, `y.copy_from(x)`"


class CannotCopy(UserError):
    """A field was to be pickled, or deep-copied as a Python object."""

    what: str
    code = "OCT538"
    exception = OctantsRuntimeTypeError
    title = (
        "{what} cannot be pickled or copied by `copy.deepcopy`: it is a part of a tree of fields"
    )
    remedy = (
        "use `to_numpy` and `from_numpy`, or `copy_from` another field; ndarrays can be pickled"
    )


def describe(value: object) -> str:
    """A value in the words of a message."""
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, (bool, int, float, complex, str, list, tuple, type, type(None))):
        text = repr(value)
        return text if len(text) <= 60 else f"{text[:57]}..."
    if isinstance(value, Matrix):
        return f"a vector of {value.n}" if value.m == 1 else f"a {value.n}x{value.m} matrix"
    kind = type(value)
    module = kind.__module__.partition(".")[0]
    owner = "" if module in ("builtins", "octants") else f"{module}."
    return f"a {owner}{kind.__qualname__}"
