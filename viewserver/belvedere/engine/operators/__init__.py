"""Runtime operators, one per file: each maps the deltas of its inputs to a delta of its output and owns at most one
state table. They know nothing of stores, networks or threads; `belvedere.engine.engine` schedules them."""
