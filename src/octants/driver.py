"""The whole compiler on a page: from a Python function to code that can be launched.

    function ──build──▶ Module ──pipeline.finish──▶ Module ──compile_module──▶ LaunchableCode

`build` runs the frontend and `pipeline.lower`. `launch` may differentiate the module, and has it
compiled (`launch.bound_code`). The file also has the state that all launches share: the devices,
the random seed, the numbers of launches, the recorder.
"""

from __future__ import annotations

import atexit
import functools
import threading
import warnings
import weakref
from collections.abc import Callable, Iterator
from types import FunctionType
from typing import TYPE_CHECKING, Any, Protocol

from octants import options, timeline
from octants.artifact import Artifact, Making
from octants.backends.table import backend_of
from octants.cache import configured_store as cache
from octants.cached_property import cached_property
from octants.compile_profile import stage as timed
from octants.data import host_access_events
from octants.data.host_access_events import after_end, after_share, forget, host_reads
from octants.deferred_import import Deferred
from octants.diagnostics.exceptions import OctantsError, OctantsWarning
from octants.diagnostics.launch_errors import NoOtherDevice
from octants.diagnostics.recursion_limit import deep_recursion
from octants.diagnostics.user_frames import levels_to_the_user
from octants.garbage_collection import Uncollected
from octants.ir.core import Module
from octants.locks_at_fork import acquired_before_forks
from octants.options import Options
from octants.pass_context import Observer, Stage
from octants.runtime.arguments.parameters import InterfaceDevices
from octants.runtime.device import Device, LoadedKernel
from octants.runtime.devices.devices_in_use import DevicesInUse
from octants.slow_compiles import compiling
from octants.target import Capabilities
from octants.types.compile_time_reads import ReadKey
from octants.types.default_types import default_float, default_int
from octants.types.specialisation_signature import ArgumentType, ReturnType

if TYPE_CHECKING:
    import pathlib

    from octants import frontend, pipeline
    from octants.frontend import Built
    from octants.ir import printer
else:
    pathlib = Deferred("pathlib")
    frontend, pipeline = Deferred("octants.frontend"), Deferred("octants.pipeline")
    printer = Deferred("octants.ir.printer")

Run = Callable[[int], None]


# -- the compiler ----------------------------------------------------------------------------------


class LaunchableCode:
    """Code for a device: `run` launches it, given the address of a parameter block.

    An artifact that is still being made, or is for a device that is still starting, is loaded when
    it is launched for the first time.
    """

    def __init__(self, making: Making | None, device: Device, run: Run | None = None) -> None:
        self.making = making
        self._run = run
        self._device = device
        if making is not None and making.is_done and not self._device.is_starting:
            _ = self.kernel

    @cached_property
    def kernel(self) -> LoadedKernel | None:
        """The artifact, in memory; None where there is none."""
        if self.making is None:
            return None
        with state.compiling:
            artifact = self.making.result()
            with timed("load", artifact.name):
                return self._device.load(artifact)

    @property
    def run(self) -> Run:
        """The function that launches it."""
        if self._run is not None:
            return self._run
        assert self.kernel is not None
        return self.kernel.launch

    @property
    def artifact(self) -> Artifact | None:
        """The artifact that it is loaded from, perhaps without its `binary`."""
        return None if self.making is None else self.making.artifact


def build(
    function: FunctionType,
    arguments: list[ArgumentType],
    returns: tuple[ReturnType, ...] | None,
    chosen: Options,
    observe: Observer | None = None,
    varying: frozenset[ReadKey] = frozenset(),
) -> Built:
    """The kernel of a function for these types of arguments, lowered to tasks.

    ``returns`` are the types of its return annotation, None without one; ``varying`` are the reads
    of numbers that the kernel is not specialised for.
    """
    with timed("frontend", function.__name__) as note:
        built = frontend.build(
            function,
            arguments,
            returns=returns,
            default_int=default_int(),
            default_float=default_float(),
            debug=chosen.in_debug_mode,
            blocks=capabilities(chosen).blocks,
            varying=varying,
        )
        note.gives(built.module.size)
    compiling(built.module)
    with deep_recursion(function.__name__):
        pipeline.lower(built.module, stage_of(chosen, observe))
    return built


def stage_of(chosen: Options, observe: Observer | None = None) -> Stage:
    """How passes are run under these options."""
    if observe is None and (chosen.print_ir or chosen.dump_ir):
        observe = functools.partial(_show, chosen)
    return Stage(
        capabilities(chosen),
        verifies=chosen.in_debug_mode or options.verifies_passes(),
        observe=observe,
    )


