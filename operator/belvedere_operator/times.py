"""Times as Kubernetes writes them, and back."""

from __future__ import annotations

from datetime import UTC, datetime


def stamp(at: float) -> str:
    """RFC 3339 of seconds since 1970."""
    return datetime.fromtimestamp(at, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(text: str) -> float:
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


def age_s(text: str | None, now: float) -> float:
    """Seconds since then; without end if it never was."""
    return float("inf") if not text else now - seconds(text)
