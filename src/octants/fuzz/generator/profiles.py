"""The profiles: which productions a program is made of besides those of the core."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from octants.fuzz.generator import (
    bit_merges,
    changing_shapes,
    containers,
    cooperation,
    custom_adjoints,
    data_oriented_classes,
    edges,
    field_layouts,
    functions,
    graphs,
    integer_widths,
    integer_wrapping,
    linear_algebra,
    long_vectors,
    loops,
    matches,
    ndarray_views,
    nested_sums,
    nests,
    pairs,
    quantised_fields,
    racy_loops,
    ragged,
    reductions,
    returned_updates,
    shared_memory,
    sparse_fields,
    static_expressions,
    stencils,
    structs,
)
from octants.fuzz.generator.context import Context, Productions


@dataclass(frozen=True)
class Profile:
    """The grammar of a profile's programs, and how many funcs and kernels they may have."""

    purpose: str
    productions: Sequence[Productions] = ()
    funcs: Sequence[int] = (0, 0, 0, 1, 1, 2)
    kernels: Sequence[int] = (1, 1, 1, 1, 2)
    sequences: float = 0.25  # how often launches are repeated, with host writes between them
    writes: Sequence[str] = ("fill", "copy_from", "__setitem__")  # by the host
    sizes: Sequence[float] = (0.2, 0.35, 0.5)  # of functions, relative to the largest
    items: Sequence[int] = ()  # work items of a parallel loop, if not three to five
    body: Callable[[Context], list[racy_loops.Scalar]] | None = None  # writes all of a kernel


