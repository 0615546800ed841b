"""Syntax trees plus a catalog to bound queries: names resolved, types decided, casts written out.

scope         which names mean what, and the context that is passed down
datatypes     type names
expressions   scalar expressions; intervals: dates plus constants
aggregates    aggregate calls, and expressions over their results
relations     FROM and its joins
subqueries    IN and EXISTS as semi- and anti-joins
select        the clauses of SELECT in order
query         WITH, UNION, parentheses
"""

from belvedere.sql.binder.query import bind_tree

__all__ = ["bind_tree"]