def capabilities(chosen: Options) -> Capabilities:
    """The capabilities of the device of these options, and their demands on code for it."""
    device = None if state.devices is None else state.devices.find(chosen.device)
    return backend_of(chosen.arch).capabilities(chosen, device)


def compile_module(module: Module, chosen: Options) -> LaunchableCode:
    """Code for a lowered module."""
    _print_code(module, chosen)
    backend, device = backend_of(chosen.arch), device_of(chosen)
    if not backend.compiles:
        return LaunchableCode(None, device, backend.interpret(module, device, chosen))
    return LaunchableCode(_artifact(module, chosen), device)


def load(artifact: Artifact, chosen: Options) -> LaunchableCode:
    """The code of an artifact that was in the cache, for the device of these options."""
    return LaunchableCode(Making(artifact), device_of(chosen))


_artifacts: dict[tuple[Any, ...], Making] = {}
_MOST_ARTIFACTS = 4096
_unfinished: list[Making] = []


def _artifact(module: Module, chosen: Options) -> Making:
    """The artifact of a module, found again if one like it was compiled in this process.

    So fields of the same layout share their code, and kernels keep it across `init`. Two modules
    are alike if their texts are, apart from the source locations that messages name.
    """
    with timed("IR text", module.name):
        target = backend_of(chosen.arch).target(chosen)
        key = (printer.to_dense_text(module), module.location, target, chosen.compilation_key())
    making = _artifacts.get(key)
    if making is None:
        with timed("code", module.name, module.size) as note:
            making = backend_of(chosen.arch).begin_compile(module, chosen)
            note.gives(making.artifact.code.__len__, "bytes")
        while len(_artifacts) >= _MOST_ARTIFACTS:
            _artifacts.pop(next(iter(_artifacts)), None)
        _artifacts[key] = making
        if not making.is_done:
            _unfinished.append(making)
    return making


def unfinished() -> list[Making]:
    """The artifacts that are still being made."""
    _unfinished[:] = [making for making in _unfinished if not making.is_done]
    return list(_unfinished)


def _show(chosen: Options, name: str, module: Module) -> None:
    """Print or write what a pass left, for the options `print_ir` and `dump_ir`."""
    if chosen.print_ir:
        print(f"==== {module.name}: {name} ====\n{printer.to_text(module)}")
    if chosen.dump_ir:
        folder = pathlib.Path(chosen.debug_dump_path or "octants_ir")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{module.name}.{name}.ir").write_text(printer.to_text(module))


def _print_code(module: Module, chosen: Options) -> None:
    backend = backend_of(chosen.arch)
    texts = (
        (chosen.print_kernel_llvm_ir, backend.llvm_text),
        (chosen.print_kernel_llvm_ir_optimized, backend.optimised_llvm_text),
        (chosen.print_kernel_asm, backend.assembly_text),
    )
    for wanted, text in texts:
        if wanted:
            print(text(module, chosen))


# -- the state of launches -------------------------------------------------------------------------


class Recorder(Protocol):
    """A tape, or forward mode: while it is active, it receives each launch, and runs it.

    While `paused` is not 0, launches have no part in derivatives.
    """

    paused: int
    thread: int
    """The thread whose launches it sees."""

    def launch(self, specialisation: Any, arguments: tuple[Any, ...]) -> Any:
        """Run a launch and return what the kernel returns."""


_NUMBERS = 2**62


def launch_numbers(first: int) -> Iterator[int]:
    """The numbers of launches, from ``first`` on; the iterator knows how many are left."""
    return iter(range(first, _NUMBERS))


def take_launch_numbers(count: int) -> int:
    """Take the numbers of the next launches; the first of them."""
    first = next(state.numbers)
    state.numbers = launch_numbers(first + count)
    return first


def next_launch_number() -> int:
    """The number of the next launch."""
    return take_launch_numbers(0)


def last_number(left: int) -> int:
    """The last number that was taken from such an iterator when so many were left."""
    return _NUMBERS - 1 - left


def _nowhere(_: Any) -> None:
    """The device of an array while none is in use."""


class ThreadDraws(threading.local):
    """How many launches of a thread have drawn random numbers."""

    launches = 0


