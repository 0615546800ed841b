"""Between the store and distributors."""

from __future__ import annotations

PUSH = "push"
"""The call by which a source gives changes to a distributor; its request is made by `source.pusher.pack_request`."""
