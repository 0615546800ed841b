"""A backend is named by a URL; one that nobody knows is refused with those that are."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

import belvedere
from belvedere.backend.memory import MemoryStore
from belvedere.backend.opening import leaves_state, open_backend, served_url
from belvedere.backend.served.base_service import BaseService
from belvedere.backend.served.lmdb_store import LmdbStore
from belvedere.backend.served.server import StoreServer
from belvedere.backend.served.service import StoreService
from belvedere.backend.split_store import SplitStore
from belvedere.cli.main import cli
from belvedere.cluster.process.options import ProcessOptions
from belvedere.cluster.roles import run
from belvedere.errors import CatalogError, DataError
from belvedere.protocol.messages import Role


def test_memory_is_a_backend_of_its_own_each_time() -> None:
    one, other = open_backend("memory:"), open_backend("memory:")
    one.store.put_document("a", b"1")
    assert one.store.get_document("a") == b"1" and other.store.get_document("a") is None
    assert one.base is not None and one.base.tables() == {} and one.within(1.0) is one.store is one.sources
    assert open_backend("memory:", base=False).base is None
    one.close()


def test_a_served_store_is_opened_by_its_address(tmp_path: Path) -> None:
    store = LmdbStore(tmp_path / "store")
    server = StoreServer([StoreService(store), BaseService(store.base)])
    backend = open_backend(served_url(server.address))
    backend.store.put_document("a", b"1")
    assert store.get_document("a") == b"1" == backend.within(5.0).get_document("a")
    assert backend.base is not None and backend.base.within(5.0).tables() == {}
    backend.close()
    alone = open_backend(served_url(server.address), base=False)
    assert alone.base is None and alone.store.identity() == store.identity()
    alone.close()
    options = ProcessOptions(Role.VIEWSERVER, "localhost:1", store=served_url(server.address))
    member = run.open_store(options, "an address that nobody asks for")
    assert member.store.identity() == store.identity() and member.base is None
    member.close()
    server.close()
    store.close()


@pytest.mark.parametrize(
    "url", ["", "memory", "memory:x", "mem:", "hbase:zk1/pool", "served:host:1", "Served://host:1", "/tmp/store"]
)
def test_a_url_that_nobody_knows_is_refused_with_those_that_are_known(url: str) -> None:
    with pytest.raises(
        DataError, match=r"names no backend that is known; there are memory:, served://host:port or hbase://"
    ):
        open_backend(url)


@pytest.mark.parametrize("url", ["served://", "served://host", "served://host:", "served://host:0", "served://h:99999"])
def test_a_store_needs_a_host_and_a_port(url: str) -> None:
    with pytest.raises(DataError, match="a host and a port are needed, as in served://host:7001"):
        open_backend(url)


@pytest.mark.parametrize(
    ("url", "reason"),
    [
        ("memory:", "is in the memory of one process, and a pool consists of several; give served://host:port"),
        ("hbase://zk1/my-pool", "the quorum and a namespace of letters, digits and _ are needed"),
        ("grpc://localhost:1", "names no backend that is known; there are memory:, served://host:port or hbase://"),
        ("served://localhost", "a host and a port are needed, as in served://host:7001"),
    ],
)
def test_members_and_clients_refuse_at_once_what_they_cannot_share(url: str, reason: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match=reason):
        belvedere.connect("belvedere://localhost:1", store=url)
    for role in ("coordinator", "distributor", "viewserver"):
        words = [role, "--zookeeper", "localhost:1", "--directory", str(tmp_path), "--store", url]
        result = CliRunner().invoke(cli, words, prog_name="belvedere")
        assert result.exit_code and reason in result.output


def test_what_is_no_address_of_a_store_is_refused() -> None:
    assert served_url("grpc+tls://h:1") == "served+tls://h:1" and served_url("grpc://[::1]:5") == "served://[::1]:5"
    with pytest.raises(DataError, match="'http://h:1' is no address of a store"):
        served_url("http://h:1")


def test_clients_open_an_hbase_without_compiled_kernels() -> None:
    """Those decode its log, which clients do not take."""
    code = (
        "import sys\n"
        "from belvedere.backend.opening import open_backend\n"
        "backend = open_backend('hbase://localhost:1/shop')\n"
        "assert backend.base is None and backend.fed_by is not None\n"
        "print([name for name in ('numba', 'pandas', 'sqlglot') if name in sys.modules])\n"
        "backend.close()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.stdout.strip() == "[]", done.stderr


def test_where_the_state_is_stands_in_the_url() -> None:
    assert not leaves_state("hbase://zk/shop") and not leaves_state("hbase://zk/shop?state=hbase")
    assert leaves_state("hbase://zk/shop?state=served") and not leaves_state("served://host:1")
    with pytest.raises(DataError, match="state is 'lmdb'; it is in hbase or served"):
        leaves_state("hbase://zk/shop?state=lmdb")


def test_views_know_whose_state_they_belong_to() -> None:
    views = MemoryStore("views")
    SplitStore(MemoryStore("one"), views).check_owner()
    SplitStore(MemoryStore("one"), views).check_owner()
    with pytest.raises(CatalogError, match="whose state is in 'one', and here it is in 'other'; give the pool another"):
        SplitStore(MemoryStore("other"), views).check_owner()


def test_only_what_is_in_hbase_is_discarded() -> None:
    told = CliRunner().invoke(cli, ["discard", "served://store:1", "--yes"])
    assert told.exit_code == 1 and "of a store of its own remove the directory" in told.stderr
    asked = CliRunner().invoke(cli, ["discard", "hbase://zk/shop"], input="n\n")
    assert asked.exit_code == 1 and "remove everything that the pool 'default' has at hbase://zk/shop?" in asked.stdout
