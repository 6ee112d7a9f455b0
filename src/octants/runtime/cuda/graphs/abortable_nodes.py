"""Nodes of graphs that can be aborted: copies and fills as kernels that test a word first.

The driver's own copy and fill nodes would run even though an earlier node ran out of space for
records. These kernels test the word as the compiler's kernels do (`abi.LAUNCH_STOP`). They use no
record buffer, so they never abort a graph themselves.
"""

from __future__ import annotations

import ctypes
from ctypes import addressof, c_void_p

from octants import abi
from octants.runtime.cuda import library as cuda
from octants.runtime.cuda.context import Context
from octants.runtime.cuda.graphs.builder import DriverGraphBuilder, kernel_node
from octants.runtime.cuda.modules import PTX_HEADER, DeviceFunction, Module

_TARGET, _TARGET_STEP, _SOURCE, _SOURCE_STEP, _UNITS, _ROWS = range(0, 48, 8)
_THREADS = 256
_BLOCKS_EACH = 8  # the most blocks for each multiprocessor
_BYTES = {
    16: ("v4.u32", "{%w0, %w1, %w2, %w3}"),
    4: ("u32", "%w0"),
    2: ("u16", "%w0"),
    1: ("u8", "%w0"),
}
_REPEATED = {1: 0x01010101, 2: 0x00010001, 4: 1}

_HEAD = f"""\
{PTX_HEADER}\
.visible .entry octants_begin(
  .param .align 8 .b8 p[8], .param .align 8 .b8 l[{abi.LAUNCH_GRAPH_SIZE}])
{{
  .reg .pred %q;
  .reg .b64 %d<4>;
  ld.param.u64 %d0, [l+{abi.LAUNCH_STOP}];
  ld.u64 %d1, [%d0+{abi.STOP_NUMBER}];
  setp.ne.u64 %q, %d1, 0;
  @%q ret;
  ld.u64 %d2, [%d0+{abi.STOP_BEGUN}];
  add.u64 %d2, %d2, 1;
  st.u64 [%d0+{abi.STOP_BEGUN}], %d2;
  ret;
}}
"""

_LOOP = """\
.visible .entry octants_{name}_{size}(
  .param .align 8 .b8 p[48], .param .align 8 .b8 l[{launch}])
{{
  .reg .pred %q<4>;
  .reg .b32 %r<4>, %w<4>;
  .reg .b64 %d<16>;
  ld.param.u64 %d0, [l+{stop}];
  ld.u64 %d1, [%d0];
  setp.ne.u64 %q0, %d1, 0;
  @%q0 ret;
  ld.param.u64 %d2, [p+{units}];
  ld.param.u64 %d3, [p+{rows}];
  mul.lo.u64 %d4, %d2, %d3;
  mov.u32 %r0, %ctaid.x;
  mov.u32 %r1, %ntid.x;
  mov.u32 %r2, %tid.x;
  mov.u32 %r3, %nctaid.x;
  mul.wide.u32 %d5, %r0, %r1;
  cvt.u64.u32 %d6, %r2;
  add.u64 %d5, %d5, %d6;
  mul.wide.u32 %d6, %r3, %r1;
  setp.gt.u64 %q1, %d3, 1;
  ld.param.u64 %d7, [p+{target}];
  ld.param.u64 %d8, [p+{source}];
next:
  setp.ge.u64 %q2, %d5, %d4;
  @%q2 ret;
  mul.lo.u64 %d9, %d5, {size};
  add.u64 %d10, %d7, %d9;
  add.u64 %d11, %d8, %d9;
  @!%q1 bra move;
  div.u64 %d12, %d5, %d2;
  mul.lo.u64 %d13, %d12, %d2;
  sub.u64 %d13, %d5, %d13;
  mul.lo.u64 %d13, %d13, {size};
  ld.param.u64 %d14, [p+{target_step}];
  mad.lo.u64 %d10, %d12, %d14, %d13;
  add.u64 %d10, %d10, %d7;
  ld.param.u64 %d14, [p+{source_step}];
  mad.lo.u64 %d11, %d12, %d14, %d13;
  add.u64 %d11, %d11, %d8;
move:
  {read}
  st.global.{type} [%d10], {value};
  add.u64 %d5, %d5, %d6;
  bra next;
}}
"""


