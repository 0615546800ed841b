"""Smaller parts: the queue, the lease, certificates, results of verifications, the webhook's verdicts, kubeconfigs."""

from __future__ import annotations

import datetime
import json
import ssl
import threading
from pathlib import Path
from typing import Any, cast

import pytest
from cryptography import x509

from belvedere_operator.admission.certificates import Certificates, due, make
from belvedere_operator.admission.verdict import NoCompiler, StateBudget, of_change, of_deletion
from belvedere_operator.api.quantities import bytes_of
from belvedere_operator.decide.items import Item, item_of
from belvedere_operator.gateway import DocumentResult, Forecast, Problem
from belvedere_operator.kube.client import Kube, KubeError
from belvedere_operator.kube.config import Access, NoCluster, of_kubeconfig
from belvedere_operator.kube.lease import LeaderLease
from belvedere_operator.metrics import Metrics
from belvedere_operator.process import LOST, Leading, Operator
from belvedere_operator.reconcile.queue import APART_S, LONGEST_PAUSE_S, Queue
from belvedere_operator.reconcile.resources import Resources
from belvedere_operator.reconcile.verifications import result_of
from belvedere_operator.serving import Answer, Request, Server
from tests.kube.cluster import Cluster
from tests.operator.resources import applied, table, view

A, B = ("shop", "a"), ("shop", "b")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


# ---------------------------------------------------------------------- queue


def test_a_key_is_given_out_once_and_again_when_it_changed_meanwhile() -> None:
    clock = Clock()
    queue = Queue(clock)
    for _ in range(3):
        queue.add(A, 0.0)
    assert queue.take() == A
    queue.add(A, 0.0)
    queue.add(B, 0.0)
    assert queue.take() == B  # A is being worked on
    queue.done(A, None)
    clock.now += APART_S
    assert queue.take() == A
    queue.done(A, 10.0)
    queue.add(A, 0.0)
    clock.now += APART_S
    assert queue.take() == A and len(queue) == 0  # a change does not wait for the timer


def test_rounds_of_a_key_are_apart() -> None:
    clock = Clock()
    queue = Queue(clock)
    queue.add(A, 0.0)
    assert queue.take() == A
    queue.add(A, 0.0)  # while it is worked on
    queue.done(A, None)
    queue.add(A, 0.0)  # and afterwards
    queue.add(B, 0.0)
    assert queue.take() == B
    clock.now += APART_S
    assert queue.take() == A


def test_pauses_grow_with_failures_up_to_a_limit_and_end_with_success() -> None:
    queue = Queue(Clock())
    pauses = [queue.failed(A) for _ in range(12)]
    assert pauses[:4] == [0.5, 1.0, 2.0, 4.0] and pauses[-1] == LONGEST_PAUSE_S
    queue.done(A, None)
    assert queue.failed(A) == 0.5


def test_a_closed_queue_lets_its_workers_go() -> None:
    queue = Queue()
    found: list[Any] = []
    worker = threading.Thread(target=lambda: found.append(queue.take()))
    worker.start()
    queue.close()
    worker.join(10)
    assert found == [None]


# ---------------------------------------------------------------------- resources


def test_only_wishes_are_news_and_older_versions_are_not_taken() -> None:
    resources = Resources()
    one = view("spend", resourceVersion="5")
    assert resources.put(one)
    assert not resources.put(view("spend", resourceVersion="6", status={"rows": 1}))
    assert not resources.put(view("spend", query="SELECT 2", resourceVersion="4"))
    assert resources.relations(("shop", "default"))[0]["metadata"]["resourceVersion"] == "6"
    assert resources.put(view("spend", query="SELECT 2", resourceVersion="7"))
    assert resources.put(view("spend", resourceVersion="1", uid="another"))  # deleted and created again
    assert resources.pools() == {("shop", "default")}


