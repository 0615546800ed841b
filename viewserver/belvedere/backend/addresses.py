"""Addresses of processes."""

from __future__ import annotations


def location(scheme: str, host: str, port: int) -> str:
    """As Flight wants it, with IPv6 hosts in brackets."""
    return f"{scheme}://[{host}]:{port}" if ":" in host else f"{scheme}://{host}:{port}"