def _loop(name: str, size: int) -> str:
    """The PTX of a copy, or of a fill with a word of 4 bytes, in units of ``size`` bytes."""
    kind, value = _BYTES[size]
    word = "".join(f"cvt.u32.u64 %w{k}, %d8; " for k in range(4))
    return _LOOP.format(
        name=name,
        size=size,
        launch=abi.LAUNCH_GRAPH_SIZE,
        stop=abi.LAUNCH_STOP,
        units=_UNITS,
        rows=_ROWS,
        target=_TARGET,
        source=_SOURCE,
        target_step=_TARGET_STEP,
        source_step=_SOURCE_STEP,
        type=kind,
        value=value,
        read=f"ld.global.{kind} {value}, [%d11];" if name == "copy" else word,
    )


def code() -> str:
    """The PTX of all kernels in this module."""
    return _HEAD + "".join(_loop(name, size) for name in ("copy", "fill") for size in _BYTES)


class AbortableKernels:
    """The loaded kernels; ``word`` is the address of the word that they test."""

    def __init__(self, context: Context, module: Module, word: int) -> None:
        self.context, self.word = context, word
        self._module = module
        self._functions: dict[str, DeviceFunction] = {}

    def function(self, name: str) -> int:
        """The handle of a kernel."""
        if name not in self._functions:
            self._functions[name] = self._module.function(name)
        return self._functions[name].handle


class AbortableGraphBuilder(DriverGraphBuilder):
    """Builds a graph whose copies and fills can be aborted; the first node counts the replays."""

    def __init__(self, kernels: AbortableKernels) -> None:
        super().__init__(kernels.context)
        self._kernels = kernels
        self._add_kernel("octants_begin", [0], 1, 1)

    def clear(self, address: int, nbytes: int) -> None:
        """Add a fill with zeros."""
        self.fill_words(address, 1, 0, nbytes)

    def fill_words(self, address: int, size: int, value: int, count: int) -> None:
        """Add a fill of ``count`` words of 1, 2 or 4 bytes."""
        unit = _unit(address, size * count)
        word = _REPEATED[size] * value
        self._add_loop("fill", unit, [address, 0, word, 0, size * count // unit, 1])

    def copy_rows(
        self, target: int, target_step: int, source: int, source_step: int, nbytes: int, rows: int
    ) -> None:
        """Add a strided copy; see `gpu.driver.Queue.copy_rows`."""
        if rows == 1:
            target_step = source_step = 0
        size = _unit(target, target_step, source, source_step, nbytes)
        values = [target, target_step, source, source_step, nbytes // size, rows]
        self._add_loop("copy", size, values)

    def _add_loop(self, name: str, size: int, values: list[int]) -> None:
        count = values[_UNITS // 8] * values[_ROWS // 8]
        most = _BLOCKS_EACH * self._context.multiprocessors
        blocks = min(-(-count // _THREADS), most)
        if blocks:
            self._add_kernel(f"octants_{name}_{size}", values, blocks, _THREADS)

    def _add_kernel(self, name: str, values: list[int], blocks: int, threads: int) -> None:
        parameters = (ctypes.c_int64 * len(values))(*values)
        words = cuda.words(abi.LAUNCH_GRAPH_SIZE // 8)
        words[abi.LAUNCH_STOP // 8] = self._kernels.word
        arguments = (c_void_p * 2)(addressof(parameters), addressof(words))
        function = self._kernels.function(name)
        self.launch(kernel_node(self._context.library, function, blocks, threads, arguments))


def _unit(*numbers: int) -> int:
    """The largest unit in bytes, at most 16, that all numbers are multiples of."""
    return next(size for size in _BYTES if all(number % size == 0 for number in numbers))
