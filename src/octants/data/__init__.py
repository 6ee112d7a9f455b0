"""Fields and ndarrays: the memory that kernels and the host share.

`roots`, `tree` and `placement` describe trees of fields and lay them out, `allocation` and `memory`
hold them; `host_array` is what the host does with arrays of either kind. Every host access passes
`events`; every array lives in the runtime of `current`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.data.field_factories import make_field
from octants.data.ndarray import make_ndarray
from octants.data.struct_field import make_struct_field
from octants.data.tensor_factories import make_tensor
from octants.deferred_import import Deferred
from octants.types.factories import FACTORIES

if TYPE_CHECKING:
    from octants.data import bitpacked_fields
else:
    bitpacked_fields = Deferred("octants.data.bitpacked_fields")


def _quant_array(*given: Any, **named: Any) -> Any:
    return bitpacked_fields.QuantArray(*given, **named)


FACTORIES.update(
    field=make_field,
    ndarray=make_ndarray,
    tensor=make_tensor,
    struct_field=make_struct_field,
    quant_array=_quant_array,
)
