"""Log lines with fields: `say(log, INFO, "joined", member=…)`."""

from __future__ import annotations

import logging
from typing import Any


def say(log: logging.Logger, level: int, event: str, **fields: Any) -> None:
    """One line; how the fields are shown is the formatter's business."""
    log.log(level, event, extra={"fields": fields})


class _Lines(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        text = super().format(record)
        fields = getattr(record, "fields", None)
        return f"{text} {' '.join(f'{k}={v}' for k, v in fields.items())}" if fields else text


def configure(pool: str, role: str) -> None:
    handler = logging.StreamHandler()
    handler.setFormatter(_Lines(f"%(asctime)s %(levelname)s {pool} {role} %(name)s: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