PROFILES = {
    "core": Profile(
        "control flow, locals, vectors and matrices, arrays, atomics", sizes=(0.35, 0.6, 1.0)
    ),
    "structs": Profile("structs with methods, fields of them", (structs.PRODUCTIONS,), (0, 1, 2)),
    "objects": Profile(
        "data_oriented classes, whose attributes change between launches; dataclasses of arrays",
        (data_oriented_classes.PRODUCTIONS,),
        (0, 1, 2, 3),
        sequences=0.6,
    ),
    "wrapping": Profile(
        "integers near the ends of their types, in indices, divisors and bounds of loops",
        (integer_wrapping.PRODUCTIONS,),
        items=(1, 2, 3, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 33),
    ),
    "types": Profile(
        "integers of all widths, atomics of all kinds, bit casts, f16",
        (integer_widths.PRODUCTIONS,),
    ),
    "bits": Profile(
        "integers whose bits come from several numbers, by masks and conditions",
        (bit_merges.PRODUCTIONS,),
        funcs=(0,),
        sequences=0.1,
        items=(1, 2, 3, 4, 5, 8, 9, 17),
        body=bit_merges.body,
    ),
    "layouts": Profile(
        "fields of three axes in any order of memory, ndranges of three",
        (field_layouts.PRODUCTIONS,),
    ),
    "quantised": Profile(
        "fields of a few bits that share words",
        (quantised_fields.PRODUCTIONS, integer_widths.PRODUCTIONS),
    ),
    "sparse": Profile(
        "sparse fields: pointer, bitmasked and dynamic blocks",
        (sparse_fields.PRODUCTIONS,),
        writes=("fill", "copy_from", "__setitem__", "from_numpy"),
    ),
    "collections": Profile(
        "views of ndarrays; dicts, lists and comprehensions",
        (ndarray_views.PRODUCTIONS, containers.PRODUCTIONS),
        writes=("fill", "copy_from", "__setitem__", "from_numpy"),
    ),
    "graphs": Profile(
        "loops of `graph.do_while`, sections that may run at the same time",
        (graphs.PRODUCTIONS,),
        sizes=(0.2, 0.3),
    ),
    "vectors": Profile(
        "local vectors of eight components and more, by run-time indices in loops",
        (long_vectors.PRODUCTIONS,),
        sizes=(0.35, 0.6),
        items=(3, 4, 5, 9, 12, 33),
    ),
    "features": Profile(
        "short loops that compute the same functions in each iteration of the loop around them;"
        " recurrences of sums of recurrences; operations of loops that never run",
        (loops.FEATURES,),
    ),
    "reductions": Profile(
        "loops with several sums, counts, flags and extrema, which later statements read; sums over"
        " pairs of rows",
        (reductions.PRODUCTIONS,),
        (0, 0, 1),
        sizes=(0.1, 0.2),
        items=(1, 2, 3, 3, 4, 5, 8, 17),
    ),
    "nests": Profile(
        "nests of three to five loops that update matrices and vectors in place, such as"
        " factorisations",
        (nests.PRODUCTIONS,),
        funcs=(0,),
        sequences=0.4,
        items=(1, 2, 3, 4, 5, 8, 9, 17, 33),
        body=nests.body,
    ),
    "rows": Profile(
        "nests that read a row again, behind others that add to it, store in it, or run never",
        (nests.ROWS,),
        funcs=(0,),
        sequences=0.4,
        items=(2, 3, 4, 5, 8, 9, 17, 33),
        body=nests.rows_body,
    ),
    "sums": Profile(
        "nests of two to five loops that add up functions of what loops in them add up",
        (nested_sums.PRODUCTIONS,),
        funcs=(0,),
        sequences=0.2,
        items=(1, 2, 3, 5),
        body=nested_sums.body,
    ),
    "pairs": Profile(
        "sums over all pairs of rows, whose gradients add to both",
        (pairs.PRODUCTIONS,),
        funcs=(0,),
        sequences=0.3,
        items=(4, 5, 8, 9, 12, 17, 20),
        body=pairs.body,
    ),
    "ragged": Profile(
        "loops whose work items load the bounds of their own loops",
        (ragged.PRODUCTIONS,),
        funcs=(0,),
        sequences=0.4,
        items=(2, 3, 5, 17, 33, 70, 260, 300),
        body=ragged.body,
    ),
    "shapes": Profile(
        "kernels that are launched with arrays of several shapes",
        (changing_shapes.PRODUCTIONS,),
        funcs=(0,),
        sequences=0.4,
        body=changing_shapes.body,
    ),
    "statics": Profile(
        "`static` around literals and in conditions; the `else` of loops",
        (static_expressions.PRODUCTIONS, loops.ELSE),
    ),
    "matches": Profile(
        "`match` on values; parallel loops that assign variables from before them, and have an"
        " `else`",
        (matches.PRODUCTIONS,),
        sizes=(0.2, 0.35),
    ),
    "edges": Profile(
        "ndarrays with clamped indices; loops in an order of axes; swizzles that are assigned",
        (edges.PRODUCTIONS,),
        sizes=(0.2, 0.35, 0.5),
        items=(1, 2, 3, 4, 5, 8, 17),
    ),
    "adjoints": Profile(
        "funcs with adjoints of their own", (custom_adjoints.PRODUCTIONS,), (0, 0, 1)
    ),
    "recursion": Profile(
        "funcs that call themselves", (functions.RECURSION, structs.PRODUCTIONS), funcs=(1, 2, 2)
    ),
    "races": Profile(
        "loops whose work items may race: such programs have to be refused (OCT303) or reported"
        " (OCT304), all others give their gradient",
        (racy_loops.PRODUCTIONS,),
        funcs=(0,),
        kernels=(1, 1, 2),
        sequences=0.0,
        items=(2, 3, 4, 5, 8, 9, 16, 17),
        body=racy_loops.body,
    ),
    "returned": Profile(
        "loops of one work item that go on with what atomics return, and read the arrays again",
        (returned_updates.PRODUCTIONS,),
        funcs=(0,),
        sequences=0.3,
        items=(4,),
        body=returned_updates.body,
    ),
    "blocks": Profile(
        "loops whose work items share a block: shared arrays, barriers, sums, scans, shuffles",
        (cooperation.PRODUCTIONS,),
        funcs=(0, 0, 1),
        sequences=0.2,
        items=(1, 3, 7, 8, 11, 16, 17, 33),
        body=cooperation.body,
    ),
    "shared": Profile(
        "ndarrays in the memory of fields and of other ndarrays, by DLPack",
        (shared_memory.PRODUCTIONS,),
        sizes=(0.2, 0.35, 0.6),
        items=(1, 1, 2, 3, 4, 5, 8, 17),
    ),
    "sequences": Profile(
        "several kernels that share arrays, with writes by the host between them",
        kernels=(2, 2, 3, 4),
        sequences=1.0,
        writes=("fill", "copy_from", "__setitem__", "from_numpy"),
        sizes=(0.2, 0.3),
    ),
    "mixed": Profile(
        "all of these",
        (
            structs.PRODUCTIONS,
            integer_widths.PRODUCTIONS,
            field_layouts.PRODUCTIONS,
            data_oriented_classes.PRODUCTIONS,
        ),
        funcs=(0, 1, 2),
        kernels=(1, 2, 3),
        sequences=0.5,
        writes=("fill", "copy_from", "__setitem__", "from_numpy"),
    ),
    "stencils": Profile(
        "loops that read neighbours at constant distances, or add to them; boundaries of all kinds",
        (stencils.PRODUCTIONS,),
        funcs=(0,),
        sequences=0.2,
        items=(1, 2, 3, 7, 8, 9, 15, 16, 17, 24, 32, 33, 40, 63, 65, 70, 100),
        body=stencils.body,
    ),
    "decompositions": Profile(
        "systems, polar factors, singular values and eigenvalues of small matrices",
        (linear_algebra.PRODUCTIONS,),
        sizes=(0.2, 0.35),
    ),
}
