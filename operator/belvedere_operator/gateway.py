"""A pool as the operator sees it: the HTTP API of its gateway, and nothing else.

Answers are read into small dataclasses here, so that decisions do not know JSON. Fields that are not known are ignored,
as the API asks of its clients.
"""

from __future__ import annotations

import functools
import json
import re
import urllib.parse
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import urllib3
import yaml

_DOCUMENT = re.compile(r"^document \d+, ")
"""Documents are numbered as they were sent, which tells nobody anything."""


class PoolUnreachable(Exception):
    """The gateway does not answer, or answers that its pool does not. Trying again later is all there is to do."""


class PoolRefused(Exception):
    """The gateway refused a request: `error` is the class of the refusal, such as SqlError."""

    def __init__(self, problem: Problem, status: int) -> None:
        super().__init__(problem.text)
        self.problem, self.status = problem, status


@dataclass(frozen=True, slots=True)
class Problem:
    """Why something was refused."""

    error: str
    detail: str
    hint: str = ""
    line: int | None = None
    column: int | None = None

    @property
    def missing_relation(self) -> bool:
        """It names a table or view that is not there, and may be all right when it is."""
        return self.error == "UnknownRelation" or self.detail.partition(": ")[2].startswith("no table or view ")

    @property
    def text(self) -> str:
        """A sentence, with the position in the SQL and the hint."""
        at = "" if self.line is None or "line " in self.detail else f"line {self.line}, column {self.column}: "
        hint = f"; hint: {self.hint}" if self.hint and self.hint not in self.detail else ""
        return f"{at}{self.detail}{hint}"


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a view adds to the state of its pool."""

    zones: tuple[tuple[str, ...], ...]
    state: tuple[tuple[str, int, int], ...]
    """Name of each state table, its rows and bytes."""
    bytes: int


@dataclass(frozen=True, slots=True)
class DocumentResult:
    """What became of a manifest, or would become of it."""

    kind: str
    name: str
    action: str
    problem: Problem | None = None
    forecast: Forecast | None = None


@dataclass(frozen=True, slots=True)
class ViewFigures:
    """What a pool tells about a view."""

    state: str = "Ready"
    reason: str = ""
    version: int | None = None
    epoch: int | None = None
    lag_ms: float | None = None
    rows: int | None = None
    bytes: int | None = None
    quarantined: int | None = None
    complete: bool | None = None
    zones: tuple[tuple[str, ...], ...] = ()
    reads: tuple[str, ...] = ()
    dependants: tuple[str, ...] = ()
    failed_build: str = ""
    since: int | None = None
    progress: int | None = None
    """Percent of the build under way."""


@dataclass(frozen=True, slots=True)
class SparkBuild:
    """Views that a pool leaves to Spark to compute. `since`: the epoch at which; 0: it has to wait."""

    view_group: int
    views: tuple[str, ...]
    since: int
    state: str = ""
    """For people."""


@dataclass(frozen=True, slots=True)
class TableFigures:
    """What a pool tells about a base table."""

    rows: int | None = None
    bytes: int | None = None


@dataclass(frozen=True)
class PoolFigures:
    """What a pool tells about itself."""

    epoch: int
    lag_ms: float
    backlog_rows: int
    problems: tuple[str, ...]
    tables: Mapping[str, TableFigures]
    views: Mapping[str, ViewFigures]
    stalled: str = ""
    spark_builds: tuple[SparkBuild, ...] = ()

    def dependants(self, name: str) -> tuple[str, ...]:
        """Views that read a table or a view."""
        return self._readers.get(name.lower(), ())

    def view(self, name: str) -> ViewFigures | None:
        """Names are compared as in SQL."""
        return self._views.get(name.lower())

    def table(self, name: str) -> TableFigures | None:
        return self._tables.get(name.lower())

    @functools.cached_property
    def _views(self) -> dict[str, ViewFigures]:
        return {name.lower(): told for name, told in self.views.items()}

    @functools.cached_property
    def _tables(self) -> dict[str, TableFigures]:
        return {name.lower(): told for name, told in self.tables.items()}

    @functools.cached_property
    def _readers(self) -> dict[str, tuple[str, ...]]:
        found: dict[str, set[str]] = {}
        for view, told in self.views.items():
            for read in told.reads:
                found.setdefault(read.lower(), set()).add(view)
        return {name: tuple(sorted(readers)) for name, readers in found.items()}


@dataclass(frozen=True, slots=True)
class Load:
    """What autoscaling goes by: one moment of a pool."""

    lag_ms: float
    busy: tuple[float, ...]
    """The share of its time that each view server works."""
    queue_rows: int = 0


@dataclass(frozen=True, slots=True)
class Credentials:
    """How the operator shows who it is."""

    token: Callable[[], str | None] = field(default=lambda: None)
    authority: Path | None = None


class Gateway:
    """The API at one URL. May be used by many threads; nothing is remembered between calls."""

    def __init__(self, url: str, credentials: Credentials | None = None, *, timeout: float = 20.0) -> None:
        self.url = url.rstrip("/")
        self._credentials = credentials or Credentials()
        authority = self._credentials.authority
        self._pool = urllib3.PoolManager(
            retries=False,
            timeout=urllib3.Timeout(connect=min(3.0, timeout), read=timeout),
            ca_certs=str(authority) if authority else None,
        )

    # ------------------------------------------------------------------ looking

    def figures(self) -> PoolFigures:
        """Everything that a status says."""
        told = self._ask("GET", "/v1/status")
        detail = told.get("detail") or {}
        building = dict(_building(told))
        views = {name: _view(one, building.get(name)) for name, one in (told.get("views") or {}).items()}
        tables = {
            name: TableFigures(one.get("rows"), one.get("bytes")) for name, one in (told.get("tables") or {}).items()
        }
        return PoolFigures(
            epoch=told.get("epoch") or 0,
            lag_ms=told.get("lag_ms") or 0.0,
            backlog_rows=told.get("backlog_rows") or 0,
            problems=tuple(map(str, told.get("problems") or ())),
            tables=tables,
            views=views,
            stalled=str(detail.get("stalled") or ""),
            spark_builds=tuple(_spark_builds(told)),
        )

    def load(self) -> Load:
        """The figures of the pool's view servers. An embedded database has none: its one engine counts as idle."""
        lag = self._ask("GET", "/v1/lag")
        try:
            told = self._ask("GET", "/v1/pool")
        except PoolRefused as error:
            if error.status != 404:
                raise
            return Load(lag.get("lag_ms") or 0.0, ())
        servers = [one for one in told.get("members") or () if one.get("role") == "viewserver"]
        busy = tuple(float(one.get("busy") or 0.0) for one in servers)
        return Load(lag.get("lag_ms") or 0.0, busy, int(told.get("queue_rows") or 0))

    # ------------------------------------------------------------------ changing

    def apply(self, documents: Sequence[Mapping[str, Any]], *, dry_run: bool = False) -> tuple[DocumentResult, ...]:
        """What can be accepted is applied as one change, each refused document is named. Builds go on afterwards."""
        text = yaml.safe_dump_all(documents, sort_keys=False, allow_unicode=True)
        query = {"wait": "false", "partial": "true", "dry_run": "true" if dry_run else "false"}
        told = self._ask("POST", "/v1/apply", text.encode(), "application/yaml", query)
        return tuple(_document(one) for one in told.get("documents") or ())

    def drop(self, name: str) -> None:
        """A view or a table; it is no error if it is not there."""
        self._ask("DELETE", f"/v1/relations/{urllib.parse.quote(name, safe='')}", query={"if_exists": "true"})

    # ------------------------------------------------------------------ requests

    def _ask(
        self,
        method: str,
        path: str,
        body: bytes | None = None,
        content_type: str | None = None,
        query: Mapping[str, str] | None = None,
    ) -> dict[str, Any]:
        headers = {"Accept": "application/json", "User-Agent": "belvedere-operator"}
        if content_type:
            headers["Content-Type"] = content_type
        if token := self._credentials.token():
            headers["Authorization"] = f"Bearer {token}"
        url = self.url + path + (f"?{urllib.parse.urlencode(query)}" if query else "")
        try:
            answer = self._pool.request(method, url, body=body, headers=headers)
        except urllib3.exceptions.HTTPError as error:
            raise PoolUnreachable(f"{self.url} does not answer: {_short(error)}") from error
        try:
            told = json.loads(answer.data) if answer.data else {}
        except ValueError:
            told = {"detail": answer.data.decode(errors="replace")[:300]}
        if answer.status < 400:
            return told if isinstance(told, dict) else {"items": told}
        problem = _problem(told)
        if answer.status in (429, 502, 503, 504):
            raise PoolUnreachable(f"{self.url}: {problem.text}")
        raise PoolRefused(problem, answer.status)

    def close(self) -> None:
        self._pool.clear()


