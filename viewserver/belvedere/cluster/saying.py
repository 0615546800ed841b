"""Log lines with fields: `say(log, INFO, "joined", member=…)`."""

from __future__ import annotations

import logging
from typing import Any


def say(log: logging.Logger, level: int, event: str, **fields: Any) -> None:
    """One line; how the fields are shown is the formatter's business."""
    log.log(level, event, extra={"fields": fields})
