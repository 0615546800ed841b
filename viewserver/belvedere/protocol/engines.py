"""Which engines a member needs: that of the pool, and those in whose form state still is.

Most engines read state of the one before, which is migrated a key at a time. One that cannot *rebuilds*: view groups
that were made under an older engine stay in the form before until new versions of their views are complete.
`rebuilding` are these engines; every release knows those up to its own.
"""

from __future__ import annotations

from collections.abc import Collection


def state_engine(made: int, pool: int, rebuilding: Collection[int]) -> int:
    """The engine in whose form the state of a view group is. It was made under an engine (0: of a version that did not
    tell), the pool has another one by now, and the group follows it up to the first that cannot read what there is."""
    return min((engine - 1 for engine in rebuilding if made < engine <= pool), default=pool)


def oldest_state(made: Collection[int], pool: int, rebuilding: Collection[int]) -> int:
    """The oldest engine that somebody who computes needs, with view groups that were made under these."""
    return min((state_engine(one, pool, rebuilding) for one in made), default=pool)


def engine_objection(pool: int, oldest: int, newest: int, state: int = 0) -> str:
    """Why a process with these engines cannot take part in a pool with that one; empty if it can. `state`: the oldest
    engine in whose form state of the pool is; 0: the pool's."""
    has = f"it has engine {newest}" if oldest == newest else f"it has engines {oldest} to {newest}"
    if newest < pool:
        return f"{has}, the pool has engine {pool} and does not go back: start a version that has it"
    if oldest > pool:
        return f"{has}, the pool has engine {pool}: start a version that has both, upgrade one version at a time"
    if oldest > (state or pool):
        return (
            f"{has}, the pool has engine {pool} and views whose state is in the form of engine {state}: start it when "
            "they are rebuilt (the status tells), and until then a version that has both"
        )
    return ""
