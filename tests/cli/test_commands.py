"""Each command does what its help says, for people and for programs."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

import belvedere
from belvedere.cli.main import COMMANDS, cli
from belvedere.engine import engine
from tests.cli.conftest import Shop

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_get_prints_a_row_for_people_and_for_programs(filled: Shop) -> None:
    assert filled.run("get", "spend", "7").stdout.split() == ["customer", "7", "n", "2", "total", "10.00"]
    assert filled.json("get", "spend", "7") == [{"customer": 7, "n": 2, "total": "10.00"}]


def test_options_are_accepted_after_the_command_too(filled: Shop) -> None:
    result = CliRunner().invoke(cli, ["get", "spend", "8", "--db", str(filled.path), "--json"])
    assert result.stdout == '{"customer": 8, "n": 1, "total": "1.00"}\n'


def test_get_of_a_row_that_is_not_there_says_so(filled: Shop) -> None:
    assert "no row 99 in spend" in filled.run("get", "spend", "99", code=1).stderr


def test_get_explains_the_key(filled: Shop) -> None:
    assert "the key of spend is (customer bigint)" in filled.run("get", "spend", "7", "8", code=1).stderr
    assert "'x' is not a bigint" in filled.run("get", "spend", "x", code=1).stderr


def test_scan_prints_rows_in_key_order(filled: Shop) -> None:
    assert [row["customer"] for row in filled.json("scan", "spend")] == [7, 8]
    assert [row["customer"] for row in filled.json("scan", "spend", "--start", "8")] == [8]
    assert [row["customer"] for row in filled.json("scan", "spend", "--stop", "8")] == [7]
    assert len(filled.json("scan", "spend", "--limit", "1")) == 1
    assert "2 rows" in filled.run("scan", "spend").stdout


def test_scan_reads_from_the_end_and_only_some_columns(filled: Shop) -> None:
    assert filled.json("scan", "spend", "--reverse", "--columns", "n, customer") == [
        {"n": 1, "customer": 8},
        {"n": 2, "customer": 7},
    ]
    assert (
        "no column 'town'; it has customer, n, total" in filled.run("scan", "spend", "--columns", "town", code=1).stderr
    )
    assert "upside down" in filled.run("scan", "spend", "--start", "8", "--stop", "7", code=1).stderr


def test_lookup_prints_the_rows_whose_key_begins_so(filled: Shop) -> None:
    filled.run(
        "sql", "-c", "CREATE MATERIALIZED VIEW sums AS SELECT customer, total, count(*) AS n FROM orders GROUP BY 1, 2"
    )
    assert [row["total"] for row in filled.json("lookup", "sums", "7")] == ["0.50", "9.50"]
    assert filled.json("lookup", "sums", "7", "9.50", "--columns", "n") == [{"n": 1}]
    assert [row["total"] for row in filled.json("lookup", "sums", "7", "--reverse", "--limit", "1")] == ["9.50"]
    assert filled.json("lookup", "orders", "2", "--columns", "total") == [{"total": "0.50"}]
    assert filled.json("lookup", "sums", "99") == []
    assert [row["total"] for row in filled.json("scan", "sums", "--start", "7", "--stop", "8")] == ["0.50", "9.50"]
    assert "lookup sums prints all rows whose key begins so" in filled.run("get", "sums", "7", code=1).stderr
    assert "2 values are needed, 3 were given" in filled.run("lookup", "sums", "7", "1", "1", code=1).stderr
    assert "'x' is not a bigint" in filled.run("lookup", "sums", "x", code=1).stderr


def test_rows_of_a_view_that_has_failed_are_printed_to_who_allows_stale_ones(
    filled: Shop, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(engine, "apply_task", fails)
        filled.run("put", "orders", "--json", '{"id": 4, "customer": 7, "total": "1.00"}')
    for words in (("get", "spend", "7"), ("lookup", "spend", "7"), ("scan", "spend", "--limit", "1")):
        assert "ZeroDivisionError: a bug" in filled.run(*words, code=1).stderr
        stale = filled.run("--json", *words, "--allow-stale")
        assert stale.stdout == '{"customer": 7, "n": 2, "total": "10.00"}\n'
        assert "cannot be read since epoch" in stale.stderr and "These rows are from before that" in stale.stderr


def test_put_and_delete_change_the_view(filled: Shop) -> None:
    (written,) = filled.json("put", "orders", "--json", '{"id": 4, "customer": 8, "total": "2.00"}')
    assert written["written"] == 1
    assert filled.json("get", "spend", "8", "--after", str(written["token"])) == [
        {"customer": 8, "n": 2, "total": "3.00"}
    ]
    filled.run("delete", "orders", "4")
    assert filled.json("get", "spend", "8") == [{"customer": 8, "n": 1, "total": "1.00"}]


def test_put_leaves_missing_columns_unchanged_and_reads_stdin(filled: Shop) -> None:
    filled.run("put", "orders", input='{"id": 1, "customer": 8}\n{"id": 2, "total": null}\n')
    assert filled.json("scan", "spend") == [
        {"customer": 7, "n": 1, "total": None},
        {"customer": 8, "n": 2, "total": "10.50"},
    ]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ('{"id": 1', "the rows are not JSON"),
        ('{"id": 1, "colour": 2}', "table orders has no column 'colour'; it has id, customer, total"),
        ('{"id": "x"}', "column id: 'x' is not a bigint"),
        ("[1]", "a row of orders is a JSON object"),
    ],
)
def test_put_refuses_what_does_not_fit(filled: Shop, rows: str, message: str) -> None:
    assert message in filled.run("put", "orders", "--json", rows, code=1).stderr


def test_views_cannot_be_written(filled: Shop) -> None:
    assert "spend is a view" in filled.run("put", "spend", "--json", "{}", code=1).stderr


def test_apply_of_a_script_and_of_manifests_makes_the_same_shop(tmp_path: Path) -> None:
    for name in ("shop.sql", "shop.yaml"):
        shop = Shop(tmp_path / name)
        shop.run("apply", "-f", str(EXAMPLES / name))
        shop.run("load", "customers", str(EXAMPLES / "data/customers.csv"))
        shop.run("load", "orders", str(EXAMPLES / "data/orders.csv"))
        shop.run("load", "items", str(EXAMPLES / "data/items.jsonl"))
        assert shop.json("get", "city_revenue", "Oslo") == [{"city": "Oslo", "products": 3, "revenue": "159.75"}]


def test_applying_manifests_again_changes_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "shop.bv")
    shop.run("apply", "-f", str(EXAMPLES / "shop.yaml"))
    assert {change["action"] for change in shop.json("apply", "-f", str(EXAMPLES / "shop.yaml"))} == {"unchanged"}


def test_a_manifest_that_disagrees_with_an_existing_table_is_refused(shop: Shop) -> None:
    manifest = """
        apiVersion: belvedere.dev/v1alpha1
        kind: BaseTable
        metadata: {name: orders}
        spec: {columns: [{name: id, type: bigint}, {name: colour, type: string}], key: [id]}
    """
    error = shop.run("apply", "-f", "-", input=manifest, code=1).stderr
    assert "table 'orders' exists with a column 'customer' that is not listed" in error


def test_explain_in_all_formats(filled: Shop, tmp_path: Path) -> None:
    assert "orders" in filled.run("explain", "spend").stdout
    assert filled.run("explain", "spend", "--format", "svg").stdout.lstrip().startswith("<svg")
    assert filled.json("explain", "spend")
    target = tmp_path / "plan.svg"
    filled.run("explain", "spend", "--format", "svg", "-o", str(target))
    assert "</svg>" in target.read_text()


def test_explain_of_a_file_creates_nothing(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "none.bv")
    assert "city_revenue" in shop.run("explain", "-f", str(EXAMPLES / "shop.yaml")).stdout
    assert not shop.path.exists()


def test_manifests_of_any_pool_are_explained_and_only_those_of_this_database_applied(tmp_path: Path) -> None:
    shop = Shop(tmp_path / "none.bv")
    pool = "apiVersion: belvedere.dev/v1alpha1\nkind: ViewPool\nmetadata: {name: reports}\nspec: {replicas: 3}\n---\n"
    text = pool + (EXAMPLES / "shop.yaml").read_text().replace("spec:\n  query", "spec:\n  pool: reports\n  query")
    assert "city_revenue" in shop.run("explain", "-f", "-", input=text).stdout
    assert "ViewPool 'reports' cannot be applied here" in shop.run("apply", "-f", "-", input=text, code=1).stderr


def test_watch_prints_what_changes(filled: Shop) -> None:
    lines = filled.json("watch", "spend", "--initial", "--changes", "2", "--seconds", "0.1")
    assert [(line["weight"], line["row"]["customer"]) for line in lines] == [(1, 7), (1, 8)]


def test_watch_resumes_after_an_epoch(filled: Shop) -> None:
    (written,) = filled.json("put", "orders", "--json", '{"id": 5, "customer": 8, "total": "1.00"}')
    (before,) = filled.json("delete", "orders", "5")
    lines = filled.json("watch", "spend", "--after", str(written["token"]), "--seconds", "2", "--changes", "2")
    assert [(line["weight"], line["row"]["total"]) for line in lines] == [(-1, "2.00"), (1, "1.00")]
    assert f"e{lines[0]['epoch']}" >= before["token"]


def test_verify_compares_with_a_recomputation(filled: Shop) -> None:
    (report,) = filled.json("verify")
    assert report["view"] == "spend"
    assert report["ok"] is True
    assert "spend" in filled.run("verify", "spend").stdout


def test_quarantine_shows_the_rows_and_reasons(filled: Shop) -> None:
    assert "nothing is in quarantine" in filled.run("quarantine", "spend").stdout
    filled.run("sql", "-c", "CREATE MATERIALIZED VIEW share AS SELECT id, 1 / (customer - 7) AS x FROM orders")
    rows = filled.json("quarantine", "share", code=3)
    assert len(rows) == 2
    assert "division" in str(rows[0]).lower()
    assert filled.json("verify", "share", code=3)[0]["ok"] is False


def test_status_and_lag(filled: Shop) -> None:
    (status,) = filled.json("status")
    assert "spend" in str(status)
    assert "spend" in filled.run("status").stdout
    filled.run("lag")


def test_status_of_a_cluster_tells_what_is_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {
        "epoch": 7,
        "open_epochs": [8, 9],
        "building": [],
        "stalled": "",
        "members": [
            {"id": "server-1", "share": 0.75, "trouble": "", "leaving": False},
            {"id": "leader", "share": None},
        ],
        "views": {},
    }
    monkeypatch.setattr(belvedere, "connect", lambda url: contextlib.nullcontext(SimpleNamespace(status=lambda: told)))
    shown = CliRunner().invoke(cli, ["--url", "belvedere://a:1", "status"]).stdout
    assert ["open_epochs", "8,", "9"] in [line.split() for line in shown.splitlines()]
    assert "building" not in shown and "stalled" not in shown
    assert "75.0%" in shown and "trouble" not in shown and "leaving" not in shown and "NULL" not in shown
    told["building"] = [3]
    shown = CliRunner().invoke(cli, ["--url", "belvedere://a:1", "status"]).stdout
    assert ["building", "3"] in [line.split() for line in shown.splitlines()]


def test_clusters_with_certificates(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = {part: tmp_path / f"{part}.pem" for part in ("certificate", "key", "authority")}
    for file in files.values():
        file.write_text("")
    asked: list[tuple[str, dict[str, str]]] = []

    def connect(url: str, **given: Any) -> Any:
        asked.append((url, {name: str(file) for name, file in given.items()}))
        return contextlib.nullcontext(SimpleNamespace(status=dict))

    monkeypatch.setattr(belvedere, "connect", connect)
    url, expected = "belvedere+tls://a:1", {part: str(file) for part, file in files.items()}
    options = [word for part, file in files.items() for word in (f"--tls-{part}", str(file))]
    for words in ([*options, "--url", url, "status"], ["status", "--url", url, *options]):
        assert CliRunner().invoke(cli, words).exit_code == 0
    variables = {f"BELVEDERE_TLS_{part.upper()}": str(file) for part, file in files.items()}
    for where in (url, "belvedere://a:1"):
        assert CliRunner(env=variables | {"BELVEDERE_URL": where}).invoke(cli, ["status"]).exit_code == 0
    assert asked == [(url, expected)] * 3 + [("belvedere://a:1", {})]
    asked.clear()
    named = ["--tls-server-name", "members", "--url", url, "status"]
    assert CliRunner().invoke(cli, [*options, *named]).exit_code == 0
    of_environment = variables | {"BELVEDERE_URL": url, "BELVEDERE_TLS_SERVER_NAME": "members"}
    assert CliRunner(env=of_environment).invoke(cli, ["status"]).exit_code == 0
    assert asked == [(url, expected | {"server_name": "members"})] * 2


def test_sql_runs_statements_and_scripts(filled: Shop) -> None:
    assert filled.json("sql", "-c", "SELECT count(*) AS n FROM orders") == [{"n": 3}]
    script = "CREATE TABLE t (k INT PRIMARY KEY, s STRING); INSERT INTO t VALUES (1, 'a;b'), (2, NULL);"
    assert filled.json("sql", input=script + "SELECT s FROM t ORDER BY s DESC;")[-2:] == [{"s": "a;b"}, {"s": None}]
    assert "3" in filled.run("sql", "-c", "SELECT count(*) AS n FROM orders").stdout


def test_a_refused_statement_is_shown_with_a_caret(filled: Shop) -> None:
    error = filled.run("sql", "-c", "SELECT id,\n       colour FROM orders", code=1).stderr
    lines = error.splitlines()
    assert lines[0].startswith("error: ")
    assert lines[1:3] == ["         colour FROM orders", "         ^"]


def test_time_travel(filled: Shop) -> None:
    (written,) = filled.json("put", "orders", "--json", '{"id": 9, "customer": 9, "total": "1.00"}')
    filled.run("delete", "orders", "9")
    assert filled.json("scan", "spend", "--at", str(written["token"]), "--start", "9") == [
        {"customer": 9, "n": 1, "total": "1.00"}
    ]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])
    assert result.exit_code == 0
    assert "_BELVEDERE_COMPLETE" in result.stdout


@pytest.mark.parametrize("command", list(COMMANDS))
def test_every_command_has_help(command: str) -> None:
    result = CliRunner().invoke(cli, [command, "--help"])
    assert result.exit_code == 0
    assert result.stdout.startswith("Usage: ")