class State:
    """The state that all launches share; `driver.state` is the only one.

    `device` is the one of `init`, among the `devices` in use. `draws` counts the launches that draw
    random numbers.
    """

    def __init__(self) -> None:
        self.devices: DevicesInUse | None = None
        self.generation = 0
        self.compiling = acquired_before_forks(threading.RLock())
        self.recorder: Recorder | None = None
        self.seed = 0
        self.snapshot_budget = 0  # until it is known
        self.numbers = self.first_numbers = launch_numbers(1)
        self.specialisations: weakref.WeakSet[Any] = weakref.WeakSet()
        self.draws = ThreadDraws()

    @property
    def device(self) -> Device | None:
        """The device of `init`; None before it."""
        return None if self.devices is None else self.devices.default

    @property
    def own_recorder(self) -> Recorder | None:
        """The recorder, if it sees the launches of this thread."""
        recorder = self.recorder
        is_own = recorder is not None and recorder.thread == threading.get_ident()
        return recorder if is_own else None

    def start(self, chosen: Options) -> DevicesInUse:
        """Take a device into use, under these options; others follow when they are named."""
        self.stop()
        self.generation += 1
        self.seed = chosen.random_seed & (2**64 - 1)
        self.snapshot_budget = 0
        self.numbers = self.first_numbers = launch_numbers(1)
        self.specialisations.clear()
        cache.start(chosen)
        if cache.is_empty(chosen):  # so the first launch has to compile
            with Uncollected():
                backend_of(chosen.arch).import_compiler()
        start_another = functools.partial(_start_another, chosen)
        self.devices = DevicesInUse(_start(chosen), chosen.device, start_another)
        InterfaceDevices.number_of = self.devices.default.number_of
        return self.devices

    def stop(self) -> OctantsError | None:
        """Wait for the devices, and give them back; the first error that they have left, if any."""
        devices, self.devices, self.recorder = self.devices, None, None
        InterfaceDevices.number_of = _nowhere
        self.generation += 1
        cache.stop()
        if devices is None:
            return None
        try:
            devices.synchronize()
        except OctantsError as error:
            return error
        finally:
            devices.close()
        return None

    def synchronize(self) -> None:
        """Wait for the launches of all devices, and raise the first error of one."""
        if self.devices is not None:
            self.devices.synchronize()

    def forget_addresses(self) -> None:
        """Specialise kernels again: arrays whose addresses they hold are gone."""
        self.generation += 1

    def forget_kernels_of(self, array: Any) -> None:
        """Specialise kernels again that took an array, exported now, for the memory of no other."""
        with self.compiling:
            for each in list(self.specialisations):
                if each.relies_on_memory_of(array):
                    each.kernel.forget(each)


state = host_access_events.Clock.launches = State()
after_end.observe(state.forget_addresses)
after_share.observe(state.forget_kernels_of)


def _watch_reads() -> None:
    """Synchronise at each read of the host, since an error waits to be raised."""
    forget(_synchronize)
    host_reads.observe(_synchronize)


def _unwatch_reads() -> None:
    devices = state.devices
    if devices is None or not any(device.pending for device in devices):
        forget(_synchronize)


def _synchronize(_: Any) -> None:
    state.synchronize()


def warn_of(unraised: OctantsError | None) -> None:
    """Say what went wrong in a launch after which nothing was read."""
    if unraised is not None:
        warnings.warn(f"not raised before: {unraised}", OctantsWarning, levels_to_the_user())


@atexit.register
def _warn_at_exit() -> None:
    for each in state.devices or ():
        warn_of(each.pending.take())


def snapshot_budget() -> int:
    """How many bytes the copies of a tape may take."""
    chosen = options.current()
    if not state.snapshot_budget:
        state.snapshot_budget = chosen.snapshot_budget(capabilities(chosen).memory_bytes)
    return state.snapshot_budget


# -- devices ---------------------------------------------------------------------------------------


def make_device(chosen: Options) -> Device:
    """The device that these options ask for."""
    return backend_of(chosen.arch).make_device(chosen)


def _start(chosen: Options) -> Device:
    """Start the device that these options ask for."""
    device = make_device(chosen)
    device.number = chosen.device
    device.pending.watch, device.pending.unwatch = _watch_reads, _unwatch_reads
    return device


def _start_another(chosen: Options, number: int) -> Device:
    """Start the device with a number besides that of these options, which are in force."""
    if not backend_of(chosen.arch).has_several_devices:
        raise NoOtherDevice(number, chosen.arch, chosen.device).at()
    device, times = _start(options.replace(chosen, device=number)), timeline.active()
    if times is not None:
        timeline.record_copies(device, times)
    return device


def device() -> Device:
    """The device of `init`."""
    assert state.device is not None
    return state.device


def device_at(number: int) -> Device:
    """The device with a number, which is started at its first use.

    Raises:
        OctantsError: there is no such device here.
    """
    assert state.devices is not None
    return state.devices.at(number)


def device_of(chosen: Options) -> Device:
    """The device that these options name."""
    return device_at(chosen.device)
