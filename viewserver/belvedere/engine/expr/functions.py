"""Every scalar function by its name in a bound `Call`: the kernels of the registry."""

from __future__ import annotations

from belvedere.engine.expr import arithmetic, compare, conditional, dates, like, logic, numeric, strings
from belvedere.engine.expr.casts import cast
from belvedere.engine.expr.operand import Function
from belvedere.sql.registry import SCALARS

_MODULES: dict[str, dict[str, Function]] = {
    "arithmetic": arithmetic.FUNCTIONS,
    "casts.cast": cast.FUNCTIONS,
    "compare": compare.FUNCTIONS,
    "conditional": conditional.FUNCTIONS,
    "dates": dates.FUNCTIONS,
    "like": like.FUNCTIONS,
    "logic": logic.FUNCTIONS,
    "numeric": numeric.FUNCTIONS,
    "strings": strings.FUNCTIONS,
}

FUNCTIONS: dict[str, Function] = {name: _MODULES[scalar.kernel][name] for name, scalar in SCALARS.items()}
