"""Fields and ndarrays: the memory that kernels and the host share.

`tree_roots`, `tree` and `field_memory_layout` describe trees of fields and lay them out;
`tree_allocation` and `zeroed_device_memory` allocate their memory. `array_base` is what the host
does with arrays of either kind, by `host_element_access` on their memory. `host_access_events`
tells listeners of every read and write by the host. `current_runtime` knows all arrays that are
alive.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from octants.data.field_factories import make_field
from octants.data.ndarray import make_ndarray
from octants.data.struct_field import make_struct_field
from octants.data.tensor_factories import make_tensor
from octants.deferred_import import Deferred
from octants.types.array_factory_hooks import FACTORIES

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
