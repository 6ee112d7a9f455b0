"""The text of each error that the frontend raises, and that nothing is broken afterwards."""

from __future__ import annotations

import enum
import textwrap
from typing import Any

import numpy as np
import pytest

from octants.diagnostics import errors
from octants.diagnostics.exceptions import OctantsError
from octants.frontend import build
from octants.lang import directives
from octants.types.matrix_types import vector
from octants.types.matrix_values import Matrix, Vector
from octants.types.scalars import f32, f64, i32
from octants.types.specialisation_signature import ScalarType
from octants.types.structs import StructType
from tests.frontend.frontend_programs import Field, compile_kernel, define, type_of
from tests.golden_files import check_golden

HEAD = """\
@func
def half(x):
    return x / 2

"""

# By code and name: the lines of a kernel of `x`, an array, `n`, an i32, and `a`, an f64. Text that
# starts with "@" or "def" is a whole program instead.
PROGRAMS: dict[str, str] = {
    # syntax
    "OCT101_try": "try:\n    x[0] = 1\nexcept ValueError:\n    pass",
    "OCT101_with": "with n:\n    x[0] = 1",
    "OCT101_raise": "raise ValueError('no')",
    "OCT101_def": "def inner(y):\n    return y",
    "OCT101_class": "class Inner:\n    pass",
    "OCT101_import": "import math",
    "OCT101_global": "global counter",
    "OCT101_nonlocal": "def kernel(x, n, a):\n    @func\n    def inner():\n        pass",
    "OCT101_delete": "del n",
    "OCT101_match": "match n:\n    case 1:\n        x[0] = 1\n    case (k, 2):\n        x[0] = k",
    "OCT101_yield": "yield n",
    "OCT101_async": "async def kernel(x, n, a):\n    x[0] = 1",
    "OCT101_set": "d = {1, n}",
    "OCT101_complex": "y = 2j",
    "OCT101_starred_target": "y, *z = (1, 2, 3)",
    "OCT101_double_star": "y = half(**n)",
    "OCT101_declaration": "y: f32",
    "OCT103_star_parameter": "@func\ndef f(*xs):\n    return 1\n\ndef kernel(x, n, a):\n    f(n)",
    "OCT159_true": "while True:\n    x[0] += 1.0",
    "OCT159_known": "more = n == n\nwhile 1 < 2:\n    x[0] += 1.0\nx[1] = 2.0",
    "OCT105_break": "for i in range(n):\n    if x[i] > 1:\n        break",
    "OCT106_return": "for i in range(n):\n    if x[i] > 1:\n        return 1",
    "OCT108_unknown": "loop_config(threads=3)\nfor i in range(n):\n    x[i] = 1",
    "OCT108_value": "loop_config(serialize=1.5)\nfor i in range(n):\n    x[i] = 1",
    # names
    "OCT110_name": "y = x[0] + undefined",
    "OCT110_suggestion": "value = x[0]\nx[1] = valeu",
    "OCT110_of_octants": "x[0] = sin(a)",
    "OCT110_of_octants_math": "x[0] = normalize(a)",
    "OCT111_before": "x[0] = y\ny = 1",
    "OCT111_augmented": "y += 1.0",
    "OCT112_branch": "if n > 1:\n    y = 1.0\nx[0] = y",
    "OCT113_loop": "for i in range(n):\n    y = x[i]\nx[0] = y",
    "OCT114_index": "for i in range(n):\n    x[i] = 1\nx[i] = 2",
    "OCT115_attribute": "y = x.shap",
    "OCT115_module": "y = directives.statik(n)",
    "OCT115_method": "y = Vector([1.0, a]).nrom()",
    "OCT115_not_called": "y = Vector([1.0, a]).norm + 1.0",
    "OCT115_shape_of_a_vector": "y = Vector([1.0, a]).shape",
    "OCT115_array_method": "y = x.fill",
    "OCT115_array_reduction": "y = x.sum()",
    "OCT116_global": "CONSTANTS[0] = n",
    "OCT116_attribute": "OBJECT.value = n",
    "OCT116_list": "v = [1.0, n]\nv[0] = 2.0",
    "OCT116_numpy": "v = np.zeros(3)\nv[0] = a",
    "OCT117_types": "if n > 1:\n    y = 1.0\nelse:\n    y = Vector([1.0, 2.0])\nx[0] = y",
    # compile time
    "OCT120_static": "for i in static(range(n)):\n    x[i] = 1",
    "OCT120_condition": "if static(a > 1):\n    x[0] = 1",
    "OCT120_dict": "d = {n: 1}",
    "OCT120_slice": "v = Vector([1.0, a, 2.0])\nw = v[n:]",
    "OCT121_assertion": "static_assert(len(CONSTANTS) == 2, 'two constants')",
    "OCT122_python": "y = CONSTANTS[5] + n",
    "OCT122_round": "y = round(float('inf'))",
    "OCT122_range": "y = -range(n)",
    "OCT122_truth": "if TABLE:\n    x[0] = 1",
    "OCT123_object": "f = half\nif n > 1:\n    f = 'text'\nx[0] = f(a)",
    "OCT124_recursion": "@func\ndef f(y):\n    return f(y - 1)\n\ndef kernel(x, n, a):\n    f(n)",
    "OCT163_bound": "for i in range(2**63 - 2, 2**63 + 2):\n    x[0] = 1.0",
    "OCT125_number": "y = 123456789012345678901234567890 + n",
    # types
    "OCT130_vector": "v = Vector([1.0, a])\nv = Vector([1.0, 2.0, a])",
    "OCT130_scalar": "y = a\ny = Vector([1.0, a])",
    "OCT139_conditional": "y = Vector([1.0, a]) if n > 1 else Vector([1.0, 2.0, a])",
    "OCT130_annotation": "y: vec3 = Vector([1.0, a])",
    "OCT131_element": "points[0] = Vector([1.0, 2.0])",
    "OCT131_part": "v = Vector([1.0, a, 2.0])\nv.xy = Vector([1.0, 2.0, 3.0])",
    "OCT131_scalar": "x[0] = Vector([1.0, 2.0])",
    "OCT131_struct": "s = Pair(a=1.0, b=2.0)\nbodies = s\nx[0] = s",
    "OCT132_none": "y = half2(a)",
    "OCT132_operand": "y = half2(a) + 1",
    "OCT132_enum": "if n == COLOUR:\n    x[0] = 1",
    "OCT132_text": "y = 'text' * a",
    "OCT133_identity": "if n is a:\n    x[0] = 1",
    "OCT134_membership": "if n in x:\n    x[0] = 1",
    "OCT135_bound": "for i in range(a):\n    x[i] = 1",
    "OCT135_ndrange": "for i, j in ndrange(3, a):\n    x[i] = j",
    "OCT136_scalar": "for i in n:\n    x[i] = 1",
    "OCT166_enumerate": "for k, i in static(enumerate(range(n))):\n    x[i] = k",
    "OCT166_comprehension": "v = [2 * i for i in range(n)]",
    "OCT136_function": "for i in half:\n    x[i] = 1",
    "OCT137_targets": "for i in points2:\n    x[i] = 1",
    "OCT137_ndrange": "for i, j in ndrange(n, 2, 3):\n    x[i] = j",
    "OCT138_vector": "y, z = Vector([1.0, 2.0, a])",
    "OCT138_scalar": "y, z = a",
    # indices
    "OCT140_rank": "x[0, 1] = a",
    "OCT140_component": "points[0, 1] = a",
    "OCT140_scalar_field": "total[0] = a",
    "OCT140_vector": "v = Vector([1.0, a])\ny = v[0, 1]",
    "OCT141_field": "y = points2[4, 0]",
    "OCT141_vector": "v = Vector([1.0, a])\ny = v[2]",
    "OCT142_float": "x[a] = 1",
    "OCT142_slice": "x[0:2] = 1",
    "OCT142_assigned_slices": "for i in range(n):\n    points2[0:2, 0] = a",
    "OCT142_updated_slices": "points2[0:2, 0] += a",
    "OCT143_scalar": "y = n[0]",
    "OCT144_tuple": "y = CONSTANTS[n]",
    "OCT144_numpy": "y = TABLE[n]",
    "OCT145_gradient": "x.grad[0] = 1",
    # calls
    "OCT150_number": "y = n(1)",
    "OCT151_function": "y = chr(n)",
    "OCT151_math": "y = math.gcd(n, 2)",
    "OCT151_numpy": "y = np.maximum(n, 2)",
    "OCT165_random": "x[0] = random.uniform(0.0, 1.0)",
    "OCT165_clock": "x[0] = time.time()",
    "OCT165_field": "y = Vector.field(3, f64, shape=4)",
    "OCT152_kernel": "other(x)",
    "OCT153_missing": "y = half()",
    "OCT153_too_many": "y = half(1, 2)",
    "OCT153_unknown": "y = half(y=a)",
    "OCT153_by_position": (
        "@func\ndef root(x, *, power):\n    return x ** (1 / power)\n\n"
        "def kernel(x, n, a):\n    y = root(a, 3.0)"
    ),
    "OCT153_by_name": (
        "@func\ndef root(x, /):\n    return x ** 0.5\n\ndef kernel(x, n, a):\n    y = root(x=a)"
    ),
    "OCT170_declaration": "y: math.sin = n",
    "OCT169_parameter": "@func\ndef f(v: vec3):\n    return v\n\ndef kernel(x, n, a):\n    f(a)",
    "OCT153_twice": "y = half(a, x=a)",
    "OCT132_array": "x += 1",
    "OCT132_scalar_array": "total += a",
    "OCT131_lambda": "x[0] = lambda y: y",
    "OCT146_loop": "values = []\nfor i in range(n):\n    values.append(i)",
    "OCT146_shared": "values = []\nothers = (values, 1)\nvalues.append(n)",
    "OCT146_augmented": "values = [n]\nothers = values\nothers += [1]",
    "OCT146_beside": "values = [n]\npair = (values, values.pop())",
    "OCT146_python": "values = ITEMS\nvalues.append(3)",
    "OCT146_iterated": "values = [n]\nfor value in values:\n    values.append(value)",
    "OCT146_dict": "values = {1: 2.0}\nif n > 1:\n    values.clear()",
    "OCT146_item": "pair = ([n], 1)\npair[0].append(3)",
    "OCT153_tuples": "y = max((n, 1), (2, n))",
    "OCT151_container": "values = {}\nvalues.setdefault(1, n)",
    "OCT151_items": "place = (n, 2).index(2)",
    "OCT120_text": "if f'{n}' == '3':\n    x[0] = 1",
    "OCT153_empty": "y = max([])",
    "OCT153_length": "y = len(a)",
    "OCT153_range": "for i in range():\n    x[i] = 1",
    "OCT153_ndrange": "for i in ndrange((1, 2, 3)):\n    x[i] = 1",
    "OCT153_print_end": "print(n, sep='-', end=n)",
    "OCT153_print": "print(n, file=x)",
    "OCT154_function": "y = sometimes(n)",
    "OCT154_kernel": "if n > 1:\n    return 1",
    "OCT155_text": "return 'text'",
    "OCT155_none": "return 1, half",
    "OCT155_count": "if n > 1:\n    return 1, 2\nreturn 1, 2, 3",
    "OCT155_shape": "if n > 1:\n    return a\nreturn Vector([a, 1.0])",
    "OCT155_type": "if n > 1:\n    return 1\nreturn a",
    "OCT155_mixed": "y = mixed(n)",
    "OCT156_spec": "print(f'{n:.3q}')",
    "OCT156_width": "print(f'{a:>{n}}')",
    "OCT156_field": "print('{} {}'.format(n))",
    "OCT157_loop": "for i in range(n):\n    with directives.stream_parallel():\n        x[i] = 1",
    "OCT157_nested": (
        "with directives.stream_parallel():\n    with directives.stream_parallel():\n"
        "        x[0] = 1"
    ),
    "OCT157_region": (
        "with directives.parallel_context():\n    with directives.parallel():\n"
        "        with directives.parallel_context():\n            x[0] = 1"
    ),
    "OCT160_alone": "with directives.parallel():\n    x[0] = 1",
    "OCT160_other": "with directives.parallel_context():\n    x[0] = 1",
    "OCT160_stream": (
        "with directives.parallel_context():\n    with directives.stream_parallel():\n"
        "        x[0] = 1"
    ),
    "OCT162_key": "d = {'one': n, 'two': 2}\nd['three'] = 3",
    "OCT162_suggestion": "d = {'one': n, 'two': 2}\nx[0] = d['on']",
    "OCT161_loop": "for i in range(n):\n    with directives.checkpoint(0, x):\n        x[i] = 1",
    "OCT157_given": "with directives.stream_parallel(2):\n    x[0] = 1",
    "OCT101_other_with": "with directives.ndrange(3):\n    x[0] = 1",
}

