"""Vectorised evaluation of bound scalar expressions: `evaluate`, `evaluate_all` and `compile_exprs`."""

from __future__ import annotations

from belvedere.engine.expr.evaluate import Program, compile_exprs, evaluate, evaluate_all

__all__ = ["Program", "compile_exprs", "evaluate", "evaluate_all"]
