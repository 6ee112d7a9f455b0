"""The backends that programs run on: each runs a program in every mode and returns its results."""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import itertools
import linecache
import re
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np

from octants.cached_property import cached_property
from octants.fuzz import foreign_arrays, profit_thresholds
from octants.fuzz.field_ndarray_conversion import ndarrays_of
from octants.fuzz.program import HOST_WRITES, FloatArray, Program, argument, resolve

Arrays = dict[str, FloatArray]
REFUSALS = (
    *("OCT245", "OCT301", "OCT302", "OCT305", "OCT315", "OCT337", "OCT423", "OCT491", "OCT494"),
    "OneByOne",
)
"""Codes of documented errors of autodiff: an order of work items that share a block, an overwritten
value, an operation without a rule, a write after the launch, a write to memory that a kernel knows
as two arrays, a kernel without an array that has a gradient, a record of a forced size that is too
small, a maximum in a kernel of several launches, and their arguments; and what says that several
adjoints must be propagated one after the other."""
RACES = ("OCT303", "OCT304")
"""Codes of the errors for programs whose work items race."""
VALIDATED = "validated tape"
AGAIN, ONCE_MORE = ", again", ", once more"
"""The suffixes of the modes of a second and a third run."""
LATE = "bare, after a write"
_MAY_REFUSE = LATE, "bare", "tape", "forward", "second", "multiples", "adjoint multiples"
GPUS = ("cuda", "amdgpu", "metal", "vulkan")
_SHARING = ("cpu", "cuda")
"""The archs with memory that can be shared with other libraries, or by two arrays."""
MULTIPLES = 1.0, -2.0, 0.5
"""The factors of a program's direction and adjoints, for launches that propagate several.
"""
THREADS = 4
"""Threads of a CPU unless a check sets them, so that results do not depend on the machine."""
OTHER = 1 + 2**-6
"""The factor of floats for launches before and between those that are compared."""
LAUNCHES_BESIDE = 3
"""How often each of two threads runs a program."""
_FLOAT = re.compile(r"(?<![\w.])\d+\.\d+(?![\w.])")
_FUNCTION = re.compile(r"^@qd\.(?:real_)?func\ndef (\w+)", re.MULTILINE)
FAST_SLACK = 64.0
"""With `fast_math` the roundings are not those that the oracle's bounds count, and some functions
of f32 have absolute errors."""


@dataclass
class Actual:
    """A program's results on a backend.

    `gradients` has an entry for each way of reverse mode that was tried: "bare", "tape", "tape with
    loss", tapes `AGAIN` and `ONCE_MORE`, and `VALIDATED` for programs that may race. In "bare" and
    "tape with loss" the adjoint of a returned float is one. `multiples` has tangents along each of
    `MULTIPLES` of the program's direction, `adjoint_multiples` gradients for each of `MULTIPLES` of
    its adjoints. `second` has the derivatives of the gradient along the direction. What raised is
    in `refusals` if it is a documented error of autodiff, else in `errors`; both are keyed by the
    mode. `beside` has what another thread found at the same time.
    """

    primal: Arrays | None = None
    returned: list[FloatArray] = field(default_factory=list)
    gradients: dict[str, Arrays] = field(default_factory=dict)
    tangent: Arrays | None = None
    second: Arrays | None = None
    multiples: list[Arrays] = field(default_factory=list)
    adjoint_multiples: list[Arrays] = field(default_factory=list)
    errors: dict[str, str] = field(default_factory=dict)
    refusals: dict[str, str] = field(default_factory=dict)
    beside: Actual | None = None
    arguments: list[list[FloatArray]] = field(default_factory=list)


@dataclass(frozen=True)
class RunConfiguration:
    """The configuration of a run."""

    options: dict[str, Any] = field(default_factory=dict)  # in addition to those of the seed
    with_seed: bool = True  # whether the options of the seed count
    arrays: str = ""  # "numpy", "strided" (of numpy) or "torch": what replaces ndarrays
    tape: dict[str, Any] = field(default_factory=dict)  # options of tapes
    all_modes: bool = False  # a tape for every program, and none over a loss that is returned
    forward: bool = True  # whether tangents are computed
    second: bool = False  # whether second derivatives are computed
    multiples: bool = False  # whether launches propagate several tangents, or several adjoints
    rebinds: bool = False  # whether other functions and constants have the names at first
    beside: bool = False  # whether another thread runs the program too; then without tapes
    machine: dict[str, Any] = field(default_factory=dict)  # capabilities other than the arch's
    thresholds: int = 0  # the seed of other thresholds of the compiler; 0: none
    without_avx512: bool = False  # whether code for a CPU uses AVX2 in place of AVX-512


