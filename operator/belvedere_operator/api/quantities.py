"""Quantities of bytes as Kubernetes writes them: `500M`, `20Gi`."""

from __future__ import annotations

import re

_SHARES = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12, "P": 10**15}
_SHARES |= {"m": 0, "Ki": 2**10, "Mi": 2**20, "Gi": 2**30, "Ti": 2**40, "Pi": 2**50}


def bytes_of(quantity: str) -> int:
    """Of a quantity of Kubernetes, such as 20Gi."""
    found = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?)([A-Za-z]*)", quantity)
    if found is None or found[2] not in _SHARES:
        raise ValueError(f"{quantity!r} is not a quantity; write it like 500Mi or 20Gi")
    return int(float(found[1]) * _SHARES[found[2]])