PROGRAM_OF_HELPERS = """
def plain(x):
    return x + 1

@func
def half2(x):
    y = x

@func
def sometimes(n):
    if n > 1:
        return 1.0

@func
def mixed(n):
    if n > 1:
        return 1.0
    return Vector([1.0, 2.0])
"""


class Other:
    """A kernel, as the API makes it."""

    octants_is_kernel = True
    __name__ = "other"

    def octants_function(self) -> None:
        raise AssertionError


def environment() -> dict[str, Any]:
    import math
    import random
    import time
    import types

    names: dict[str, Any] = {name: getattr(directives, name) for name in directives.__all__}
    helpers = define(PROGRAM_OF_HELPERS, "plain", file="helpers.py", Vector=Vector).__globals__
    names.update(
        {name: helpers[name] for name in ("plain", "half2", "sometimes", "mixed")},
        directives=directives,
        math=math,
        np=np,
        random=random,
        time=time,
        f64=f64,
        f32=f32,
        vec3=vector(3, f32),
        Vector=Vector,
        Matrix=Matrix,
        Pair=StructType({"a": f32, "b": f32}, name="Pair"),
        COLOUR=enum.Enum("Colour", "RED").RED,  # type: ignore[attr-defined]
        TABLE=np.arange(3),
        CONSTANTS=(1, 2, 3),
        ITEMS=[1, 2],
        OBJECT=types.SimpleNamespace(value=1),
        points=named(Field(f64, (3,), (3,)), "points"),
        points2=named(Field(f64, (4, 3)), "points2"),
        total=named(Field(f64, ()), "total"),
        other=Other(),
    )
    return names


