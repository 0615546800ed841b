"""The objects of a pool: restricted, found by their labels, never against a drain, and right in each option."""

from __future__ import annotations

from typing import Any

import pytest

from belvedere_operator.api.materialized_view import VerifySpec
from belvedere_operator.api.reading import read
from belvedere_operator.api.view_pool import ViewPoolSpec
from belvedere_operator.build.inputs import Capabilities, PoolInput
from belvedere_operator.build.pods import GRACE_SECONDS, LEAVE_WITHIN
from belvedere_operator.build.pool import key, objects, optional_keys
from belvedere_operator.build.verification import Verified, verification
from belvedere_operator.kube.kinds import path_of
from belvedere_operator.names import MOST_CHARACTERS, label_value, object_name, sql_name
from belvedere_operator.settings import Settings

ALL = Capabilities(service_monitors=True, keda=True)
ZOOKEEPER = "zk:2181/belvedere/shop/default-1234"


def pool(spec: dict[str, Any] | None = None, name: str = "default", **more: Any) -> PoolInput:
    found = read(ViewPoolSpec, spec or {})
    if found.zookeeper is not None and found.zookeeper.credentials_secret:
        more.setdefault("zookeeper_secret", found.zookeeper.credentials_secret)
    if found.zookeeper is not None:
        more.setdefault("zookeeper_tls", found.zookeeper.tls)
    return PoolInput(name, "shop", "uid", found, zookeeper=ZOOKEEPER, **more)


def found(kind: str, name: str, spec: dict[str, Any] | None = None, **more: Any) -> dict[str, Any]:
    (one,) = (d for d in objects(pool(spec, **more)) if d["kind"] == kind and d["metadata"]["name"] == name)
    return one


def environment(template: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one.get("value", "") for one in template["spec"]["containers"][0]["env"]}


def templates(spec: dict[str, Any] | None = None) -> dict[str, dict[str, Any]]:
    workloads = [d for d in objects(pool(spec)) if d["kind"] in ("Deployment", "StatefulSet")]
    return {d["metadata"]["labels"]["belvedere.dev/role"]: d["spec"]["template"] for d in workloads}


def test_every_object_goes_with_the_pool_and_has_its_label() -> None:
    for document in objects(pool(capabilities=ALL)):
        path_of(document["apiVersion"], document["kind"])
        assert document["metadata"]["labels"]["belvedere.dev/pool"] == "default"
        if document["kind"] == "ClusterRoleBinding":
            assert "ownerReferences" not in document["metadata"]  # an owner in a namespace would have it collected
            continue
        (owner,) = document["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"], owner["controller"]) == ("ViewPool", "uid", True)


def test_no_two_objects_have_one_name() -> None:
    keys = [key(document) for document in objects(pool(capabilities=ALL))]
    assert len(keys) == len(set(keys))


