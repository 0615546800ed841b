"""What HBase's exceptions mean to a caller: look again elsewhere, wait and try again, or give up.

    RemoteFault          HBase answered with an exception; carries its class
    ├── RegionMoved      the region is not here (any more): look it up again
    ├── ServerBusy       the server has no room, or the region is too busy: the same again, later
    ├── ScannerLost      a scanner that the server does not know (any more): open another one where it stood
    └── Refused          it will never do this: no such table, no permission, a family that is not there

`RemoteFault` is a `StoreUnavailable`: the call may have happened and can be repeated. `Refused` is not repeated.
"""

from __future__ import annotations

from belvedere.errors import StoreUnavailable

_MOVED = (
    "NotServingRegionException",
    "RegionMovedException",
    "RegionOpeningException",
    "RegionServerStoppedException",
    "RegionServerAbortedException",
    "ServerNotRunningYetException",
    "WrongRegionException",
    "FailedServerException",
    "MasterNotRunningException",
    "PleaseHoldException",
    "NotAllMetaRegionsOnlineException",
    "MasterStoppedException",
)
_BUSY = ("RegionTooBusyException", "CallQueueTooBigException", "CallTimeoutException", "RpcThrottlingException")
_SCANNER = ("UnknownScannerException", "OutOfOrderScannerNextException", "ScannerResetException", "LeaseException")
_LINES = 400


class RemoteFault(StoreUnavailable):
    """HBase answered with an exception. `name`: its class, without the package."""

    def __init__(self, message: str, name: str = ""):
        self.name = name
        super().__init__(message)


class RegionMoved(RemoteFault):
    """The region is not there, or not open yet; whoever asks the wrong server hears the same."""


class ServerBusy(RemoteFault):
    """The server may do it later."""


class ScannerLost(RemoteFault):
    """The scanner's lease has ended, or its region was reopened."""


class Refused(RemoteFault):
    """The same call will always be refused."""


def remote_fault(where: str, name: str, text: str, do_not_retry: bool) -> RemoteFault:
    """The error of an exception class (with its package), and its message or stack trace."""
    short = name.rpartition(".")[2]
    if short == "AccessDeniedException" and "uthentication is required" in text:
        return Refused(
            f"hbase {where} demands Kerberos, which Belvedere does not speak yet; a pool needs an HBase with "
            "hbase.security.authentication simple",
            short,
        )
    first = text.strip().split("\n\tat ")[0].removeprefix(name).lstrip(": ")[:_LINES]
    kind: type[RemoteFault] = RemoteFault
    if short in _MOVED:
        kind = RegionMoved
    elif short in _SCANNER:
        kind = ScannerLost
    elif short in _BUSY:
        kind = ServerBusy
    elif do_not_retry:
        kind = Refused
    return kind(f"hbase {where}: {short}: {first}" if first else f"hbase {where}: {short}", short)
