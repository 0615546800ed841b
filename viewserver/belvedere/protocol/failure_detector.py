"""How long the leader waits for the present generation, and what it says when that is in vain.

    FLOWING ──a member reports a failure──▶ FAILED ──a pause, longer each time──▶ another generation ──▶ FLOWING
       │ ──nobody reports anything for long──▶ QUIET ──▶ another generation, without those who were silent ──▶ FLOWING
       └──commit──▶ all is forgotten

    the same failure, or silence, STALLED_AFTER times in a row ──▶ the pool is stalled: `stalled` says why

Why it comes to an end where one can be reached: epochs are only ever repeated, never changed. What fails once may
succeed the next time (a full disk, a lost answer), so it is tried for ever, at the latest after `LONGEST_PAUSE_MS`.
What takes longer than silence is borne would take as long when it is done again, so patience doubles with each silence.
"""

from __future__ import annotations

from belvedere.protocol.epoch import EpochBook
from belvedere.protocol.membership import Membership

STALLED_AFTER = 3
LONGEST_PAUSE_MS = 5000
MOST_DOUBLINGS = 6
LONGEST_REASON = 2000
"""Characters: it goes into the record, and ZooKeeper's nodes are small."""


def shortened(reason: str) -> str:
    return reason if len(reason) <= LONGEST_REASON else reason[:LONGEST_REASON] + "…"


class FailureDetector:
    def __init__(self, quiet_ms: int, now: int) -> None:
        self._quiet_ms = quiet_ms
        self._heard_at = now
        self._reason = ""
        self._retry_at: int | None = None
        self.failures = 0
        """Failures with the same reason since the last commit."""
        self.silences, self._silence = 0, ""
        """Generations since the last commit of which nothing was heard for long, and the last one's reason."""

    # ------------------------------------------------------------------ what happens

    def heard(self, now: int) -> None:
        """Somebody has reported something, or has something new to do."""
        self._heard_at = now

    def failed(self, reason: str, now: int) -> bool:
        """An attempt failed. False if that is known of it already."""
        if self._retry_at is not None:
            return False
        self.failures = self.failures + 1 if reason == self._reason else 1
        self._reason = reason
        self._retry_at = now + min(LONGEST_PAUSE_MS, 50 * 2 ** min(self.failures, 10))
        return True

    def leave_out_silent(self, epochs: EpochBook, membership: Membership, now: int) -> bool:
        """Whether there are open epochs of which nobody has reported anything for so long that another generation
        begins. Whoever the oldest one waits for may hang although its node lives: it is tried without it, if there are
        others. If there are none it may just take long, and all there is to do is to wait longer."""
        flowing = any(not epoch.acknowledged for epoch in epochs.open)
        if not (flowing and epochs.staffed and self.is_quiet(now)):
            return False
        seconds, silent = self.silence(now) // 1000, epochs.waiting_for()
        members = () if silent is None else silent.members
        for member in members if membership.can_spare(members) else ():
            membership.failed(member, f"nothing heard of it for {seconds} s", now)
        self.silences += 1
        self._silence = f"epoch {epochs.open[0].plan.epoch}: {silent}, nothing heard for {seconds} s"
        return True

    def begun(self, now: int) -> None:
        """Another generation has begun."""
        self._retry_at, self._heard_at = None, now

    def committed(self) -> None:
        """An epoch got through."""
        self._reason, self.failures = "", 0
        self.silences, self._silence = 0, ""

    def amended(self) -> None:
        """What failed is not done any more."""
        self._reason, self.failures = "", 0

    # ------------------------------------------------------------------ what follows

    def retry_is_due(self, now: int) -> bool:
        return self._retry_at is not None and self._retry_at <= now

    def silence(self, now: int) -> int:
        """Milliseconds since anything was heard."""
        return now - self._heard_at

    def is_quiet(self, now: int) -> bool:
        return self.silence(now) > self._quiet_ms << min(self.silences, MOST_DOUBLINGS)

    @property
    def stalled(self) -> str:
        """Why epochs do not get through, once that has lasted; else empty."""
        if self.failures >= STALLED_AFTER:
            return self._reason
        return self._silence if self.silences >= STALLED_AFTER else ""