def named(field: Field, name: str) -> Field:
    field.name = name
    return field


def program(name: str) -> str:
    text = PROGRAMS[name]
    if not text.startswith(("@", "def kernel", "async")):
        text = "def kernel(x, n, a):\n" + textwrap.indent(text, "    ")
    return (HEAD if "half" in text else "") + text + "\n"


def message(name: str) -> OctantsError:
    function = define(program(name), file="example.py", **environment())
    with pytest.raises(OctantsError) as caught:
        build(function, [type_of(x) for x in (np.zeros(3), 1, 1.5)], default_float=f64)
    return caught.value


@pytest.mark.parametrize("name", PROGRAMS)
def test_messages(name: str) -> None:
    error = message(name)
    assert error.diagnostic is not None
    assert name.startswith(error.diagnostic.code), str(error)
    check_golden(f"errors/{name}", str(error))


def test_a_function_without_source() -> None:
    namespace: dict[str, Any] = {}
    exec("def kernel(n):\n    return n\n", namespace)
    with pytest.raises(OctantsError) as caught:
        build(namespace["kernel"], [ScalarType(i32)])
    check_golden("errors/OCT102_kernel", str(caught.value))


def test_a_called_function_without_source() -> None:
    def add(x, y):
        return x + y

    namespace: dict[str, Any] = {}
    exec("def f(n):\n    return n\n", namespace)
    namespace["f"].octants_function = namespace["f"]
    text = "def kernel(n):\n    return f(n)\n"
    with pytest.raises(OctantsError) as caught:
        compile_kernel(define(text, file="example.py", f=namespace["f"]), 1)
    check_golden("errors/OCT102_function", str(caught.value))


def test_every_error_of_the_frontend_has_a_message() -> None:
    # here, in test_losses, test_hidden_arrays, test_loop_options, test_out_of_bounds, and in api
    elsewhere = {"OCT102", "OCT126", "OCT127", "OCT158", "OCT164", "OCT167", "OCT168", "OCT171"}
    triggered = {name[:6] for name in PROGRAMS} | elsewhere
    classes = [
        cls
        for cls in vars(errors).values()
        if isinstance(cls, type) and issubclass(cls, errors.UserError)
    ]
    codes = {cls.code for cls in classes if cls.code.startswith("OCT1")}
    assert codes - triggered == set()
    assert len({cls.code for cls in classes}) == len(classes)


def test_the_frontend_works_after_an_error() -> None:
    for name in ("OCT112_branch", "OCT124_recursion", "OCT110_name"):
        message(name)

    def kernel(n):
        return n + 1

    assert compile_kernel(kernel, 1).return_types == (ScalarType(i32),)
