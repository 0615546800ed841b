"""What errors may tell: names and columns only of relations that the caller has a right on.

Errors of the binder help with what there is: "there is orders, spend", "columns: id, salary". Who may read one view
must not learn by mistakes in statements what else there is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from belvedere import errors
from belvedere.gateway.api import Call, Right
from belvedere.sql.catalog import Catalog

T = TypeVar("T")


def as_visible(call: Call, catalog: Catalog, bind: Callable[[Catalog], T], error: errors.BelvedereError) -> T:
    """Binds what failed by an error again, as if there were only what the caller has a right on. Raises that error, or
    the one that there is then. A statement that binds now is not allowed, or fails again where it is carried out."""
    if isinstance(error, errors.ViewFailed) or call.may(Right.READ, "*"):
        raise error
    return bind(catalog.only(call.may_see))