def _short(error: Exception) -> str:
    text = str(getattr(error, "reason", None) or error)
    return text.rsplit(": ", 1)[-1][:200]


def _problem(told: Any) -> Problem:
    if not isinstance(told, dict):
        return Problem("Unknown", str(told)[:300])
    return Problem(
        error=str(told.get("error") or told.get("title") or "Unknown"),
        detail=_DOCUMENT.sub("", str(told.get("detail") or told.get("title") or "no reason was given")),
        hint=str(told.get("hint") or ""),
        line=told.get("line"),
        column=told.get("column"),
    )


def _document(told: Mapping[str, Any]) -> DocumentResult:
    problem, forecast = told.get("problem"), told.get("forecast")
    return DocumentResult(
        kind=str(told["kind"]),
        name=str(told["name"]),
        action=str(told["action"]),
        problem=_problem(problem) if problem else None,
        forecast=_forecast(forecast) if forecast else None,
    )


def _forecast(told: Mapping[str, Any]) -> Forecast:
    state = tuple(
        (str(one["table"]), int(one.get("rows") or 0), int(one.get("bytes") or 0)) for one in told.get("state") or ()
    )
    return Forecast(_keys(told), state, int(told.get("bytes") or 0))


def _keys(told: Mapping[str, Any]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(map(str, zone.get("key") or ())) for zone in told.get("zones") or ())


