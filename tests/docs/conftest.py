"""The session is that of the whole run."""

from tests.spark.sessions import spark

__all__ = ["spark"]
