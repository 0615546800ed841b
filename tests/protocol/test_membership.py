"""Who takes part: single changes, rolling upgrades, and random comings and goings."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from belvedere.protocol.membership import LONGEST_SETTLE, LONGEST_SHUN_MS, SHUN_MS, Membership, Wanted
from belvedere.protocol.messages import Attempt, Generation, Member, Role, Term
from belvedere.protocol.ring import MemberId

LEADER = MemberId("leader")


def server(name: str, oldest: int = 1, newest: int = 1, **more: object) -> Member:
    return replace(
        Member(MemberId(name), Role.VIEWSERVER, "", oldest, newest, "c1"),
        **more,  # type: ignore[arg-type]
    )


def distributor(name: str, oldest: int = 1, newest: int = 1) -> Member:
    return Member(MemberId(name), Role.DISTRIBUTOR, "", oldest, newest, "c1")


def coordinator(name: str, oldest: int = 1, newest: int = 1) -> Member:
    return Member(MemberId(name), Role.COORDINATOR, "", oldest, newest, "c1")


def generation(wanted: Wanted, number: int = 1) -> Generation:
    return Generation(
        number=Attempt(number),
        term=Term(1),
        leader=LEADER,
        ring=number,
        servers=wanted.servers,
        distributors=wanted.distributors,
        protocol=wanted.protocol,
    )


A, B, C, D = server("a"), server("b"), server("c"), distributor("d")


def test_servers_and_distributors_that_are_there_take_part() -> None:
    made = Membership("c1", oldest=1, newest=2)
    assert made.listed([B, D, A, coordinator("x")], 0) == []
    wanted = made.change(None)
    assert wanted.servers == ("a", "b") and wanted.distributors == ("d",) and wanted.joining == ("a", "b", "d")
    assert wanted.changed and wanted.protocol == 1 and wanted.wake is None
    again = made.change(generation(wanted))
    assert not again.changed and not (again.joining or again.leaving or again.lost or again.refused)


def test_one_whose_node_is_gone_is_out_at_once_and_for_ever() -> None:
    made = Membership("c1", oldest=1, newest=2, settle_ms=1000)
    made.listed([A, B, D], 0)
    made.tick(1000)
    current = generation(made.change(None))
    made.listed([A, D], 1001)
    wanted = made.change(current)
    assert wanted.lost == ("b",) and wanted.servers == ("a",) and wanted.leaving == ()
    (note,) = made.listed([A, B, D], 1002)
    assert note.fields["member"] == "b" and "a name is never used again" in note.fields["reason"]
    wanted = made.change(current)
    assert wanted.lost == ("b",) and wanted.servers == ("a",)


def test_one_that_asks_to_leave_is_not_wanted_and_not_lost() -> None:
    made = Membership("c1", oldest=1, newest=2)
    made.listed([A, B, D], 0)
    current = generation(made.change(None))
    made.listed([A, replace(B, leaving=True), D], 1)
    wanted = made.change(current)
    assert wanted.leaving == ("b",) and wanted.lost == () and wanted.servers == ("a",) and wanted.changed


def test_another_cluster_is_refused_once_with_both_names() -> None:
    made = Membership("c1", oldest=1, newest=2)
    stranger = replace(B, cluster="c2")
    (note,) = made.listed([A, stranger], 0)
    assert note.fields == {"member": "b", "reason": "it belongs to cluster 'c2', this pool to cluster 'c1'"}
    assert made.listed([A, stranger], 1) == []
    wanted = made.change(None)
    assert wanted.servers == ("a",) and wanted.notes == () and [r.member for r in wanted.refused] == ["b"]


def test_servers_that_start_together_make_one_change() -> None:
    made = Membership("c1", oldest=1, newest=2, settle_ms=500)
    made.listed([A, D], 0)
    made.tick(500)
    current = generation(made.change(None))
    made.listed([A, B, D], 1000)
    wanted = made.change(current)
    assert not wanted.changed and wanted.joining == () and wanted.wake == 1500
    made.listed([A, B, C, D], 1400)
    made.tick(1899)
    assert made.change(current).wake == 1900 and not made.change(current).changed
    made.tick(1900)
    assert made.change(current).joining == ("b", "c")


def test_those_that_keep_coming_do_not_hold_up_the_first_for_ever() -> None:
    made = Membership("c1", oldest=1, newest=2, settle_ms=100)
    members = [A]
    for i in range(LONGEST_SETTLE):
        made.listed(members, 90 * i)
        assert made.change(None).servers == ()
        members.append(server(f"s{i}"))
    made.listed(members, LONGEST_SETTLE * 100)
    assert "a" in made.change(None).servers


def test_a_loss_takes_those_along_who_settle() -> None:
    made = Membership("c1", oldest=1, newest=2, settle_ms=500)
    made.listed([A, B, D], 0)
    made.tick(500)
    current = generation(made.change(None))
    made.listed([A, C, D], 600)
    wanted = made.change(current)
    assert wanted.lost == ("b",) and wanted.servers == ("a", "c")


def test_one_that_failed_is_left_out_for_a_while_unless_it_is_the_last() -> None:
    made = Membership("c1", oldest=1, newest=2)
    made.listed([A, B, D], 0)
    current = generation(made.change(None))
    made.failed(MemberId("b"), "cannot be reached", 0)
    wanted = made.change(current)
    assert wanted.servers == ("a",) and wanted.leaving == ("b",) and wanted.lost == ()
    made.failed(MemberId("a"), "cannot be reached", 0)
    assert made.change(current).servers == ("a", "b")
    made.tick(SHUN_MS)
    assert made.change(current).servers == ("a", "b") and not made.change(current).changed
    made.failed(MemberId("b"), "again", SHUN_MS)
    made.tick(2 * SHUN_MS)
    assert made.change(current).servers == ("a",)
    made.tick(3 * SHUN_MS)
    assert made.change(current).servers == ("a", "b")


def test_one_that_fails_again_is_left_out_longer_and_forgiven_in_time() -> None:
    membership = Membership("c1", oldest=1, newest=2)
    membership.listed([A, B, D], 0)

    def left_out(now: int) -> int:
        membership.failed(B.id, "does not answer", now)
        for later in range(0, 10 * LONGEST_SHUN_MS, SHUN_MS // 5):
            membership.tick(now + later)
            if B.id in membership.change(None).servers:
                return later
        raise AssertionError("left out for ever")

    now, times = 0, []
    for _ in range(5):
        times.append(left_out(now))
        now += times[-1] + 1000
    assert times == [SHUN_MS * 2**n for n in range(5)]
    later = now + 10 * times[-1]
    membership.worked(B.id)
    assert left_out(later) == SHUN_MS


def test_one_that_hangs_is_not_forgiven_however_seldom_there_is_work_for_it() -> None:
    """Nothing is noticed while there is nothing to do: that it was wanted for long does not say that it works."""
    membership = Membership("c1", oldest=1, newest=2)
    membership.listed([A, B, D], 0)
    now = 0
    for n in range(4):
        membership.failed(B.id, "nothing heard of it for 10 s", now)
        membership.worked(B.id)  # what it has sent before it was left out
        pause = SHUN_MS * 2**n
        membership.tick(now + pause - 1)
        assert B.id not in membership.change(None).servers
        membership.tick(now + pause)
        assert B.id in membership.change(None).servers
        now += 100 * pause


def test_a_rolling_upgrade_switches_when_the_last_one_speaks_the_new_protocol() -> None:
    made = Membership("c1", oldest=1, newest=2)
    names = ["a", "b", "c"]
    made.listed([*(server(n) for n in names), coordinator("x", 1, 2)], 0)
    current = generation(made.change(None))
    assert current.protocol == 1
    members = [server(n) for n in names]
    for i in range(3):
        members[i] = server(f"{names[i]}2", 1, 2)
        made.listed([*members, coordinator("x", 1, 2)], i)
        wanted = made.change(current)
        assert wanted.protocol == (2 if i == 2 else 1) and not wanted.refused and len(wanted.servers) == 3
        current = generation(wanted, i + 2)
    made.change(current)
    (note,) = made.listed([*members, server("old"), coordinator("x", 1, 2)], 9)
    assert note.fields["reason"] == "it speaks protocols 1 to 1, the pool speaks 2 and does not go back"
    assert made.change(current).servers == ("a2", "b2", "c2")


def test_a_new_leader_does_not_go_back_behind_the_record() -> None:
    made = Membership("c1", oldest=1, newest=2)
    made.listed([server("a", 1, 2), server("old", 1, 1)], 0)
    wanted = made.change(None, protocol=2)
    assert wanted.protocol == 2 and wanted.servers == ("a",)


def test_a_candidate_that_could_not_lead_holds_up_the_switch() -> None:
    made = Membership("c1", oldest=1, newest=2)
    made.listed([server("a", 1, 2), coordinator("old", 1, 1)], 0)
    assert made.change(None).protocol == 1


def test_without_a_common_protocol_the_present_members_go_on() -> None:
    made = Membership("c1", oldest=1, newest=2)
    made.listed([server("a", 1, 1), server("b", 1, 1)], 0)
    current = generation(made.change(None))
    made.listed([server("a", 1, 1), server("b", 1, 1), *(server(f"n{i}", 2, 3) for i in range(5))], 1)
    wanted = made.change(current)
    assert wanted.protocol == 1 and wanted.servers == ("a", "b") and not wanted.changed
    assert [refusal.reason for refusal in wanted.refused] == ["it speaks protocols 2 to 3, the pool speaks 1"] * 5
    assert len(wanted.notes) == 5 and made.change(current).notes == ()


def test_a_pool_that_was_replaced_as_a_whole_goes_to_the_new_protocol() -> None:
    made = Membership("c1", oldest=2, newest=3)
    made.listed([server("a", 2, 3), distributor("d", 2, 3)], 0)
    old = Generation(Attempt(1), Term(1), LEADER, 1, (MemberId("gone"),), (), 1)
    wanted = made.change(old)
    assert wanted.protocol == 3 and wanted.servers == ("a",) and wanted.lost == ("gone",)


@pytest.mark.parametrize("seed", range(50))
def test_random_members_come_and_go(seed: int) -> None:
    """What holds at every moment, and that it comes to rest."""
    chance = random.Random(seed)
    made = Membership("c1", settle_ms=chance.choice([0, 100]), oldest=1, newest=2)
    members: dict[MemberId, Member] = {}
    current: Generation | None = None
    now, number, gone = 0, 0, set[MemberId]()
    for _ in range(120):
        now += chance.choice([0, 10, 60, 200])
        what = chance.random()
        if what < 0.4:
            number += 1
            role = chance.choice([Role.VIEWSERVER, Role.VIEWSERVER, Role.DISTRIBUTOR, Role.COORDINATOR])
            low = chance.choice([1, 1, 1, 2])
            cluster = chance.choice(["c1"] * 9 + ["c2"])
            fresh = Member(MemberId(f"m{number}"), role, "", low, chance.choice([low, 2]), cluster)
            members[fresh.id] = fresh
        elif what < 0.6 and members:
            left = chance.choice(sorted(members))
            del members[left]
            gone.add(left)
        elif what < 0.7 and members:
            leaver = chance.choice(sorted(members))
            members[leaver] = replace(members[leaver], leaving=True)
        elif what < 0.75 and members:
            made.failed(chance.choice(sorted(members)), "unreachable", now)
        made.listed(members.values(), now)
        wanted = made.change(current)
        parts = {*wanted.servers, *wanted.distributors}
        before = set() if current is None else {*current.servers, *current.distributors}
        assert not parts & gone
        assert all(
            not members[m].leaving
            and members[m].cluster == "c1"
            and members[m].oldest_protocol <= wanted.protocol <= members[m].newest_protocol
            for m in parts
        )
        assert set(wanted.lost) == before & gone
        assert set(wanted.leaving) == before - parts - gone and set(wanted.joining) == parts - before
        assert current is None or wanted.protocol >= current.protocol
        if wanted.changed and chance.random() < 0.7:
            current = generation(wanted, number)
    made.tick(now + 1_000_000)
    current = generation(made.change(current))
    rest = made.change(current)
    assert not rest.changed and not rest.joining and not rest.leaving and rest.wake is None
    usable = {
        m.id
        for m in members.values()
        if m.role in (Role.VIEWSERVER, Role.DISTRIBUTOR)
        and not m.leaving
        and m.id not in {r.member for r in rest.refused}
    }
    assert usable == {*rest.servers, *rest.distributors}