def test_what_is_made_while_everything_is_read_anew_stays_known() -> None:
    """The lists are of a moment before; what had gone by then is forgotten, and nothing else."""
    resources = Resources()
    for one in (view("gone", resourceVersion="1"), view("again", resourceVersion="2"), view("there")):
        resources.put(one)

    class Lists:
        def list(self, api: str, kind: str, namespace: str | None) -> list[dict[str, Any]]:
            if kind == "MaterializedView":
                resources.put(view("made", resourceVersion="9"))
                resources.put(view("again", resourceVersion="8", uid="another"))
                return [view("there")]
            return []

    resources.load(cast(Kube, Lists()), ())
    assert {one["metadata"]["name"] for one in resources.all()} == {"made", "again", "there"}


# ---------------------------------------------------------------------- lease


def test_one_of_two_leads_and_the_other_waits_for_its_own_clock(control_plane: Cluster, namespace: str) -> None:
    kube, first_clock, second_clock = Kube(of_kubeconfig(control_plane.kubeconfig)), Clock(), Clock()
    first = LeaderLease(kube, namespace, "l", "first", seconds=10, clock=first_clock)
    second = LeaderLease(kube, namespace, "l", "second", seconds=10, clock=second_clock)
    assert first.step() and not second.step() and second.holder == "first"
    second_clock.now += 9
    assert first.step() and not second.step()  # it was renewed
    second_clock.now += 9.9
    assert not second.step()
    second_clock.now += 0.2
    assert second.step()  # silent for ten seconds by its own clock
    assert not first.step() and not first.leads
    second.release()
    assert first.step()
    kube.close()


def test_a_leader_that_cannot_renew_stops_before_others_take_over() -> None:
    clock = Clock()
    lease = LeaderLease(Kube(Access("http://127.0.0.1:9")), "n", "l", "me", seconds=15, clock=clock)
    lease._renewed, lease.leads = clock.now, True
    clock.now += 9
    assert lease.step()
    clock.now += 2
    assert not lease.step()


# ---------------------------------------------------------------------- certificates

DAY = datetime.timedelta(days=1)
START = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)


def test_a_certificate_is_renewed_by_the_same_authority_before_it_ends() -> None:
    names = ("operator.system.svc", "127.0.0.1")
    first = make(names, START)
    assert not due(first, names, START + 59 * DAY) and due(first, names, START + 61 * DAY)
    assert due(first, (*names, "other"), START)
    second = make(names, START + 61 * DAY, first)
    assert second.authority == first.authority and second.certificate != first.certificate
    old = make(names, START + 3600 * DAY, first)
    assert old.authority != first.authority  # it would not outlive another certificate


def test_it_is_what_tls_accepts(tmp_path: Path) -> None:
    now = datetime.datetime.now(datetime.UTC)
    found = make(("127.0.0.1",), now)
    certificate = x509.load_pem_x509_certificate(found.certificate)
    assert certificate.not_valid_after_utc - now < 91 * DAY
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    found.load_into(context)
    server = Server("127.0.0.1", 0, lambda request: Answer.of(200, {"path": request.path}), context)
    server.start()
    (tmp_path / "ca.crt").write_bytes(found.authority)
    kube = Kube(Access(f"https://127.0.0.1:{server.port}", tmp_path / "ca.crt"))
    assert kube.request("GET", "/x") == {"path": "/x"}
    another = Certificates(make(("127.0.0.1",), now).authority, b"", b"", b"")
    (tmp_path / "other.crt").write_bytes(another.authority)
    with pytest.raises(KubeError, match="does not answer"):
        Kube(Access(f"https://127.0.0.1:{server.port}", tmp_path / "other.crt")).request("GET", "/x")
    server.close()


def test_a_body_that_is_too_long_is_not_read() -> None:
    server = Server("127.0.0.1", 0, lambda request: Answer.of(200, {}))
    server.start()
    kube = Kube(Access(f"http://127.0.0.1:{server.port}"))
    with pytest.raises(KubeError, match="at most"):
        kube.request("POST", "/x", "y" * (9 << 20))
    server.close()


# ---------------------------------------------------------------------- verifications


