"""Every error a user of Belvedere can meet, in one tree.

Messages are part of the interface: lowercase, they name the kind and the object, say what was found, what is allowed,
and give a hint where one exists.

    BelvedereError
    ├── SqlError                 a statement that cannot be accepted; carries a position in the text
    │   └── UnsupportedSql       valid SQL that lies outside the scope
    ├── CatalogError             a table or view that is missing, exists already, is needed by others, or forms a cycle
    │   └── UnknownRelation      ... that is missing
    ├── Defect                   a statement that this program should carry out and cannot; nothing of it happened
    ├── DataError                values that do not fit their column; nothing of the call was written
    │   └── RequestReused        a write under a name that another one had before
    ├── NotYet                   a read that could not include a token's write in time
    ├── EpochExpired             an epoch older than what is retained
    │   └── BelowHorizon         ... said by the store: what the read would have to see may be gone
    ├── ViewReplaced             a subscription whose view got another shape
    ├── ViewFailed               a view that cannot be computed any more; the reason, and since which epoch
    ├── Locked                   another process writes this database
    ├── Closed                   the database was closed, or stopped after an I/O failure
    ├── Unavailable              a part of the cluster that does not answer; the call may be repeated
    │   ├── StoreUnavailable     ... the store: the call may have happened, wholly, partly or not at all
    │   ├── CoordinationUnavailable  ... ZooKeeper; a compare-and-set may have happened
    │   └── PeerUnavailable      ... another member
    ├── Incompatible             a member of another protocol, or of another cluster of the same name
    ├── Contradiction            members said things that cannot all be true; the attempt is given up
    ├── RequestError             over HTTP only: a request that is not carried out
    │   ├── BadRequest           ... is not understood
    │   ├── NotAuthenticated     ... says not who asks
    │   ├── AccessDenied         ... asks for what the caller may not do
    │   ├── NoSuchResource       ... names something that is not there
    │   ├── TooLarge             ... has too large a body
    │   ├── TooManyRequests      ... comes while too many others are at work
    │   ├── OutOfTime            ... took longer than it may; a write of it may have happened
    │   ├── SlowReader           ... a subscription whose subscriber did not keep up; it can go on
    │   └── Draining             ... a server that stops; another one can go on
    └── StorageError             the files below the database
        ├── Damaged              a checksum or a structure that does not hold; says where
        ├── FormatError          written by a newer version
        ├── ReadOnly             a change of a database that is open for reading only
        └── DiskError            the operating system refused a write, fsync or rename
"""

from __future__ import annotations


class BelvedereError(Exception):
    """Base of everything that is raised on purpose."""


class SqlError(BelvedereError):
    """A statement that cannot be accepted: `line` and `column` (from 1) point into its text."""

    def __init__(self, message: str, *, line: int | None = None, column: int | None = None, hint: str | None = None):
        self.reason, self.line, self.column, self.hint = message, line, column, hint
        where = f" at line {line}, column {column}" if line is not None else ""
        super().__init__(f"{message}{where}" + (f"; hint: {hint}" if hint else ""))


class UnsupportedSql(SqlError):
    """Valid SQL outside the scope that can be maintained."""


class CatalogError(BelvedereError):
    """A name that is unknown, taken, needed by others, or part of a cycle."""


class UnknownRelation(CatalogError):
    """There is no table or view of that name. `known`: those that there are, for who may tell only some of them."""

    def __init__(self, message: str, relation: str = "", known: tuple[str, ...] = ()):
        self.relation, self.known = relation, known
        super().__init__(message)


class Defect(BelvedereError):
    """A statement that is right and cannot be carried out: a mistake of this program, found before it did harm."""


class DataError(BelvedereError):
    """Values that do not fit; the call that carried them wrote nothing."""


class RequestReused(DataError):
    """A write by a name that another write had before: nothing of it happened."""


class NotYet(BelvedereError):
    """A read could not include the wanted write in time; `lag` is how far (in milliseconds) the view is behind it."""

    def __init__(self, message: str, lag: float):
        self.lag = lag
        super().__init__(message)


class EpochExpired(BelvedereError):
    """The epoch asked for is older than the retention keeps."""


class BelowHorizon(EpochExpired):
    """A store was asked for versions below its horizon: some of them may be gone, and an answer could be wrong. Who
    computes an epoch that is not committed never asks that; who does is late, and others have committed the epoch."""


class ViewReplaced(BelvedereError):
    """The view was replaced by one with other columns; subscribe again."""


class ViewFailed(BelvedereError):
    """The view cannot be computed since `epoch`: it is not read any more, until it is created again."""

    def __init__(self, message: str, epoch: int = 0):
        self.epoch = epoch
        super().__init__(message)


class Locked(BelvedereError):
    """Another process has the database open for writing."""


class Closed(BelvedereError):
    """The database is closed, or stopped itself after a failure that it names."""


class Unavailable(BelvedereError):
    """A part of the cluster does not answer. The call may have happened; it can be repeated."""


class StoreUnavailable(Unavailable):
    """The store does not answer, or has no room."""


class CoordinationUnavailable(Unavailable):
    """ZooKeeper does not answer; what a compare-and-set did is unknown."""


class PeerUnavailable(Unavailable):
    """Another member does not answer."""


class Incompatible(BelvedereError):
    """A member that cannot work with the others: its protocol, or its cluster, is another one."""


class Contradiction(BelvedereError):
    """Reports of members that cannot all be true: a defect, found before it could do harm. Whoever hears of it gives up
    the attempt."""


class RequestError(BelvedereError):
    """A request over HTTP that is not carried out."""


class BadRequest(RequestError):
    """A request that is not understood. `status`: of HTTP, where it is not 400."""

    def __init__(self, message: str, status: int = 400):
        self.status = status
        super().__init__(message)


class NotAuthenticated(RequestError):
    """Nobody knows who asks."""


class AccessDenied(RequestError):
    """The caller may not do that."""


class NoSuchResource(RequestError):
    """A path, a row, a snapshot or the name of a write that is not there. `kind`: row, path, snapshot, write."""

    def __init__(self, message: str, kind: str = "path"):
        self.kind = kind
        super().__init__(message)


class TooLarge(RequestError):
    """A body with more bytes than are taken."""


class TooManyRequests(RequestError):
    """Too many requests are at work; `seconds` is when to try again."""

    def __init__(self, message: str, seconds: float = 1.0):
        self.seconds = seconds
        super().__init__(message)


class OutOfTime(RequestError):
    """A request that took longer than it may."""


class SlowReader(RequestError):
    """What a subscriber lacks is beyond the buffer; it goes on with the last event that it has."""


class Draining(RequestError):
    """The server stops: what was asked for goes on elsewhere, or later."""


class StorageError(BelvedereError):
    """The files below the database are not as they should be."""


class Damaged(StorageError):
    """A checksum or structure does not hold; the message says in which file and at which byte."""


class FormatError(StorageError):
    """The files were written by a newer version."""


class ReadOnly(StorageError):
    """The database is open for reading only; another process may have it open for writing."""


class DiskError(StorageError):
    """The operating system refused a write, an fsync or a rename."""