def _view(told: Mapping[str, Any], progress: int | None) -> ViewFigures:
    return ViewFigures(
        state=str(told.get("state") or "Ready"),
        reason=str(told.get("reason") or ""),
        version=told.get("version"),
        epoch=told.get("epoch"),
        lag_ms=told.get("lag_ms"),
        rows=told.get("rows"),
        bytes=told.get("bytes"),
        quarantined=told.get("quarantined"),
        complete=told.get("complete"),
        zones=_keys(told),
        reads=tuple(told.get("reads") or ()),
        dependants=tuple(told.get("dependants") or ()),
        failed_build=str(told.get("failed_build") or ""),
        since=told.get("since"),
        progress=progress,
    )


def _spark_builds(told: Mapping[str, Any]) -> Iterator[SparkBuild]:
    for one in told.get("building") or ():
        if one.get("by") == "spark":
            views = tuple(map(str, one["views"]))
            yield SparkBuild(int(one["view_group"]), views, int(one.get("since") or 0), str(one.get("state") or ""))


def _building(told: Mapping[str, Any]) -> list[tuple[str, int]]:
    """Views that are built, with the percent that is done."""
    return [
        (str(name), int(100 * one["done"] / one["total"]) if one["total"] else 0)
        for one in told.get("building") or ()
        for name in one["views"]
    ]
