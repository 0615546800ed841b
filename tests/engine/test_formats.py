"""State that released engines have written is read by this one: a fixture of each form, made by
`python -m tests.engine.test_formats`.

State of a pool is migrated when it is loaded. An engine that cannot read the form before has to say so, and views are
rebuilt aside (docs/design/engine-versions.md); else it would lose what pools have.
"""

from __future__ import annotations

import base64
import json
import lzma
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from belvedere.backend.memory import MemoryStore
from belvedere.backend.served import wire
from belvedere.cluster.catalog import catalogs
from belvedere.cluster.process.next_engine import NEXT, REBUILDS, engines_of
from belvedere.engine.formats import THIS_VERSION, view_group_of
from belvedere.engine.version import ENGINE_VERSION, REBUILDING
from belvedere.errors import FormatError
from belvedere.protocol.messages import Epoch, EpochPlan
from tests.cluster.client_pool import create
from tests.cluster.fake_pool import FakePool

FIXTURES = Path(__file__).parent
STATEMENTS = (
    "CREATE TABLE orders (id BIGINT PRIMARY KEY, customer BIGINT, total DECIMAL(12,2), weight DOUBLE, note STRING)",
    "CREATE TABLE customers (id BIGINT PRIMARY KEY, city STRING)",
    "CREATE MATERIALIZED VIEW spend AS SELECT customer, count(*) AS n, sum(total) AS total, sum(weight) AS weight,"
    " min(note) AS first, max(total) AS most, count(DISTINCT note) AS notes FROM orders GROUP BY customer",
    "CREATE MATERIALIZED VIEW named AS SELECT o.id, c.city, o.note FROM orders o LEFT JOIN customers c"
    " ON o.customer = c.id",
    "CREATE MATERIALIZED VIEW towns AS SELECT DISTINCT city FROM named",
)
VIEWS = ("spend", "named", "towns")


def order(id: int) -> dict[str, Any]:
    return {"id": id, "customer": id % 4, "total": f"{id}.25", "weight": id * 0.1, "note": f"note {id % 3}"}


def before(db: Any) -> None:
    db.put("customers", [{"id": n, "city": city} for n, city in enumerate(("Oslo", "Bergen", "Oslo"))])
    db.put("orders", [order(id) for id in range(20)])
    db.delete("orders", [3, 7])


def after(db: Any) -> None:
    db.put("orders", [{"id": 1, "total": "100.00"}, order(30), {"id": 2, "note": None, "weight": 1e300}])
    db.delete("orders", [0, 4, 8, 12, 16])
    db.delete("customers", [1])


def views(db: Any) -> dict[str, pa.Table]:
    return {view: db.scan(view) for view in VIEWS}


def path(engine: int) -> Path:
    return FIXTURES / f"state_of_engine_{engine}.json.xz"


def write_fixture(to: Path) -> None:
    pool, written = FakePool(), []
    write = pool.store.write

    def recording(epoch: int, writes: Any) -> None:
        written.append([epoch, [_packed(one) for one in writes]])
        write(epoch, writes)

    pool.store.write = recording  # type: ignore[method-assign]
    pool.step()
    with pool.connect() as db:
        create(pool, db, *STATEMENTS)
        before(db)
        pool.step()
    content = {
        "document": base64.b64encode(pool.document).decode(),
        "positions": pool.positions,
        "seqs": pool.seqs,
        "written": written,
    }
    to.write_bytes(lzma.compress(json.dumps(content).encode()))


def _packed(write: Any) -> list[Any]:
    head, rows = wire.pack_write(write)
    return [head, base64.b64encode(rows.to_pybytes()).decode()]


def restored(fixture: Path) -> FakePool:
    content = json.loads(lzma.decompress(fixture.read_bytes()))
    pool = FakePool(store=MemoryStore())  # one that asks for no previous images: the fixture has none
    for epoch, writes in content["written"]:
        unpacked = [wire.unpack_write(head, pa.py_buffer(base64.b64decode(rows))) for head, rows in writes]
        pool.store.write(epoch, unpacked)
    document = base64.b64decode(content["document"])
    pool.document, pool.document_name = document, f"catalog/{catalogs.version(document):010d}-1"
    pool.store.put_document(pool.document_name, document)
    pool.positions, pool.seqs = content["positions"], content["seqs"]
    last, compiled = Epoch(content["written"][-1][0]), catalogs.compile(document)
    pool.plan = EpochPlan(last, (), pool.positions, compiled.version, pool.document_name, compiled.stages)
    return pool


OLDEST_READ = max((engine for engine in REBUILDING if engine <= ENGINE_VERSION), default=0)
FOUND = sorted(int(file.name.split("_")[-1].split(".")[0]) for file in FIXTURES.glob("state_of_engine_*.json.xz"))
ENGINES = [engine for engine in FOUND if engine >= OLDEST_READ]


def test_there_is_a_fixture_of_each_engine_that_this_one_follows() -> None:
    assert set(FOUND) >= set(range(THIS_VERSION.oldest, ENGINE_VERSION + 1))


def test_a_value_is_read_by_the_engines_that_know_its_form_and_by_no_other() -> None:
    engines = engines_of(NEXT, REBUILDS)
    plain = pa.array([b"a value", None, b""], pa.binary())
    before, after = engines.pack(NEXT, plain), engines.pack(REBUILDS, plain)
    assert engines.pack(ENGINE_VERSION, plain).equals(plain) and not before.equals(plain) and not after.equals(before)
    mixed = pa.concat_arrays([plain, before])
    assert engines.unpack(NEXT, mixed).equals(pa.concat_arrays([plain, plain])), "migrated, a key at a time"
    assert engines.unpack(REBUILDS, after).equals(plain)
    for foreign in (plain, before):
        with pytest.raises(FormatError, match=f"that engine {REBUILDS} does not read: it begins with that of engine"):
            engines.unpack(REBUILDS, foreign)
    assert engines.unpack(REBUILDS, pa.nulls(2, pa.binary())).null_count == 2, "what is not there has no form"


@pytest.mark.parametrize(("table", "expected"), [("12 state", 12), ("view spend 1", None), ("delta orders", None)])
def test_state_tables_are_called_after_their_view_group(table: str, expected: int | None) -> None:
    assert view_group_of(table) == expected


@pytest.mark.parametrize("engine", ENGINES)
def test_state_that_an_engine_wrote_is_gone_on_with(engine: int) -> None:
    """Every state is loaded, changed and read: groups that grow, shrink and end, partners that come and go."""
    pool, fresh = restored(path(engine)), FakePool()
    fresh.step()
    with fresh.connect() as expected:
        create(fresh, expected, *STATEMENTS)
        before(expected)
        fresh.step()
        pool.step()
        with pool.connect() as found:
            assert views(found) == views(expected)
            for db, one in ((found, pool), (expected, fresh)):
                after(db)
                one.step()
            assert views(found) == views(expected)
            assert found.get("spend", 2)["weight"] == 1e300


if __name__ == "__main__":
    write_fixture(path(ENGINE_VERSION))
