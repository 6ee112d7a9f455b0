"""Programs of the other profiles agree with the oracle, and have what the profiles are for."""

from __future__ import annotations

import pytest

from octants.fuzz import runner
from octants.fuzz.backends import BACKENDS
from octants.fuzz.compare import Status
from octants.fuzz.generator.build import generate
from octants.fuzz.generator.profiles import PROFILES
from octants.fuzz.report import Report
from tests.devices import ARCH
from tests.fuzz.helpers import assert_generated

FIRST = 200_106  # of a hundred that are compiled at the quickest: see `backends.options`
QUICK, MORE = 2, 92

pytestmark = pytest.mark.filterwarnings("ignore::octants.OctantsWarning")
OTHERS = [name for name in PROFILES if name != "core"]


@pytest.mark.parametrize("profile", OTHERS)
@pytest.mark.parametrize(
    ("first", "count"),
    [(FIRST, QUICK), pytest.param(FIRST + QUICK, MORE, marks=pytest.mark.slow)],
    ids=["quick", "more"],
)
@pytest.mark.timeout(900)
def test_programs_agree_with_the_oracle(profile: str, first: int, count: int) -> None:
    report = Report(ARCH)
    chosen = [(first + k, runner.PRECISIONS[k % 2], profile) for k in range(count)]
    for entry in runner.work(chosen, BACKENDS[ARCH](), shrinks=True):
        report.add(entry)
    findings = [f"{e['command']}\n{e['problems']}\n{e['source']}" for e in report.findings]
    assert not report.wrong, "\n".join(findings)
    judged = report.compared + report.statuses[Status.REFUSED.value]
    assert judged >= 0.5 * count, report.reasons


