"""The mistakes with quantised types and their fields: OCT55x."""

from __future__ import annotations

from octants.diagnostics.errors import UserError
from octants.diagnostics.exceptions import OctantsRuntimeTypeError, OctantsValueError


class WrongQuantType(UserError):
    """A quantised type that cannot be."""

    what: str
    problem: str
    code = "OCT550"
    exception = OctantsValueError
    title = "{what}: {problem}"
    remedy = "see docs/language.md, quantised fields"


class WrongPacking(UserError):
    """Fields that cannot share a word, or not in this way."""

    what: str
    problem: str
    remedy_text: str
    code = "OCT551"
    exception = OctantsValueError
    title = "{what}: {problem}"
    remedy = "{remedy_text}"


class NotPacked(UserError):
    """A quantised field that is used, or placed, without a word to be in."""

    name: str
    problem: str
    code = "OCT552"
    exception = OctantsRuntimeTypeError
    title = "the {name} {problem}"
    remedy = (
        "place it in `qd.BitpackedFields(max_num_bits=32)`, and that in a block:"
        " `root.dense(...).place(packed)`; or place it in `root.dense(...).quant_array(...)`"
    )