def pod(code: int, message: str) -> dict[str, Any]:
    ended = {"exitCode": code, "message": message, "finishedAt": "2026-01-02T00:00:00Z"}
    return {"status": {"containerStatuses": [{"state": {"terminated": ended}}]}}


def test_results_of_verifications() -> None:
    report = {"view": "v", "ok": True, "rows": 12, "epoch": 7, "differences": 0}
    good = result_of(pod(0, json.dumps(report) + "\n"))
    assert good is not None and good[0] and (good[1].rows, good[1].epoch) == (12, 7)
    bad = result_of(pod(3, "warning: x\n" + json.dumps(report | {"ok": False, "differences": 2})))
    assert bad is not None and not bad[0] and bad[1].message == "2 rows differ"
    assert result_of(pod(1, "the pool does not answer")) is None
    assert result_of({"status": {"phase": "Running"}}) is None


# ---------------------------------------------------------------------- verdicts


def compiled(problems: dict[str, Problem] | None = None, forecast: Forecast | None = None) -> Any:
    def compile(items: Any) -> list[DocumentResult]:
        found = problems or {}
        return [
            DocumentResult(
                "view",
                one.sql_name,
                "refused" if one.sql_name in found else "created",
                found.get(one.sql_name),
                forecast,
            )
            for one in items
        ]

    return compile


BROKEN = Problem("SqlError", "no column 'x'")


def verdict(
    new: dict[str, Any], others: list[Item], compile: Any, old: Any = None, budget: Any = None
) -> tuple[bool, str]:
    found = of_change(new, old, others, compile, budget)
    return found.allowed, found.message or " ".join(found.warnings)


def test_verdicts() -> None:
    orders, spend = applied(table("orders")), view("spend")
    assert verdict(spend, [orders], compiled()) == (True, "")
    assert verdict(spend, [orders], compiled({"spend": BROKEN})) == (False, "no column 'x'")
    missing = Problem("UnknownRelation", "no table or view 'orders'")
    assert verdict(spend, [], compiled({"spend": missing})) == (True, f"{missing.detail}; it waits until that is there")
    below = item_of(view("below"))
    reader = view("top", "SELECT id FROM below")
    both = compiled({"below": BROKEN, "top": Problem("SqlError", "depends on below")})
    assert verdict(reader, [orders, below], both)[0]  # below is at fault, and was told so
    assert verdict(view("x", spec={"typo": 1}), [], compiled())[1].startswith("spec: unknown field 'typo'")


def test_nobody_is_asked_about_what_means_nothing_to_the_database() -> None:
    def never(items: Any) -> Any:
        raise AssertionError("compiled")

    old = view("spend")
    for change in ({}, {"freshness": "2s"}, {"verify": {"schedule": "@daily"}}, {"reclaimPolicy": "Retain"}):
        assert verdict(view("spend", spec=change), [], never, old) == (True, "")
    going = view("spend", query="SELEC", deletionTimestamp="2026-01-01T00:00:00Z")
    assert verdict(going, [], never, old) == (True, "")


def test_without_a_compiler_nothing_is_stored() -> None:
    def nobody(items: Any) -> Any:
        raise NoCompiler("no gateway answers")

    assert verdict(view("spend"), [], nobody) == (
        False,
        "the SQL cannot be compiled now, try again later: no gateway answers",
    )


def test_a_change_is_judged_with_its_readers_and_a_creation_without() -> None:
    reader = applied(view("reader", "SELECT total FROM spend"))
    breaks = compiled({"reader": BROKEN})
    old = view("spend", "SELECT id, total FROM orders")
    assert verdict(view("spend"), [reader], breaks, old)[1].startswith("view 'reader' reads it and would be refused")
    broken = item_of(view("reader", "SELECT total FROM spend"))  # it was never accepted
    assert verdict(view("spend"), [broken], breaks, old)[0]


