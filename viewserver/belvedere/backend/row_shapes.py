"""What rows of a view are made of, as text: with each write that travels, and where a store keeps it."""

from __future__ import annotations

import json
from functools import lru_cache

from belvedere.backend.seam import RowShape
from belvedere.model.describe import schema_json, schema_of


@lru_cache(maxsize=4096)
def pack_shape(shape: RowShape) -> str:
    """In each write of a view, so it is made once."""
    return json.dumps({"columns": schema_json(shape.schema), "key": list(shape.key)})


@lru_cache(maxsize=4096)
def unpack_shape(text: str) -> RowShape:
    found = json.loads(text)
    return RowShape(schema_of(found["columns"]), tuple(found["key"]))