WANTED = {
    "core": """static for; static if; func returns a tuple; early return from a func;
        return in a loop; func changes a vector argument; load of a vector or matrix;
        run-time component index;
        host: fill; host: __setitem__; launches in a sequence; two arguments are one array;
        long loop; many work items; stop_grad; while True with break; while on data;
        clamped index; data-dependent index; kernel local seen in a parallel loop;
        domain: ndspan; domain: struct2; domain: grouped; domain: data""",
    "structs": """struct in a struct; types.struct; dataclass with methods; field of structs;
        copy of a struct; struct from its members; struct with members left out;
        func gives a struct; load of a struct; struct local; assignment of a struct;
        store of a struct; call of a method; struct passed to a func; early return from a method""",
    "objects": """an attribute changes between launches; data_oriented class;
        kernel of two objects; dataclass of arrays as an argument""",
    "types": """array of i8; array of u16; array of u64; array of f16; bit_cast; local of i16;
        local of u64; local of f16; atomic_add of integers; atomic_sub of integers;
        atomic_min of integers; atomic_max of integers; atomic_mul of integers;
        atomic_and of integers; atomic_or of integers; atomic_xor of integers;
        result of an integer atomic; // of widths; % of widths; shift of widths;
        comparison of widths; choice of widths; extremum compared with its operand;
        returned i64; returned u8;
        ^= on an array of integers""",
    "bits": """mask: constant; mask: moved; mask: of a condition; mask: of a number;
        mask: of another width; merge: and, or; merge: xor; merge: of three; merge: field;
        merge: rotation; merge: choice; merge under a condition; test of bits; loop of merges;
        vector of merges; remainder of a remainder""",
    "collections": """view of an ndarray; views of one ndarray; views that overlap;
        view made by a launch; part of a view, in a kernel; dict; comprehension of a dict;
        dict in a dict display; assignment of a dict; value of a dict; get of a dict;
        loop over a dict; comprehension of a list; list whose elements change;
        assignment of an element of a list; assignment of an item of a dict;
        update of an item of a dict; slice of a view, in a kernel; slice of a list;
        compared tuples; tuple in tuples""",
    "sparse": """sparse: bitmasked; sparse: pointer of halves; sparse: pointer of rows;
        sparse: pointer of elements; sparse: bitmasked in rows; sparse: bitmasked in pointer;
        sparse: list in each row; sparse: list in pointer; activate; deactivate; is_active; append;
        length of a list; deactivate of a list; domain: sparse field; domain: sparse block""",
    "quantised": """fields in a word; quant_array; quantised integers, signed;
        quantised integers, unsigned; fixed-point numbers; floats of a few bits;
        floats with one exponent""",
    "graphs": """do_while; region of sections""",
    "nests": """nest: factor; nest: eliminate; nest: substitute; nest: wavefront; nest: sort;
        nest: multiply; nest: repeated; nest: while; nest: a local matrix; nest: a local vector;
        nest: rows; nest: rows: product; nest: rows: sum; nest: rows: store""",
    "rows": """nest: rows: product; nest: rows: sum; nest: rows: store""",
    "matches": """match; match of a float; match: or; match: guard; private variable;
        match: a guard assigns the subject; private variable read after its loop;
        private variable read in the else of its loop""",
    "edges": """ndarray with clamped indices; index that may be beyond an end; domain: axes;
        loop in an order of axes; assignment of a swizzle""",
    "sums": """sums nested 2 deep; sums nested 3 deep; sums nested 4 deep; sums nested 5 deep;
        sums: while; sums: recurrence; sums: carried on; sums: a loop under a condition;
        sums: bound: constant; sums: bound: outer; sums: bound: data""",
    "shapes": """shapes: a loop over an array; shapes: a loop over a shape;
        shapes: inner bound: data; shapes: inner bound: shape""",
    "pairs": """pairs: a sum that is read; pairs: both rows; pairs: under a condition;
        pairs: not of a row with itself; pairs: their number changes""",
    "ragged": """ragged: an end; ragged: a span; ragged: a loop inside; ragged: two loops;
        ragged: bounds change before they are loaded; ragged: bounds change after they are loaded;
        ragged: a sum in the loop""",
    "adjoints": """adjoint of two numbers; adjoint with a loop; adjoint with a branch, of itself;
        adjoint of a vector; adjoint of two results; func""",
    "features": """sum of features; recurrence of sums of recurrences;
        recurrence of sums of sums; operations of a loop that never run""",
    "reductions": """reduction; reduction: flag; reduction: count; reduction: extreme;
        reduction: product; reduction: vector; reduction: sum of a stated type;
        reduction: in an inner loop; reduction: pairs;
        reduction: over the neighbours of a cell""",
    "statics": """static operand; static in a condition""",
    "recursion": """recursion; recursion in a loop; func""",
    "layouts": """field of three axes: order; field of three axes: tree;
        field of three axes: layout; domain: struct3; domain: ndrange3; domain: grouped3""",
    "races": """plain store; update; guard; several elements of a work item;
        reads in a branch of a loop; one number from several work items;
        work items of two axes; store without a derivative; launched with other integers;
        index: i; index: i + n; index: p[i]; index: q[i]; index: i + d; index: i - 1;
        index: n - 1 - i; index: 2 * i; index: i // 2; index: d; index: d + 1; index: t + 1""",
    "returned": """returned: an index; returned: a number; returned: a count;
        returned: a decision; returned: read again; returned: overwritten""",
    "vectors": """long vector: components; long vector: one number; long vector: zero;
        long vector: filled; long vector of integers; copy of a long vector;
        long vector replaced under a condition; long vectors exchanged; long vector rotated;
        long vectors added; store to a long vector; loop over a long vector;
        matrix times long vector""",
    "blocks": """one number from a block; shared number from a block; barrier;
        shared array of floats; shared array of integers;
        sum in a shared array; store under a condition; read of a shared array: one;
        read of a shared array: all; read of a shared array: under a condition;
        loop with barriers; branch with barriers; block: sum; block: scan; block: integers;
        block: count; block: tiled; block: shuffle; block of 1; block of 5; block of 8;
        block of 32; block of 128""",
    "shared": """import of a field; import of an ndarray; two names of one memory in a kernel;
        store by one name between reads by the other""",
    "sequences": """launches in a sequence; host: fill; host: copy_from; host: __setitem__;
        host: from_numpy; host: element of vectors""",
    "mixed": """data_oriented class; struct local; bit_cast; domain: ndrange3; host: from_numpy""",
    "wrapping": """an i32 by a way that wraps; a product that is zero modulo 2^32;
        an i32 that is cut off one of two i64;
        a divisor that may be zero or negative; large: remainder; large: product;
        large: quotient; large: bits; large: shift; large: least; element by an index that wraps;
        row of a work item in an array of one axis; range that spans more than 2^31;
        work items with numbers near the ends; work items with numbers of 64 bits""",
    "stencils": """stencil: boundary left out; stencil: boundary wraps; stencil: boundary clamped;
        stencil: boundary tested; stencil: adds to neighbours; stencil: reads neighbours;
        stencil: boundary folded; stencil: boundary mixed; stencil: bounds of an array's shape;
        stencil: begins anywhere; stencil: launched from other numbers;
        stencil: under a condition""",
    "decompositions": """solve; polar_decompose; svd; sym_eig; make_spd; nearly equal values""",
}


@pytest.mark.parametrize("profile", WANTED)
def test_every_production_is_used(profile: str) -> None:
    assert_generated(WANTED[profile], profile, 100)


def test_extents_at_the_edges_of_lanes() -> None:
    programs = [generate(seed, "f32", "wrapping") for seed in range(100)]
    arrays = [values for program in programs for values in program.inputs.values()]
    extents = {values.shape[0] for values in arrays if values.ndim}
    assert {1, 3, 5, 7, 8, 9, 15, 16, 17, 31, 33} <= extents


def test_every_profile_is_tested() -> None:
    assert set(WANTED) == set(PROFILES)
