"""The version of the engine: what it writes for the same input.

It grows when state of an older engine can no longer be used. An embedded database then rebuilds its state from base
rows. In a cluster the record has the version of the pool, and a plan names the one that it has to be carried out with,
also when it is repeated. A release carries the engine before as well (`belvedere.engine.formats`), so that members of
two releases work together; the pool goes on to the next one when all of them have it.

2: constants in plans are equal by type and bits, so plans share less than before; functions keep BINARY.
3: which calls can fail is decided per call, by one registry; joins keep and place state accordingly.
"""

ENGINE_VERSION = 3
REBUILDING: frozenset[int] = frozenset()
"""Those that cannot read state of the engine before: views are rebuilt aside (docs/design/engine-versions.md)."""
OLDEST_ENGINE_VERSION = 3
"""There is none before it to carry: engines 1 and 2 were in no release."""
