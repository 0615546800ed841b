"""What a reader holds while it needs an epoch."""

from __future__ import annotations

import weakref
from collections.abc import Callable


class Pin:
    """What keeps an epoch is this object: an interrupt that takes it from its holder leaves no pin behind. `key` stands
    for it in tables; `gone` gets the key when the object is collected, which happens anywhere, also where this thread
    holds a lock: it is one C call that takes none, like `deque.append`."""

    __slots__ = ("__weakref__", "key")

    def __init__(self, gone: Callable[[PinKey], None]):
        self.key = PinKey(self, gone)


class PinKey(weakref.ref[Pin]):
    """Itself, also when the pin is gone: a plain weak reference could not be looked up then."""

    __slots__ = ()
    __hash__ = object.__hash__
    __eq__ = object.__eq__