def test_pods_are_restricted() -> None:
    """The profile `restricted` of Pod Security, and a root file system that nobody writes."""
    for role, template in templates().items():
        spec, (container,) = template["spec"], template["spec"]["containers"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        security = container["securityContext"]
        assert security["allowPrivilegeEscalation"] is False and security["capabilities"] == {"drop": ["ALL"]}
        assert security["readOnlyRootFilesystem"] is True
        assert spec["automountServiceAccountToken"] is (role == "gateway")
        mounted = {mount["name"] for mount in container["volumeMounts"]}
        assert mounted == {volume["name"] for volume in spec["volumes"]} | ({"data"} if role == "store" else set())


def test_selectors_find_the_pods_of_their_role_and_no_others() -> None:
    labels = {role: template["metadata"]["labels"] for role, template in templates().items()}
    for document in objects(pool()):
        selector = document["spec"]["selector"] if "selector" in document.get("spec", {}) else None
        if selector is None or document["kind"] == "ServiceMonitor":
            continue
        wanted = selector.get("matchLabels", selector)
        hit = {role for role, own in labels.items() if wanted.items() <= own.items()}
        role = document["metadata"]["labels"].get("belvedere.dev/role")
        assert hit == ({role} if role else set(labels)), document["metadata"]["name"]


def test_no_budget_blocks_a_drain_for_ever() -> None:
    budgets = [d["spec"] for d in objects(pool({"coordinators": 1})) if d["kind"] == "PodDisruptionBudget"]
    assert len(budgets) == 5
    for budget in budgets:
        assert budget["maxUnavailable"] == 1 and "minAvailable" not in budget
        assert budget["unhealthyPodEvictionPolicy"] == "AlwaysAllow"


def test_figures_are_collected_where_somebody_collects_them() -> None:
    """Each monitor finds one Service by a port that it has; the gateway's tells a token."""
    assert not [d for d in objects(pool()) if d["kind"] == "ServiceMonitor"]
    documents = objects(pool(capabilities=Capabilities(service_monitors=True)))
    services = {d["metadata"]["name"]: d for d in documents if d["kind"] == "Service"}
    monitors = [d["spec"] for d in documents if d["kind"] == "ServiceMonitor"]
    ends = [(one, *one["endpoints"]) for one in monitors]
    assert {end["path"] for _, end in ends} == {"/metrics", "/v1/metrics"}
    for one, end in ends:
        assert one["namespaceSelector"] == {"matchNames": ["shop"]}
        (keep,) = end["relabelings"]
        assert (keep["sourceLabels"], keep["action"]) == (["__meta_kubernetes_service_name"], "keep")
        service = services[keep["regex"]]
        assert one["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        assert end["port"] in {port["name"] for port in service["spec"]["ports"]}
        assert ("bearerTokenFile" in end) == (end["path"] == "/v1/metrics")


def test_pods_are_replaced_one_by_one_the_new_one_first_and_on_several_nodes() -> None:
    for role in ("coordinator", "distributor", "viewserver", "gateway"):
        spec = found("Deployment", f"default-{role}")["spec"]
        one_by_one = {"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0}}
        assert spec["strategy"] == one_by_one and spec["minReadySeconds"] > 0
    for role, template in templates().items():
        (spread,) = template["spec"]["topologySpreadConstraints"]
        assert (spread["topologyKey"], spread["maxSkew"]) == ("kubernetes.io/hostname", 1)
        assert spread["whenUnsatisfiable"] == "ScheduleAnyway", "one node is enough"
        assert spread["labelSelector"]["matchLabels"].items() <= template["metadata"]["labels"].items()
        assert spread["labelSelector"]["matchLabels"]["belvedere.dev/role"] == role


def test_a_pod_is_ready_when_its_process_says_so_and_has_minutes_to_start() -> None:
    for template in templates().values():
        (container,) = template["spec"]["containers"]
        probes = {name: container[f"{name}Probe"] for name in ("startup", "liveness", "readiness")}
        paths = {name: probe["httpGet"]["path"] for name, probe in probes.items()}
        assert paths == {"startup": "/healthz", "liveness": "/healthz", "readiness": "/readyz"}
        assert probes["startup"]["periodSeconds"] * probes["startup"]["failureThreshold"] >= 120
        assert probes["liveness"]["periodSeconds"] * probes["liveness"]["failureThreshold"] >= 30
        assert {probe["httpGet"]["port"] for probe in probes.values()} <= {port["name"] for port in container["ports"]}


def test_members_are_reached_by_members_alone() -> None:
    """Figures and the gateway are open to the cluster: there, rights decide."""
    members = found("NetworkPolicy", "default-members")["spec"]
    assert members["podSelector"]["matchLabels"] == pool().selector() and members["policyTypes"] == ["Ingress"]
    by_port = {port["port"]: rule.get("from") for rule in members["ingress"] for port in rule["ports"]}
    assert by_port == {7400: [{"podSelector": {"matchLabels": pool().selector()}}], 7401: None}
    gateway = found("NetworkPolicy", "default-gateway")["spec"]
    assert gateway["podSelector"]["matchLabels"] == pool().selector("gateway")
    assert [port["port"] for rule in gateway["ingress"] for port in rule["ports"]] == [8080]


def test_a_view_server_has_time_to_withdraw() -> None:
    template = templates()["viewserver"]
    assert environment(template)["BELVEDERE_LEAVE_WITHIN"] == str(LEAVE_WITHIN)
    assert template["spec"]["terminationGracePeriodSeconds"] == GRACE_SECONDS["viewserver"] > LEAVE_WITHIN + 5


OPTIONS = [
    ({"epoch": "50ms"}, "coordinator", {"BELVEDERE_EPOCH_MS": "50"}),
    ({"retention": "1h"}, "coordinator", {"BELVEDERE_RETENTION": "3600"}),
    ({}, "store", {"BELVEDERE_DIRECTORY": "/data", "BELVEDERE_HTTP_PORT": "7401"}),
    ({"storage": {"backlogLimit": "8GiB"}}, "store", {"BELVEDERE_BACKLOG_LIMIT": "8GiB"}),
    ({"backend": "served://s:7400"}, "viewserver", {"BELVEDERE_STORE": "served://s:7400"}),
    ({"templates": {"viewserver": {"memoryLimit": "64MiB"}}}, "viewserver", {"BELVEDERE_MEMORY_LIMIT": "64MiB"}),
    (
        {"zookeeper": {"hosts": "zk:1", "credentialsSecret": "zk"}},
        "distributor",
        {"BELVEDERE_ZOOKEEPER_CREDENTIALS": "/etc/belvedere/zookeeper/credentials"},
    ),
    (
        {"zookeeper": {"hosts": "zk:1", "tls": {"secret": "z"}}},
        "distributor",
        {"BELVEDERE_ZOOKEEPER_TLS_AUTHORITY": "/etc/belvedere/zookeeper-tls/ca.crt"},
    ),
    ({}, "store", {"BELVEDERE_TLS_SERVER_NAME": "members.default.shop.belvedere.internal"}),
]


@pytest.mark.parametrize(("spec", "role", "expected"), OPTIONS)
def test_options_reach_the_processes(spec: dict[str, Any], role: str, expected: dict[str, str]) -> None:
    own = environment(templates(spec)[role])
    assert expected.items() <= own.items()
    assert own["BELVEDERE_ZOOKEEPER"] == ZOOKEEPER and own["BELVEDERE_POOL"] == "default"


def test_options_of_the_processes_exist() -> None:
    """Variables that no command knows would be ignored without a word."""
    import click

    from belvedere.cli.main import cli

    everything = {
        "epoch": "50ms",
        "retention": "1h",
        "storage": {"backlogLimit": "8GiB"},
        "zookeeper": {
            "hosts": "zk:1",
            "credentialsSecret": "zk",
            "tls": {"secret": "zk-tls", "clientCertificate": True},
        },
        "templates": {role: {"memoryLimit": "64MiB"} for role in ("coordinator", "distributor", "viewserver", "store")},
    }
    for role, template in templates(everything).items():
        command = cli.get_command(click.Context(cli), role)
        assert command is not None
        known = {one.envvar for one in command.params if isinstance(one, click.Option)} | {"BELVEDERE_URL"}
        known |= {f"BELVEDERE_TLS_{name}" for name in ("CERTIFICATE", "KEY", "AUTHORITY", "SERVER_NAME")}
        assert set(environment(template)) <= known, role
        options = {option for one in command.params for option in one.opts}
        given = template["spec"]["containers"][0]["args"]
        assert given[0] == role and {word for word in given if word.startswith("--")} <= options


def test_a_gateway_finds_its_pool_and_a_store_that_is_no_member() -> None:
    template = templates({"backend": "served://s:7400"})["gateway"]
    assert environment(template)["BELVEDERE_URL"] == "belvedere+tls://default-coordinator.shop.svc:7400"
    assert template["spec"]["containers"][0]["args"][-2:] == ["--store", "served://s:7400"]


def test_templates_of_roles() -> None:
    given = {
        "limits": {"cpu": "1", "memory": "1Gi"},
        "requests": {"cpu": "500m"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "x", "operator": "Exists"}],
        "priorityClassName": "high",
        "annotations": {"a": "b"},
        "labels": {"team": "shop", "belvedere.dev/pool": "not this"},
    }
    template = templates({"templates": {"viewserver": given}})["viewserver"]
    resources = template["spec"]["containers"][0]["resources"]
    assert resources == {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "1Gi"}}
    assert template["spec"]["nodeSelector"] == {"disk": "fast"} and template["spec"]["priorityClassName"] == "high"
    assert template["metadata"]["annotations"] == {"a": "b", "belvedere.dev/tls": "mutual"}
    assert template["metadata"]["labels"]["team"] == "shop"
    assert template["metadata"]["labels"]["belvedere.dev/pool"] == "default"  # else its Services would not find it


def test_every_process_of_a_pool_finds_its_certificate_and_none_where_there_is_no_tls() -> None:
    """The Secret as a whole: what is mounted with `subPath` never changes."""
    for role, template in templates().items():
        volumes = {volume["name"]: volume for volume in template["spec"]["volumes"]}
        assert volumes["tls"]["secret"] == {"secretName": f"default-tls-{role}", "defaultMode": 0o440}
        (mount,) = (m for m in template["spec"]["containers"][0]["volumeMounts"] if m["name"] == "tls")
        assert mount == {"name": "tls", "mountPath": "/etc/belvedere/tls", "readOnly": True}
        told = environment(template)
        assert {name: told[f"BELVEDERE_TLS_{name}"] for name in ("CERTIFICATE", "KEY", "AUTHORITY")} == {
            "CERTIFICATE": "/etc/belvedere/tls/tls.crt",
            "KEY": "/etc/belvedere/tls/tls.key",
            "AUTHORITY": "/etc/belvedere/tls/ca.crt",
        }
        assert template["spec"]["securityContext"]["fsGroup"] == 10001, "else they cannot be read"
    for role, template in templates({"tls": {"mode": "none"}}).items():
        assert "tls" not in str(template["spec"]["volumes"]), role
        assert not [name for name in environment(template) if "TLS" in name]
        assert not environment(template).get("BELVEDERE_URL", "belvedere://").startswith("belvedere+tls")


def test_pods_that_cannot_talk_to_those_before_are_replaced_at_once_and_only_then() -> None:
    def strategy(role: str, at_once: frozenset[str]) -> str:
        return str(found("Deployment", f"default-{role}", at_once=at_once)["spec"]["strategy"]["type"])

    assert strategy("viewserver", frozenset({"viewserver"})) == "Recreate"
    assert strategy("gateway", frozenset({"viewserver"})) == "RollingUpdate"


def test_a_pool_with_a_backend_has_no_store() -> None:
    kinds = [(d["kind"], d["metadata"]["name"]) for d in objects(pool({"backend": "served://s:7400"}))]
    assert not [name for _, name in kinds if "store" in name]


def test_a_pool_on_hbase_takes_its_log_where_region_servers_reach_it() -> None:
    spec: dict[str, Any] = {"backend": "hbase://zk:2181/shop_views"}
    inside, outside = (templates(spec | more)["distributor"] for more in ({}, {"sinkHostPort": 16021}))
    assert environment(inside)["BELVEDERE_STORE"] == spec["backend"]
    assert (environment(inside)["BELVEDERE_SINK_PORT"], "BELVEDERE_SINK_ADVERTISE" in environment(inside)) == (
        "7402",
        False,
    )
    assert inside["spec"]["containers"][0]["ports"][-1] == {"name": "sink", "containerPort": 7402}
    assert environment(outside)["BELVEDERE_SINK_PORT"] == "16021"
    assert outside["spec"]["containers"][0]["ports"][-1] == {"name": "sink", "containerPort": 16021, "hostPort": 16021}
    told = next(one for one in outside["spec"]["containers"][0]["env"] if one["name"] == "BELVEDERE_SINK_ADVERTISE")
    assert told["valueFrom"] == {"fieldRef": {"fieldPath": "status.hostIP"}}
    open_to_all = found("NetworkPolicy", "default-members", spec)["spec"]["ingress"][-1]
    assert open_to_all == {"ports": [{"port": 7402, "protocol": "TCP"}]}
    assert "store" not in templates(spec) and "sink" not in str(templates({"backend": "served://s:1"}))


def test_the_state_of_a_pool_on_hbase_may_be_in_a_store_of_its_own() -> None:
    spec = {"backend": "hbase://zk:2181/shop_views?state=served", "storage": {"size": "2Gi"}}
    made = templates(spec)
    assert "BELVEDERE_STORE" not in environment(made["store"])
    assert environment(made["viewserver"])["BELVEDERE_STORE"] == spec["backend"]


def test_the_volume_is_kept_unless_it_is_said_otherwise_and_knows_its_place_in_zookeeper() -> None:
    store = found("StatefulSet", "default-store", {"storage": {"size": "20Gi", "storageClassName": "ssd"}})["spec"]
    assert store["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Retain"
    (claim,) = store["volumeClaimTemplates"]
    assert claim["metadata"]["annotations"] == {"belvedere.dev/zookeeper-path": "belvedere/shop/default-1234"}
    assert claim["spec"]["storageClassName"] == "ssd"
    gone = found("StatefulSet", "default-store", {"reclaimPolicy": "Delete"})["spec"]
    assert gone["persistentVolumeClaimRetentionPolicy"]["whenDeleted"] == "Delete"


# ---------------------------------------------------------------------- scaling

SCALED = {"autoscaling": {"maxReplicas": 8, "minReplicas": 2, "targetBusy": 60, "scaleDownAfter": "5m"}}


def scalers(spec: dict[str, Any], **more: Any) -> list[str]:
    wanted = ("HorizontalPodAutoscaler", "ScaledObject")
    return [d["kind"] for d in objects(pool(spec, capabilities=ALL, **more)) if d["kind"] in wanted]


def test_the_autoscaler_scales_the_pool_by_busy_share_and_lag() -> None:
    spec = found("HorizontalPodAutoscaler", "default-viewserver", SCALED)["spec"]
    assert spec["scaleTargetRef"] == {"apiVersion": "belvedere.dev/v1alpha1", "kind": "ViewPool", "name": "default"}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (2, 8)
    targets = {m["external"]["metric"]["name"]: m["external"]["target"]["averageValue"] for m in spec["metrics"]}
    assert targets == {"belvedere_busy_viewservers": "600m", "belvedere_lag_viewservers": "1"}
    assert spec["behavior"]["scaleDown"]["stabilizationWindowSeconds"] == 300
    assert spec["behavior"]["scaleUp"]["stabilizationWindowSeconds"] == 0
    assert spec["behavior"]["scaleDown"]["policies"] == [{"type": "Pods", "value": 1, "periodSeconds": 30}]


@pytest.mark.parametrize(
    ("change", "more", "expected"),
    [
        ({}, {}, ["HorizontalPodAutoscaler"]),
        ({"scaler": "keda"}, {}, ["ScaledObject"]),
        ({"scaler": "none"}, {}, []),
        ({"mode": "dryRun"}, {}, []),
        ({}, {"external_metrics": False}, []),
    ],
)
def test_who_scales(change: dict[str, Any], more: dict[str, Any], expected: list[str]) -> None:
    assert scalers({"autoscaling": {"maxReplicas": 8} | change}, **more) == expected


def test_an_autoscaler_that_is_not_wanted_any_more_is_removed() -> None:
    assert scalers({}) == []
    assert ("autoscaling/v2", "HorizontalPodAutoscaler", "default-viewserver") in optional_keys(pool())


# ---------------------------------------------------------------------- verification, names


def test_a_verification_is_a_job_that_gives_up_and_does_not_repeat_a_difference() -> None:
    view = Verified("daily-spend", "v-uid", "daily_spend", "duckdb")
    job = verification(pool(), view, VerifySpec("0 3 * * *", "10m"), False)
    assert (job["spec"]["schedule"], job["spec"]["concurrencyPolicy"]) == ("0 3 * * *", "Forbid")
    spec = job["spec"]["jobTemplate"]["spec"]
    assert spec["activeDeadlineSeconds"] == 600
    assert spec["podFailurePolicy"]["rules"][0]["onExitCodes"]["values"] == [3]
    command = spec["template"]["spec"]["containers"][0]["command"]
    assert command[-2:] == ["belvedere+tls://default-coordinator.shop.svc:7400", "daily_spend"]  # never in the shell's
    assert job["metadata"]["ownerReferences"][0]["uid"] == "v-uid"


def test_long_names_stay_different_and_within_limits() -> None:
    long, longer = "a" * 200, "a" * 201
    names = {object_name(long, "viewserver"), object_name(longer, "viewserver"), object_name(long, "store")}
    assert len(names) == 3 and all(len(name) <= MOST_CHARACTERS for name in names)
    assert label_value(long) != label_value(longer) and len(label_value(long)) <= 63
    for document in objects(pool(name="x." * 60 + "y")):
        assert len(document["metadata"]["name"]) <= 63 and "." not in document["metadata"]["name"]


def test_names_in_sql() -> None:
    assert sql_name({"metadata": {"name": "daily-spend"}}) == "daily_spend"
    assert sql_name({"metadata": {"name": "daily.spend"}, "spec": {"name": "d"}}) == "d"


def test_settings_of_the_operator_reach_pods() -> None:
    own = pool(settings=Settings(image="registry/view:2", image_pull_policy="Always", gateway_role=""))
    deployments = {d["metadata"]["name"]: d for d in objects(own) if d["kind"] == "Deployment"}
    (container,) = deployments["default-gateway"]["spec"]["template"]["spec"]["containers"]
    assert (container["image"], container["imagePullPolicy"]) == ("registry/view:2", "Always")
    assert not [d for d in objects(own) if d["kind"] == "ClusterRoleBinding"]
