"""`field` as type checkers see it: what it returns follows from the type of the elements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar, overload

from octants.data import field_factories
from octants.data.field import ScalarField
from octants.data.struct_field import StructField

if TYPE_CHECKING:
    Number = TypeVar("Number", bool, int, float)
    Element = TypeVar("Element")

    @overload
    def field(  # type: ignore[overload-overlap]
        dtype: type[Number],
        shape: Any = None,
        order: str | None = None,
        name: str = "",
        offset: Any = None,
        needs_grad: bool = False,
        needs_dual: bool = False,
        device: int | None = None,
    ) -> ScalarField[Number]: ...
    @overload
    def field(
        dtype: type[Element],
        shape: Any = None,
        order: str | None = None,
        name: str = "",
        offset: Any = None,
        needs_grad: bool = False,
        needs_dual: bool = False,
        device: int | None = None,
    ) -> StructField[Element]: ...
    @overload
    def field(
        dtype: Any,
        shape: Any = None,
        order: str | None = None,
        name: str = "",
        offset: Any = None,
        needs_grad: bool = False,
        needs_dual: bool = False,
        device: int | None = None,
    ) -> Any: ...
    def field(dtype: Any, shape: Any = None, *options: Any, **named: Any) -> Any:
        """Create a field."""

else:
    field = field_factories.field
