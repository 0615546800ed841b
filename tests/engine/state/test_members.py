"""Member vectors against a dict of sets: growth, shrinking, probes in pieces, dump and load."""

from __future__ import annotations

import numpy as np
import pytest

from belvedere.engine.state.members import Members


def probed(members: Members, groups: list[int], limit: int, stamp: np.ndarray | None = None) -> list[tuple[int, int]]:
    pairs: list[tuple[int, int]] = []
    cursor = None
    while True:
        which, rows, cursor = members.probe(np.array(groups, np.int32), stamp, 7, limit, cursor)
        assert len(which) <= limit
        pairs += zip(which.tolist(), rows.tolist(), strict=True)
        if cursor is None:
            return pairs


@pytest.mark.parametrize("seed", range(4))
def test_members_against_sets(seed: int) -> None:
    rng = np.random.default_rng(seed)
    members, model, group_of = Members(), dict[int, set[int]](), dict[int, int]()
    for step in range(60):
        if rng.random() < 0.55 or not group_of:
            rows = [r for r in rng.choice(5000, 300, replace=False).tolist() if r not in group_of]
            groups = (rng.integers(0, 40, len(rows)) ** 2 // (1 + step % 40)).tolist()
            members.add(np.array(groups), np.array(rows))
            for group, row in zip(groups, rows, strict=True):
                model.setdefault(group, set()).add(row)
                group_of[row] = group
        else:
            rows = rng.permutation(list(group_of))[: int(rng.integers(1, 800))].tolist()
            members.remove(np.array([group_of[r] for r in rows]), np.array(rows))
            for row in rows:
                model[group_of.pop(row)].remove(row)
        asked = [*rng.integers(-1, 2000, 50).tolist(), 0, 0, -1]
        expected = sorted((i, r) for i, g in enumerate(asked) for r in model.get(g, ()))
        assert members.sizes(np.array(asked)).tolist() == [len(model.get(g, ())) for g in asked]
        assert sorted(probed(members, asked, 7 + step)) == expected
        assert sorted(probed(members, asked, 10**6)) == expected
        stamp = rng.integers(6, 8, 5000).astype(np.int32)
        assert sorted(probed(members, asked, 13, stamp)) == [(i, r) for i, r in expected if stamp[r] != 7]
        assert len(members) == len(group_of)
        if step % 20 == 19:
            loaded = Members.load(members.dump())
            assert probed(loaded, asked, 100) == probed(members, asked, 100)
            members = loaded


def test_one_group_of_a_million_rows_and_its_end() -> None:
    members = Members()
    rows = np.arange(1_000_000, dtype=np.int32)
    for start in range(0, len(rows), 50_000):
        part = rows[start : start + 50_000]
        members.add(np.zeros(len(part), np.int32), part)
    assert sorted(r for _, r in probed(members, [0], 70_000)) == rows.tolist()
    members.remove(np.zeros(len(rows), np.int32), rows)
    assert len(members) == 0
    members.add(np.arange(1000), np.arange(1000))
    assert probed(members, [5], 10) == [(0, 5)]


def test_groups_of_one_take_no_block() -> None:
    members = Members()
    members.add(np.arange(1000), np.arange(1000))
    assert members.dump()["pool"].size == 0
