"""A kernel that copies memory, for drivers whose own copies are slower than the memory.

A thread copies 16 bytes at a time: launch word 0 is the address of the source, word 1 that of the
target, and word 2 says how many times 16 bytes there are.
"""

from __future__ import annotations

from octants.artifact import Artifact, Dispatch, ParameterLayout
from octants.codegen.spirv.compile import PLAIN, code_class
from octants.codegen.spirv.control_flow import EntryPoint
from octants.codegen.spirv.instruction_writer import SpirvCode
from octants.codegen.spirv.module_builder import Assembly
from octants.codegen.spirv.opcodes import ALIGNED, Op, StorageClass
from octants.codegen.structured.features import Features
from octants.target import Target
from octants.types.scalars import i64

NAME = "copy"
WIDTH = 16
"""The bytes that a thread copies at a time, to which addresses are aligned."""


def copy_kernel(target: Target) -> Artifact:
    """Write the kernel for a target whose memory has addresses."""
    features = Features(target, NAME)
    assembly, entry = Assembly(features), EntryPoint(PLAIN)
    number = assembly.fresh()
    code = code_class(features)(assembly, entry)
    code.write_function(number, [], None, lambda inner, _: _write(inner))
    assembly.add_entry(NAME, number, PLAIN, [])
    dispatches = (Dispatch(NAME, 0, block=PLAIN),)
    words = assembly.finish()
    return Artifact(NAME, target.triple, words, "", ParameterLayout(()), dispatches=dispatches)


def _write(code: SpirvCode) -> None:
    source, target, count = (code.launch_word(8 * position) for position in range(3))
    threads, position = code.threads(), code.variable(i64)
    code.write(position, code.thread())
    kind = code.assembly.vector(WIDTH // 4)
    pointers = code.assembly.pointer(StorageClass.PHYSICAL, kind)

    def pointer(address: int, offset: int) -> int:
        return code.assign(Op.CONVERT_U_TO_PTR, pointers, code.moved(address, offset))

    def copy() -> None:
        item = code.read(position)
        offset = code.apply("mul", i64, item, code.constant(WIDTH, i64))
        value = code.assign(Op.LOAD, kind, pointer(source, offset), ALIGNED, WIDTH)
        code.emit(Op.STORE, pointer(target, offset), value, ALIGNED, WIDTH)
        code.write(position, code.apply("add", i64, item, threads))

    code.loop(lambda: code.compare("lt", i64, code.read(position), count), copy)