class Backend(Protocol):
    """Runs programs."""

    name: str

    @property
    def sine_errors(self) -> float:
        """How much of the error of estimated sines to allow; `slack` multiplies that, too."""

    def slack(self, program: Program) -> float:
        """How many times the error of a sound implementation is allowed."""

    def run(self, programs: Sequence[Program]) -> list[Actual]:
        """The results of each program, in order."""


class PackageBackend:
    """Runs programs through the package's public names, on one of its archs."""

    def __init__(
        self, name: str, arch: str, package: str = "octants", *, fast_math: bool | None = None
    ) -> None:
        """Choose an arch, and whether programs run with `fast_math`; if None, half of them do."""
        self.name = name
        self.arch = arch
        self.fast_math = fast_math
        self.qd: Any = importlib.import_module(package)
        self.driver: Any = importlib.import_module(f"{package}.driver")
        self.configuration = RunConfiguration()
        self._started: tuple[Any, ...] | None = None
        self._runs = 0
        atexit.register(self.qd.reset)

    @cached_property
    def sine_errors(self) -> float:
        """Not 0 where `fast_math` estimates sines of f32, whose errors are absolute."""
        return 1.0 / FAST_SLACK if self._estimates_sines() else 0.0

    def _estimates_sines(self) -> bool:
        if self.arch != "vulkan":
            return self.arch == "cuda"
        name = f"{self.qd.__name__}.runtime.vulkan.physical_devices"
        return "estimates" in importlib.import_module(name).choose(0).features

    def forget(self) -> None:
        """Begin again with the next program."""
        self._started = None

    def slack(self, program: Program, configuration: RunConfiguration | None = None) -> float:
        """How many times the error is allowed in a configuration, by default the current one."""
        chosen = self._options(program, configuration or self.configuration)
        return FAST_SLACK if chosen["fast_math"] else 1.0

    def run(self, programs: Sequence[Program]) -> list[Actual]:
        with self._pretending():
            return [self._run(program) for program in programs]

    def _run(self, program: Program) -> Actual:
        self._start(program)
        if self.arch not in _SHARING:
            program = program.with_source(program.source.replace("qd.from_dlpack(", "("))
        actual, configuration = Actual(), self.configuration
        session = _attempt(
            actual, "compile", lambda: Session(self.qd, self.driver, program, configuration.arrays)
        )
        if session is None:
            return actual
        if configuration.beside:
            _run_beside(actual, session, Session(self.qd, self.driver, program))
            return actual
        if configuration.rebinds:
            session.launch_rebound()
        if _attempt(actual, "primal", lambda: session.primal(actual)) is None:
            return actual
        if configuration.arrays not in ("numpy", "strided"):
            self._differentiate(program, actual, session)
        _attempt(actual, "memory", session.surroundings.check)
        return actual

    def _differentiate(self, program: Program, actual: Actual, session: Session) -> None:
        """Run the modes of differentiation that the configuration has."""
        configuration = self.configuration
        if len(program.launches) == 1:
            _attempt(actual, "bare", lambda: session.bare(actual))
            can_be_late = not configuration.arrays and "random" not in program.source
            if "bare" in actual.gradients and can_be_late:
                _attempt(actual, LATE, lambda: session.bare(actual, LATE))
        if configuration.all_modes or "bare" not in actual.gradients or program.seed % 4 == 0:
            has_loss = not configuration.all_modes and session.returns_loss(actual)
            _attempt(actual, "tape", lambda: session.tapes(actual, has_loss, configuration.tape))
        if program.profile == "races" and not configuration.tape:
            _attempt(actual, VALIDATED, lambda: session.validated(actual))
        if configuration.forward:
            _attempt(actual, "forward", lambda: session.forward(actual))
        if configuration.multiples:
            _attempt(actual, "multiples", lambda: session.multiples(actual))
            _attempt(actual, "adjoint multiples", lambda: session.adjoint_multiples(actual))
        if configuration.second:
            _attempt(actual, "second", lambda: session.second(actual))

    def _start(self, program: Program) -> None:
        """Begin again where the options differ, and now and then to free memory."""
        chosen = self._options(program, self.configuration)
        machine = self.configuration.machine
        wanted = (program.precision, program.random_seed, chosen, machine)
        self._runs += 1
        if wanted != self._started or self._runs % 25 == 0:
            self.qd.init(
                arch=getattr(self.qd, self.arch),
                default_fp=getattr(self.qd, program.precision),
                random_seed=program.random_seed,
                **chosen,
            )
            self._started = wanted

    @contextlib.contextmanager
    def _pretending(self) -> Iterator[None]:
        """Let the compiler see capabilities and thresholds of the configuration meanwhile."""
        backend = self.driver.backend_of(getattr(self.qd, self.arch).name)
        given, facts = backend.machine, self.configuration.machine
        with contextlib.ExitStack() as stack:
            backend.machine = lambda *of: replace(given(*of), **facts)
            stack.callback(delattr, backend, "machine")
            if self.configuration.without_avx512:
                cpu: Any = importlib.import_module(f"{self.qd.__name__}.backends.cpu")
                host_target = cpu.host_target
                cpu.host_target = lambda: without_avx512(host_target())
                stack.callback(setattr, cpu, "host_target", host_target)
            thresholds = self.configuration.thresholds
            stack.enter_context(profit_thresholds.changed(self.qd.__name__, thresholds))
            yield

    def _options(self, program: Program, configuration: RunConfiguration) -> dict[str, Any]:
        chosen: dict[str, Any] = {"fast_math": True, "offline_cache": False}
        chosen |= {"opt_level": 0, "cpu_max_num_threads": THREADS}
        if configuration.with_seed:
            chosen |= options(program.seed, self.arch)
        if self.fast_math is not None:
            chosen["fast_math"] = self.fast_math
        chosen |= configuration.options
        if has_free_order(program, self.arch):
            chosen["deterministic"] = False
        return chosen


