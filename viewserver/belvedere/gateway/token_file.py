"""Bearer tokens and client certificates with their rights, from a YAML file that is read again when it changes.

A file that became wrong is reported and not taken: what was there before stays in force. Tokens are kept as digests,
and looked up by them, so the time of a look-up tells nothing about a token."""

from __future__ import annotations

import hashlib
import os
import re
import threading
import time
from collections.abc import Callable, Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from belvedere.errors import DataError, NotAuthenticated, SqlError
from belvedere.gateway.api import Right
from belvedere.gateway.auth import Certificate, Credentials, Principal
from belvedere.sql.yaml_document import documents

LOOK_SECONDS = 1.0
_SHORTEST = 16
_TOKEN = re.compile(r"[!-~]+\Z")
_FIELDS = {"name", "token", "sha256", "read", "write", "admin", "expires"}
_CERTIFICATE_FIELDS = {"name", "subject", "san", "read", "write", "admin"}


class _Rules:
    """The content of one version of the file."""

    def __init__(self, text: str, where: str) -> None:
        self.tokens: dict[str, Principal] = {}
        self.subjects: dict[str, Principal] = {}
        self.names: dict[str, Principal] = {}
        try:
            found = documents(text)
        except SqlError as error:
            raise DataError(f"{where}: {error}") from None
        content = found[0].value if len(found) == 1 else None
        if not isinstance(content, dict) or not set(content) <= {"tokens", "certificates"}:
            raise DataError(f"{where}: it has tokens: and certificates:, each a list")
        for number, entry in enumerate(_list(content, "tokens", where), 1):
            self._token(entry, f"{where}, token {number}")
        for number, entry in enumerate(_list(content, "certificates", where), 1):
            self._certificate(entry, f"{where}, certificate {number}")

    def _token(self, entry: Any, where: str) -> None:
        _check(entry, _FIELDS, where)
        name = entry.get("name")
        if not isinstance(name, str) or not name:
            raise DataError(f"{where}: name is missing; it is what the audit log shows")
        where = f"{where} ({name})"
        if ("token" in entry) == ("sha256" in entry):
            raise DataError(f"{where}: give token or sha256, one of them")
        if "token" in entry:
            token = entry["token"]
            if not isinstance(token, str) or len(token) < _SHORTEST or not _TOKEN.match(token):
                raise DataError(f"{where}: token is a text of at least {_SHORTEST} visible ASCII characters, in quotes")
            digest = digest_of(token)
        else:
            digest = str(entry["sha256"]).lower()
            if not re.fullmatch(r"[0-9a-f]{64}", digest):
                raise DataError(f"{where}: sha256 has 64 hexadecimal digits: printf %s TOKEN | sha256sum")
        if digest in self.tokens:
            raise DataError(f"{where}: the same token is there twice")
        self.tokens[digest] = Principal(name, _rights(entry, where), until=_expiry(entry.get("expires"), where))

    def _certificate(self, entry: Any, where: str) -> None:
        _check(entry, _CERTIFICATE_FIELDS, where)
        if ("subject" in entry) == ("san" in entry):
            raise DataError(f"{where}: give subject (such as CN=ops,O=Example) or san (a DNS name or URI), one of them")
        known, to = (entry["subject"], self.subjects) if "subject" in entry else (entry["san"], self.names)
        if not isinstance(known, str) or not known:
            raise DataError(f"{where}: {known!r} is no text")
        to[known] = Principal(str(entry.get("name", known)), _rights(entry, where))


def digest_of(token: str) -> str:
    return hashlib.sha256(token.encode()).hexdigest()


def _list(content: Mapping[str, Any], name: str, where: str) -> list[Any]:
    found = content.get(name) or []
    if not isinstance(found, list):
        raise DataError(f"{where}: {name} is a list")
    return found


