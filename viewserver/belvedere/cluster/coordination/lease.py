"""How long a member may believe that its session lives: a state machine without I/O, for one session.

    WAITING --opened--> CONNECTED --disconnected, or no answer for LEASE of the timeout--> SUSPENDED
                            ^                                                                 |
                            +-------------------------answered--------------------------------+
    any --expired--> LOST         SUSPENDED for longer than the session timeout --> LOST

The server counts the session timeout from the last request that it received; a request that was *answered* was received
after it was *sent*. So from the time of sending of the newest request that was answered the session lives for the
timeout, if clocks run alike. `LEASE` of it is used: the rest covers drift, and an ensemble, where the leader may hear
of a follower's clients half a tick late (a session has two ticks at least).

A process that was paused finds `valid` false as soon as it runs again, before any of its threads has noticed anything:
nothing but the clock is asked. LOST by the clock counts from the moment when SUSPENDED was noticed, so that a machine
that slept together with its server finds its session again.
"""

from __future__ import annotations

import math

from belvedere.cluster.coordination.seam import SessionState

LEASE = 2 / 3
HEARTBEAT = 1 / 4
"""Fraction of the timeout after which the server is asked something, so that there are answers."""


class Lease:
    """Times are seconds of a clock that never goes back and also runs while the machine sleeps. The methods that tell
    what happened return the state to announce, if it is another one now."""

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self.state: SessionState | None = None
        self._open = False
        self._reachable_since = math.inf
        self._suspended_at = math.inf
        self._asked = -math.inf
        """When the newest request that was answered was sent."""

    def valid(self, now: float) -> bool:
        return self.state is SessionState.CONNECTED and self._fresh(now)

    def negotiated(self, timeout: float) -> None:
        """The server may shorten what was asked for; a longer one is not made use of."""
        self.timeout = min(self.timeout, timeout)

    def connected(self, now: float) -> None:
        """There is a connection; whether the session lives is known with the first answer."""
        self._reachable_since = now

    def disconnected(self, now: float) -> SessionState | None:
        self._reachable_since = math.inf
        return self._suspend(now)

    def opened(self, now: float) -> SessionState | None:
        """All that a new session needs is in place: CONNECTED, now or with the next answer."""
        self._open = True
        return self._resume(now)

    def answered(self, sent: float, now: float) -> SessionState | None:
        self._asked = max(self._asked, sent)
        return self._resume(now)

    def expired(self) -> SessionState | None:
        if self.state is None:  # nobody has heard of this session
            self.state = SessionState.LOST
            return None
        return self._announce(SessionState.LOST)

    def tick(self, now: float) -> SessionState | None:
        if self.state is SessionState.CONNECTED and not self._fresh(now):
            return self._suspend(now)
        if self.state is SessionState.SUSPENDED and now - self._suspended_at > self.timeout:
            return self.expired()
        return None

    def _fresh(self, now: float) -> bool:
        # An answer to what was sent before the connection broke tells nothing about the present.
        return self._asked >= self._reachable_since and now - self._asked < LEASE * self.timeout

    def _resume(self, now: float) -> SessionState | None:
        if not self._open or not self._fresh(now):
            return None
        return self._announce(SessionState.CONNECTED)

    def _suspend(self, now: float) -> SessionState | None:
        if self.state is not SessionState.CONNECTED:
            return None
        self._suspended_at = now
        return self._announce(SessionState.SUSPENDED)

    def _announce(self, state: SessionState) -> SessionState | None:
        if self.state in (state, SessionState.LOST):
            return None
        self.state = state
        return state