def without_avx512(target: Any) -> Any:
    """The target of a CPU, or of one with AVX2 alone."""
    if "+avx512" not in target.features:
        return target
    return replace(target, cpu="haswell", features=target.features.replace("+avx512", "-avx512"))


def has_free_order(program: Program, arch: str) -> bool:
    """Whether a program cannot be `deterministic`: on GPUs, work items that share a block."""
    return arch in GPUS and ".simt." in program.source


def options(seed: int, arch: str) -> dict[str, Any]:
    """The options that a program is run with on an arch.

    Half have `fast_math`, which is the default of `init`. Most are compiled at the quickest, a
    hundred in eight at full optimisation. Some have a tape so small that loops are recorded in
    blocks of one to a few iterations, or a forced size, or `deterministic` updates. On Vulkan half
    of the seeds leave `masks` unused, as on real GPUs.
    """
    chosen: dict[str, Any] = {
        "opt_level": 2 if seed // 100 % 8 == 0 else 0,
        "debug": seed % 16 == 5,
        "fast_math": seed // 3 % 2 == 0,
    }
    if seed % 4 == 1:
        chosen["ad_stack_budget_bytes"] = (16, 60, 200, 1000)[seed // 4 % 4]
    elif seed % 16 == 6:
        chosen["ad_stack_size"] = 1 + seed // 16 % 8
    elif seed % 16 == 10:
        chosen["deterministic"] = True
    if arch == "vulkan" and seed // 8 % 2:
        chosen["vulkan_without"] = "masks"
    return chosen


def _attempt(actual: Actual, mode: str, action: Callable[[], Any]) -> Any:
    """The result of an action, or None after noting what it raised."""
    try:
        result = action()
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        code = next((code for code in REFUSALS if code in text), None)
        if code is not None and mode in _MAY_REFUSE:
            actual.refusals[mode] = code
        else:
            actual.errors[mode] = text
        return None
    return True if result is None else result


def _run_beside(actual: Actual, session: Session, other: Session) -> None:
    """Run two copies of a program on two threads; there may be no tape, which records both."""
    actual.beside = Actual()

    def run(one: Session, found: Actual) -> None:
        for _ in range(LAUNCHES_BESIDE):
            _attempt(found, "primal", lambda: one.primal(found))
            if len(one.program.launches) == 1:
                _attempt(found, "bare", lambda: one.bare(found))

    thread = threading.Thread(target=run, args=(other, actual.beside))
    thread.start()
    run(session, actual)
    thread.join()


class Session:
    """A program's module on the package, with its arrays."""

    def __init__(self, qd: Any, driver: Any, program: Program, arrays: str = "") -> None:
        self.qd = qd
        self.driver = driver
        self.program = program
        self.surroundings = foreign_arrays.Surroundings()
        self.module = self._execute(program.source)
        if arrays:
            for name in ndarrays_of(program):
                array, has_grad = self.module[name], name in program.weights
                self.module[name] = self.surroundings.foreign(name, arrays, array, has_grad)
        self.arrays = {name: resolve(self.module, name) for name in program.inputs}
        self.differentiable = {name: self.arrays[name] for name in program.weights}

    # -- pieces ---------------------------------------------------------------------------------

    def _execute(self, source: str, what: str = "") -> dict[str, Any]:
        """The names of a module with some source."""
        program = self.program
        file = f"<fuzz {program.seed} {program.precision}{what}>"
        linecache.cache[file] = (len(source), None, source.splitlines(keepends=True), file)
        names: dict[str, Any] = {"qd": self.qd, "FP": getattr(self.qd, program.precision)}
        names["__name__"] = "__main__"  # whose functions may be rebound
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", SyntaxWarning)  # shrinking tries nonsense
            code = compile(source, file, "exec", dont_inherit=True)
        exec(code, names)
        return names

    def launch_rebound(self) -> None:
        """Launch with other functions and constants under their names, which are restored then.

        A tuple becomes a list, whose items are changed in place.
        """
        source = _FLOAT.sub(lambda found: repr(float(found[0]) * OTHER), self.program.source)
        own, others = dict(self.module), self._execute(source, ", other functions")
        floats = [name for name, value in own.items() if isinstance(value, float)]
        lists = {name: [*others[name]] for name, value in own.items() if _is_table(value)}
        rebound = {name: others[name] for name in (*_FUNCTION.findall(source), *floats)} | lists
        others |= {name: value for name, value in own.items() if name not in rebound}
        self.module.update(rebound)
        try:
            with contextlib.suppress(Exception):
                self._reset()
                self._launches()
        finally:
            self.module.update(own)
            for name, items in lists.items():
                items[:] = own[name]
                self.module[name] = items

    def _reset(self) -> None:
        self.driver.state.numbers = itertools.count(1)
        if self.program.sparse:
            self.qd.deactivate_all_snodes()
        for name, array in self.arrays.items():
            if name in self.program.sparse:
                write_elements(array, self.program.inputs[name])
            else:
                _write(array, self.program.inputs[name])

    def _launches(self) -> list[Any]:
        returned = []
        for name, arguments in self.program.launches:
            values = self._arguments(arguments)
            if name == "from_numpy":
                _write(*values)
            elif name in HOST_WRITES:
                getattr(values[0], name)(*values[1:])
            else:
                returned.append(resolve(self.module, name)(*values))
        return returned

    def _arguments(self, arguments: tuple[Any, ...]) -> list[Any]:
        values = [argument(self.module, given) for given in arguments]
        takes_constants = "qd.template()" in self.program.source
        if self.program.seed % 4 or takes_constants:
            return values
        return list(map(_as_numpy, values))

    # -- modes ----------------------------------------------------------------------------------

    def primal(self, actual: Actual) -> None:
        self._reset()
        returned = self._launches()
        actual.returned = [_flat(value) for value in returned]
        actual.primal = {name: _read(array) for name, array in self.arrays.items()}

    def bare(self, actual: Actual, mode: str = "bare") -> None:
        """``kernel.grad(...)`` after the launch; if `LATE`, the host writes an array between."""
        self._reset()
        if mode == LATE:  # such writes are found by the numbers of launches
            self.driver.state.numbers = self.driver.state.first_numbers
        self._launches()
        if mode == LATE:
            names = sorted(self.program.inputs)
            name = names[self.program.seed % len(names)]
            _write(self.arrays[name], _others(self.program.inputs[name]))
        after = {name: _read(array) for name, array in self.arrays.items()}
        self._seed()
        kernel, arguments = self.program.launches[0]
        resolve(self.module, kernel).grad(*self._arguments(arguments))
        self._gradients(actual, mode, after)

    def returns_loss(self, actual: Actual) -> bool:
        """Whether a kernel is launched alone and returns a float."""
        alone = len(self.program.launches) == 1
        return alone and actual.returned[0].dtype.kind == "f" and actual.returned[0].size == 1

    def tape(self, actual: Actual, has_loss: bool, given: dict[str, Any]) -> None:
        """A tape over all launches, whose loss may be what the kernel returns."""
        self._reset()
        kernel = resolve(self.module, self.program.kernels[0])
        with self.qd.ad.Tape(loss=kernel if has_loss else None, **given) as tape:
            self._launches()
            after = {name: _read(array) for name, array in self.arrays.items()}
            self._seed()
        if given.get("argument_gradients"):
            actual.arguments = list(self._argument_gradients(tape))
        self._gradients(actual, "tape with loss" if has_loss else "tape", after)

    def _argument_gradients(self, tape: Any) -> Iterator[list[FloatArray]]:
        """The gradients of the arguments of each launch, in order."""
        kernels = self.program.kernels
        of = {k: iter(tape.argument_gradients(resolve(self.module, k))) for k in set(kernels)}
        for kernel in kernels:
            yield [_flat(value) for value in next(of[kernel]).values()]

    def tapes(self, actual: Actual, has_loss: bool, given: dict[str, Any]) -> None:
        """A tape, and others that record the same launches again, so that reversals are replayed.

        The tapes before are alike, except for numbers that are passed to kernels, those in between
        except for what the arrays hold.
        """
        with _repeated_once(self.qd):
            launches, inputs = self.program.launches, self.program.inputs
            others = list(map(_with_other_numbers, launches))

            def tape_of_others(**changed: Any) -> None:
                self.program = replace(self.program, **changed)
                try:
                    with contextlib.suppress(Exception):
                        self.tape(Actual(), has_loss, given)
                finally:
                    self.program = replace(self.program, launches=launches, inputs=inputs)

            for _ in range(2 if others != launches else 0):
                tape_of_others(launches=others)
            self.tape(actual, has_loss, given)
            for name in (AGAIN, ONCE_MORE):
                tape_of_others(inputs={k: _others(values) for k, values in inputs.items()})
                again = Actual()
                self.tape(again, has_loss, given)
                actual.gradients |= {f"{mode}{name}": g for mode, g in again.gradients.items()}

    def validated(self, actual: Actual) -> None:
        """A tape that checks each launch for races."""
        found = Actual()
        self.tape(found, False, {"validation": True})
        actual.gradients[VALIDATED] = found.gradients["tape"]

    def _seed(self) -> None:
        for name, array in self.differentiable.items():
            if name in self.program.sparse:
                array.grad.fill(0.0)
            _write(array.grad, self.program.weights[name])

    def _gradients(self, actual: Actual, mode: str, after: Arrays) -> None:
        """Read the gradients; the primal arrays must be as the forward run left them."""
        self._require_unchanged(mode, after)
        actual.gradients[mode] = {name: _read(a.grad) for name, a in self.differentiable.items()}

    def _require_unchanged(self, mode: str, after: Arrays) -> None:
        for name, array in self.arrays.items():
            if not np.array_equal(_read(array), after[name]):
                raise AssertionError(f"{mode} reverse run changes {name}")

    def forward(self, actual: Actual) -> None:
        """Tangents of all inputs at once; read before the mode ends, which clears parameters."""
        self._reset()
        arrays = list(self.differentiable.values())
        seeds = [self.program.direction[name].ravel() for name in self.differentiable]
        with self.qd.ad.FwdMode(loss=arrays, param=arrays, seed=seeds):
            self._launches()
            actual.tangent = {name: _read(a.dual) for name, a in self.differentiable.items()}

    def multiples(self, actual: Actual) -> None:
        """Tangents along several multiples of the direction at once."""
        self._reset()
        with self._tangents().Tangents(directions=len(MULTIPLES)) as pushed:
            made = self._add_tangents(pushed, MULTIPLES)
            self._launches()
        found = {name: _read(tangent) for name, tangent in made.items()}
        for k in range(len(MULTIPLES)):
            actual.multiples.append({name: values[k] for name, values in found.items()})

    def adjoint_multiples(self, actual: Actual) -> None:
        """Gradients for several multiples of the adjoints at once."""
        self._reset()
        module = f"{self.qd.__name__}.ad.tapes.batched_tape"
        batched = importlib.import_module(module)
        gradients = batched.BatchedGradients(len(MULTIPLES))
        with batched.BatchedTape(gradients):
            self._launches()
            after = {name: _read(array) for name, array in self.arrays.items()}
            made = {name: self._seeds(name, array) for name, array in self.differentiable.items()}
            for name, array in self.differentiable.items():
                gradients.add(array, made[name], name)
        self._require_unchanged("adjoint multiples", after)
        found = {name: _read(each) for name, each in made.items()}
        for k in range(len(MULTIPLES)):
            actual.adjoint_multiples.append({name: values[k] for name, values in found.items()})

    def _seeds(self, name: str, array: Any) -> Any:
        """Multiples of the adjoint of an array; what is inactive in a sparse field has none."""
        if name in self.program.sparse:
            array.grad.fill(0.0)
        _write(array.grad, self.program.weights[name])
        seed = array.grad.to_numpy()
        made = self._tangents().make_ndarray(
            array.dtype, (len(MULTIPLES), *array.shape), element_shape=array.element_shape
        )
        made.from_numpy(np.stack([np.asarray(each * seed, seed.dtype) for each in MULTIPLES]))
        return made

    def _tangents(self) -> Any:
        return importlib.import_module(f"{self.qd.__name__}.ad.tangents")

    def _add_tangents(self, pushed: Any, multiples: Sequence[float] = ()) -> dict[str, Any]:
        """Give each array the program's direction as tangent, or several multiples of it."""
        made = {}
        batch = (len(multiples),) if multiples else ()
        for name, array in self.differentiable.items():
            shape = (*batch, *array.shape)
            made[name] = self._tangents().make_ndarray(
                array.dtype, shape, element_shape=array.element_shape, needs_grad=True
            )
            direction = np.asarray(self.program.direction[name], array.dtype.numpy)
            all_ = [np.asarray(each * direction, direction.dtype) for each in multiples]
            made[name].from_numpy(np.stack(all_) if multiples else direction)
            pushed.add(array, made[name])
        return made

    def second(self, actual: Actual) -> None:
        """The gradient of the tangents' functional: a product with its Hessian."""
        self._reset()
        with self.qd.ad.Tape() as tape, self._tangents().Tangents(tape) as pushed:
            made = self._add_tangents(pushed)
            self._launches()
            after = {name: _read(array) for name, array in self.arrays.items()}
            for name, tangent in made.items():
                _write(tangent.grad, self.program.weights[name])
        self._gradients(actual, "second", after)
        actual.second = actual.gradients.pop("second")


@contextlib.contextmanager
def _repeated_once(qd: Any) -> Iterator[None]:
    """Have the second tape alike captured, where others wait for more."""
    repeated: Any = importlib.import_module(f"{qd.__name__}.ad.overwrites.repeated_reversals")
    usual, repeated.REPEATED = repeated.REPEATED, 1
    try:
        yield
    finally:
        repeated.REPEATED = usual


def _is_table(value: Any) -> bool:
    return isinstance(value, tuple) and all(isinstance(item, float) for item in value)


def _as_numpy(value: Any) -> Any:
    """An integer as one of numpy, whose arithmetic wraps where it can: of the smallest type."""
    return np.min_scalar_type(value).type(value) if type(value) is int else value


def _with_other_numbers(launch: tuple[str, tuple[Any, ...]]) -> tuple[str, tuple[Any, ...]]:
    """A launch with slightly other floats among its arguments."""
    name, arguments = launch
    return name, tuple(a * OTHER if isinstance(a, float) else a for a in arguments)


def _others(values: FloatArray) -> FloatArray:
    """Slightly other floats, and the same integers, which may be indices."""
    return values * OTHER if values.dtype.kind == "f" else values


def _write(array: Any, values: FloatArray) -> None:
    if not hasattr(array, "from_numpy"):  # an array of numpy, or a tensor
        array[...] = foreign_arrays.like(array, values)
        return
    array.from_numpy(np.asarray(values, dtype=array.to_numpy().dtype, order="C"))


def write_elements(array: Any, values: FloatArray) -> None:
    """Write the elements of a sparse field that are not zero, which activates them."""
    rank = len(array.shape)
    for index in np.argwhere(values.reshape(*values.shape[:rank], -1).any(axis=-1)):
        array[tuple(map(int, index))] = values[tuple(index)].tolist()


def _read(array: Any) -> FloatArray:
    if hasattr(array, "to_numpy"):
        return np.array(array.to_numpy())
    return np.array(array.numpy() if hasattr(array, "numpy") else array)


def _flat(value: Any) -> FloatArray:
    if value is None:
        return np.zeros(0)
    return np.asarray(value.to_numpy() if hasattr(value, "to_numpy") else value).ravel()


_ARCHS = {name: name for name in ("cpu", *GPUS)} | {"interpreter": "python"}
BACKENDS: dict[str, Callable[[], PackageBackend]] = {
    name + suffix: functools.partial(PackageBackend, name + suffix, arch, fast_math=fast)
    for name, arch in _ARCHS.items()
    for suffix, fast in {"": None, "-fast": True, "-strict": False}.items()
    if name != "interpreter" or not suffix
}
"""``cpu-fast`` is the CPU with `fast_math`, ``cpu-strict`` without."""
