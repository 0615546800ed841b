"""The HBase that tests of backends share."""

from __future__ import annotations

from tests.backend.hbase.server import hbase

__all__ = ["hbase"]
