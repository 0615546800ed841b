"""`reload`, the same for every database that follows tables of another system: ask, and ask again how far it is."""

from __future__ import annotations

import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

DONE = "done"
_PAUSE_S = 0.5


@dataclass(frozen=True)
class ReloadReport:
    """How far a reload is. `phase`: scan (rows come once more), compare (what is still not as the other system has it
    is corrected), done. `share`, `rows`, `remaining_s`: of the scan. `corrected`: rows. `undecided`: rows that were
    written all the time, so that nothing can be said of them; another reload may."""

    id: str
    table: str
    phase: str
    rows: int = 0
    share: float = 0.0
    remaining_s: float | None = None
    corrected: int = 0
    undecided: int = 0

    @property
    def done(self) -> bool:
        return self.phase == DONE


class Reloading(ABC):
    @abstractmethod
    def _reload(self, id: str, table: str, start: str, stop: str) -> ReloadReport:
        """Ask for it, unless it was asked for; how far it is."""

    def reload(
        self,
        table: str,
        *,
        start: str = "",
        stop: str = "",
        wait: bool = True,
        request: str = "",
        progress: Callable[[ReloadReport], object] = lambda report: None,
    ) -> ReloadReport:
        """Read the rows of a table of another system again, and correct what is not as that system has it: after a bulk
        load, which its log does not tell of, or when deletes were lost. Views stay in service meanwhile.

        `start`, `stop`: row keys, from and before, as the shell of HBase writes them (`\\x00` is a byte). `wait`: until
        it is done; else ask again with the same `request`, which is a name for it: repeating one has no effect.
        """
        id = request or uuid.uuid4().hex
        while True:
            report = self._reload(id, table, start, stop)
            progress(report)
            if report.done or not wait:
                return report
            time.sleep(_PAUSE_S)