def _check(entry: Any, fields: set[str], where: str) -> None:
    if not isinstance(entry, dict):
        raise DataError(f"{where}: an entry has {', '.join(sorted(fields))}")
    unknown = sorted(map(str, set(entry) - fields))
    if unknown:
        raise DataError(f"{where}: unknown field {unknown[0]!r}; there is {', '.join(sorted(fields))}")


def _rights(entry: Mapping[str, Any], where: str) -> dict[Right, tuple[str, ...]]:
    rights = {}
    for right in Right:
        patterns = entry.get(right.value, [])
        if not isinstance(patterns, list) or not all(isinstance(p, str) and p for p in patterns):
            raise DataError(f'{where}: {right.value} is a list of patterns such as ["orders", "by_*"]')
        rights[right] = tuple(patterns)
    if not any(rights.values()):
        raise DataError(f"{where}: it has no right: give read, write or admin")
    return rights


def _expiry(value: Any, where: str) -> float | None:
    if value is None:
        return None
    if isinstance(value, str):
        try:
            value = datetime.fromisoformat(value)
        except ValueError:
            value = None
    if isinstance(value, date) and not isinstance(value, datetime):
        value = datetime(value.year, value.month, value.day, tzinfo=UTC)
    if not isinstance(value, datetime):
        raise DataError(f"{where}: expires is a time such as 2027-01-01T00:00:00Z")
    return (value if value.tzinfo is not None else value.replace(tzinfo=UTC)).timestamp()


class TokenFile:
    """An authenticator. `say`: hears of files that were taken or refused."""

    def __init__(
        self,
        path: Path,
        say: Callable[[str], None] = lambda text: None,
        *,
        clock: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Raises DataError if the file is wrong at first."""
        self._path, self._say, self._clock, self._monotonic = path, say, clock, monotonic
        self._lock = threading.Lock()
        self._seen = self._stamp()
        self._looked = monotonic()
        self._rules = self._read()

    def recall(self, credentials: Credentials) -> Principal | None:
        if self._monotonic() - self._looked >= LOOK_SECONDS:
            return None  # the file is looked at again, in a thread
        try:
            return self._known(credentials)
        except NotAuthenticated:
            return None

    def authenticate(self, credentials: Credentials) -> Principal:
        self.refresh()
        return self._known(credentials)

    def _known(self, credentials: Credentials) -> Principal:
        rules = self._rules
        if credentials.bearer:
            found = rules.tokens.get(digest_of(credentials.bearer))
            if found is None:
                raise NotAuthenticated("the bearer token is not known here")
            if found.until is not None and found.until <= self._clock():
                raise NotAuthenticated(f"the bearer token of {found.name!r} has expired")
            return found
        if credentials.certificate is not None:
            found = _by_certificate(rules, credentials.certificate)
            if found is None:
                raise NotAuthenticated(f"the certificate of {credentials.certificate.subject!r} is not known here")
            return found
        raise NotAuthenticated("credentials are missing: send Authorization: Bearer TOKEN")

    def refresh(self) -> None:
        """Look whether the file has changed."""
        with self._lock:
            self._looked = self._monotonic()
            stamp = self._stamp()
            if stamp == self._seen:
                return
            self._seen = stamp
            try:
                self._rules = self._read()
            except DataError as error:
                self._say(f"the token file is not taken, what was there before stays in force: {error}")
            else:
                self._say(f"token file {self._path} was read again: {len(self._rules.tokens)} tokens")

    def _read(self) -> _Rules:
        try:
            return _Rules(self._path.read_text(encoding="utf-8"), str(self._path))
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"token file {self._path} cannot be read: {error}") from None

    def _stamp(self) -> tuple[int, int, int] | None:
        try:
            found = os.stat(self._path)
        except OSError:
            return None
        return found.st_mtime_ns, found.st_size, found.st_ino


def _by_certificate(rules: _Rules, shown: Certificate) -> Principal | None:
    for name in shown.names:
        if name in rules.names:
            return rules.names[name]
    return rules.subjects.get(shown.subject)
