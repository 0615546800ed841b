"""Every scalar function by its name in a bound `Call`."""

from __future__ import annotations

from belvedere.engine.expr import arithmetic, compare, conditional, dates, like, logic, numeric, strings
from belvedere.engine.expr.casts import cast
from belvedere.engine.expr.operand import Function

FUNCTIONS: dict[str, Function] = {
    **arithmetic.FUNCTIONS,
    **compare.FUNCTIONS,
    **logic.FUNCTIONS,
    **conditional.FUNCTIONS,
    **strings.FUNCTIONS,
    **like.FUNCTIONS,
    **numeric.FUNCTIONS,
    **dates.FUNCTIONS,
    **cast.FUNCTIONS,
}