def test_a_forecast_beyond_the_limit_is_refused() -> None:
    forecast = Forecast((("customer",),), (("PRE-AGGREGATION", 1000, 6 << 30),), 6 << 30)
    allowed, text = verdict(view("spend"), [], compiled(forecast=forecast))
    assert allowed and "cost of spend: 1 zones (customer), 6.0GiB of new state" in text and "1,000 rows" in text
    budget = StateBudget(bytes_of("10Gi"), 5 << 30)
    allowed, text = verdict(view("spend"), [], compiled(forecast=forecast), budget=budget)
    assert not allowed and "6.0GiB to the 5.0GiB" in text and "stateLimit is 10.0GiB" in text


def test_deletion_counts_readers_that_stay() -> None:
    going = item_of(view("a", deletionTimestamp="2026-01-01T00:00:00Z"))
    assert of_deletion(table("orders"), [going], ["a"]).allowed
    found = of_deletion(table("orders"), [going, item_of(view("b"))], ["a", "b"])
    assert found.message == "table 'orders' is read by b; delete it first"


@pytest.mark.parametrize(("text", "number"), [("20Gi", 20 << 30), ("1.5k", 1500), ("7", 7)])
def test_quantities(text: str, number: int) -> None:
    assert bytes_of(text) == number


# ---------------------------------------------------------------------- kubeconfigs


def test_a_kubeconfig_that_runs_programs_is_refused_by_name(tmp_path: Path) -> None:
    config = {
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": "https://x"}}],
        "users": [{"name": "u", "user": {"exec": {"command": "aws"}}}],
    }
    (tmp_path / "config").write_text(json.dumps(config))
    with pytest.raises(NoCluster, match=r"user .u. of .* gets its token from a program"):
        of_kubeconfig(tmp_path / "config")
    config["current-context"] = "other"
    (tmp_path / "config").write_text(json.dumps(config))
    with pytest.raises(NoCluster, match="no entry 'other' in contexts"):
        of_kubeconfig(tmp_path / "config")


def test_a_request_of_nobody_for_external_metrics_is_refused() -> None:
    from belvedere_operator.external.metrics_api import BASE, ExternalMetrics
    from belvedere_operator.metrics import Metrics

    api = ExternalMetrics(None, None, Metrics(), lambda: ("front-proxy",))  # type: ignore[arg-type]
    assert api.answer(Request("GET", BASE)).code == 401
    assert api.answer(Request("GET", BASE, peer_names=("somebody",))).code == 403
    assert api.answer(Request("GET", BASE, peer_names=("front-proxy",))).code == 200
    assert api.answer(Request("GET", f"{BASE}/namespaces/n/other", peer_names=("front-proxy",))).code == 404


def test_another_provider_of_external_metrics_is_seen(control_plane: Cluster, namespace: str) -> None:
    from belvedere_operator.external.metrics_api import api_service
    from belvedere_operator.installation import Installation
    from belvedere_operator.settings import Settings

    kube = Kube(of_kubeconfig(control_plane.kubeconfig))
    settings = Settings(namespace=namespace, name="ours")
    assert Installation(kube, settings).other_provider() == ""
    found = api_service("adapter", namespace, "")
    del found["spec"]["caBundle"]
    found["spec"]["insecureSkipTLSVerify"] = True
    kube.apply(found)
    try:
        assert Installation(kube, settings).other_provider() == f"{namespace}/adapter"
        assert Installation(kube, Settings(namespace=namespace, name="adapter")).other_provider() == ""
    finally:
        kube.delete(found)
        kube.close()


def test_a_leader_without_the_definitions_says_so_and_gives_the_lease_back(caplog: pytest.LogCaptureFixture) -> None:
    class Lease:
        holder, pause, released = "", 0.0, False

        def step(self) -> bool:
            return True

        def release(self) -> None:
            self.released = True

    def lead() -> Leading:
        raise KubeError(404, "NotFound", "404 page not found")

    lease = Lease()
    assert Operator(cast(LeaderLease, lease), lead, Metrics()).run() == LOST
    assert lease.released and "the cluster does not have the definitions of belvedere.dev" in caplog.text
