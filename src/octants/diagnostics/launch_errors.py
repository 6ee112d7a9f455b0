"""The mistakes around a launch: OCT4xx, options, arguments and calls."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import (
    OctantsArgumentError,
    OctantsAttributeError,
    OctantsCallError,
    OctantsImportError,
    OctantsRuntimeTypeError,
    OctantsSyntaxError,
    OctantsTypeError,
    OctantsValueError,
)


class NotInitialised(UserError):
    """Something that needs `init` was done before it."""

    code = "OCT401"
    title = "Octants is not initialised"
    remedy = "call `qd.init()` first; after `qd.reset()` call it again"


class UnknownOption(UserError):
    """A keyword of `init` that does not exist."""

    name: str
    advice: str
    code = "OCT402"
    title = "`init` has no option `{name}`"


class WrongOption(UserError):
    """A value that an option of `init` cannot hold."""

    name: str
    wanted: str
    given: str
    code = "OCT403"
    title = "the option `{name}` cannot be {given}"
    remedy = "it is {wanted}"


class IneffectiveOption(UserError):
    """A warning: an option of `init`, or of a decorator, that changes nothing."""

    name: str
    given: str
    advice: str
    code = "OCT427"
    title = "`{name}={given}` has no effect"


class IgnoredMethod(UserError):
    """A warning: a method of a class that becomes a struct type, which nothing will call."""

    cls: str
    method: str
    code = "OCT477"
    title = "`{cls}` is a struct: nothing calls its `{method}`"
    remedy = "make structs by `{cls}(...)` of the members, or by a static method of your own"


class ProfilerIsOff(UserError):
    """A warning: the profiler is queried, but nothing was recorded."""

    code = "OCT405"
    title = "the profiler is off"
    remedy = "switch it on by `qd.init(kernel_profiler=True)`, before the launches"


class MissingBackend(UserError):
    """An architecture that this installation cannot run on."""

    arch: str
    reason: str
    code = "OCT404"
    title = "arch `{arch}` is not available: {reason}"
    remedy = (
        "use `qd.init(arch=qd.cpu)`, or `arch=qd.gpu`, which takes the best device that there is"
    )


class NoOtherDevice(UserError):
    """A device is named besides that of `init`, where a process uses one."""

    number: int
    arch: str
    own: int
    code = "OCT488"
    exception = OctantsValueError
    title = "there is no device {number} here: on arch `{arch}`, a process uses one device"
    remedy = "leave out `device`, or name the device of `init`, which is {own}"


class ArraysOnTwoDevices(UserError):
    """A kernel is launched with arrays on two devices."""

    kernel: str
    one: str
    one_device: int
    other: str
    other_device: int
    code = "OCT489"
    title = (
        "kernel `{kernel}`: `{one}` is on device {one_device}, and `{other}` on device"
        " {other_device}"
    )
    label = "launched here"
    remedy = (
        "a kernel runs on one device: copy one of them to that of the other, an ndarray by"
        " `x.to(device)`, any array by `y.copy_from(x)`"
    )


class EventOfOtherDevice(UserError):
    """An event is recorded in a stream of another device than its own."""

    device: int
    stream_device: int
    code = "OCT490"
    title = "the event is one of device {device}, and the stream one of device {stream_device}"
    remedy = "create it for the stream's device: `qd.create_event(device={stream_device})`"


class MissingAnnotation(UserError):
    """A parameter of a kernel without a type."""

    kernel: str
    parameter: str
    code = "OCT410"
    exception = OctantsSyntaxError
    title = "parameter `{parameter}` of kernel `{kernel}` has no annotation"
    label = "it needs a type"
    remedy = "annotate it with a scalar type, `qd.types.ndarray()`, `qd.template()`, or a struct"


class WrongAnnotation(UserError):
    """A parameter or return value of a kernel whose annotation is not a type of the language."""

    kernel: str
    what: str
    annotation: str
    code = "OCT411"
    exception = OctantsSyntaxError
    title = "{what} of kernel `{kernel}` is annotated with {annotation}, which kernels cannot use"
    label = "not a type of the language"
    remedy = (
        "use a scalar type, `qd.types.vector(n, dtype)`, `qd.types.ndarray()` or `qd.template()`"
    )


class WrongAnnotationOption(UserError):
    """An option of ``types.ndarray(...)`` with a value that it cannot have."""

    name: str
    given: str
    choices: str
    code = "OCT426"
    exception = OctantsSyntaxError
    title = "`{name}` of an array's annotation cannot be {given}"
    remedy = "it is one of {choices}"


class VariableArguments(UserError):
    """``*args`` or ``**kwargs`` in the signature of a kernel."""

    kernel: str
    parameter: str
    code = "OCT412"
    exception = OctantsSyntaxError
    title = "kernel `{kernel}` has the parameter `{parameter}`; a kernel has a fixed number of them"
    label = "any number of arguments"
    remedy = "name each parameter, or pass one vector or ndarray"


class WrongCall(UserError):
    """A call whose arguments cannot be bound to the parameters."""

    kernel: str
    problem: str
    signature: str
    code = "OCT413"
    exception = OctantsCallError
    title = "kernel `{kernel}`: {problem}"
    notes = ("its signature is `{signature}`",)


class WrongArgument(UserError):
    """An argument that does not fit its annotation."""

    kernel: str
    parameter: str
    problem: str
    advice: str = ""
    code = "OCT414"
    exception = OctantsArgumentError
    title = "kernel `{kernel}`, argument `{parameter}`: {problem}"


class WrongInspection(UserError):
    """A mode of ``kernel.inspect`` that does not exist."""

    mode: str
    modes: str
    code = "OCT416"
    exception = OctantsValueError
    title = "`inspect` has no mode `{mode}`"
    remedy = "it is one of {modes}"


class MissingMethodOwner(UserError):
    """A kernel of a class that was called without an object."""

    kernel: str
    code = "OCT415"
    title = "kernel `{kernel}` is a method: call it on an object of its class"
    remedy = "decorate the class with `@qd.data_oriented` and call `object.{kernel}(...)`"


class MethodWithoutSelf(UserError):
    """A kernel written in a class without ``self``, called on an object."""

    kernel: str
    code = "OCT428"
    exception = OctantsTypeError
    title = "kernel `{kernel}` takes no `self`, and is called on an object"
    remedy = "add `self` as its first parameter, or put `@staticmethod` above `@qd.kernel`"


class WrongStream(UserError):
    """Something that is no stream was to be one."""

    what: str
    given: str
    code = "OCT417"
    exception = OctantsRuntimeTypeError
    title = "{what} cannot be of type {given}"
    remedy = (
        "create a stream with `qd.create_stream()`, or wrap a stream of another library, as in"
        " `qd.Stream(torch.cuda.current_stream().cuda_stream)`"
    )


class EndedQueue(UserError):
    """A stream or an event of an earlier `init` was used."""

    what: str
    code = "OCT418"
    title = "the {what} was made before the last `qd.init()` or `qd.reset()`, which ended it"
    remedy = "create a new one after `qd.init()`: `qd.create_{what}()`"


class DestroyedQueue(UserError):
    """A stream or event that was destroyed."""

    what: str
    code = "OCT439"
    title = "this {what} was destroyed"
    remedy = "create a new one: `qd.create_{what}()`"


class QuadrantsIsImported(UserError):
    """`octants.compat.install` after an import of Quadrants itself."""

    origin: str
    code = "OCT419"
    title = "Octants cannot take the place of Quadrants, which is imported already ({origin})"
    remedy = (
        "call `octants.compat.install()` before anything imports `quadrants`, or run the program"
        " with `python -m octants.compat program.py`"
    )


# -- names of other compilers ----------------------------------------------------------------------


class AbsentName(UserError):
    """A name of another library that Octants does not have."""

    name: str
    advice: str
    code = "OCT480"
    exception = OctantsAttributeError
    title = "Octants has no `{name}`"


class AbsentModule(UserError):
    """An import of something of another library that Octants does not have."""

    name: str
    advice: str
    code = "OCT481"
    exception = OctantsImportError
    title = "Octants has no `{name}`"


class KernelNotImportable(UserError):
    """A kernel was to be pickled that no import finds."""

    kernel: str
    code = "OCT469"
    exception = OctantsRuntimeTypeError
    title = "kernel `{kernel}` cannot be pickled: no module or class has it by its name"
    remedy = (
        "define it at the top level of a module, or in a class there;"
        " `cloudpickle.dumps` also takes kernels that are defined elsewhere"
    )


class SlowCompile(UserError):
    """A warning: a compile that takes long, at the line that most of it is for."""

    kernel: str
    seconds: str
    total: str
    count: str
    code = "OCT429"
    title = "compiling `{kernel}` takes long: {seconds} s so far, for {total} operations"
    label = "{count} of them come from here"
    notes = (
        "loops over `qd.static` are unrolled, and funcs are inlined at each call",
        "an operation on a local vector or matrix counts once for each component",
    )
    remedy = (
        "loop at run time where you can, keep large vectors in a field or an ndarray, and cut the"
        " kernel into several; the result is kept on disk, and the next start takes it from there"
    )
