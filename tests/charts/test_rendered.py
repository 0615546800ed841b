"""What the chart renders: with its defaults, and what each value changes."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from belvedere_operator.__main__ import options, settings_of
from tests.charts import readme
from tests.charts.conftest import CHART, Render
from tests.kube.kubernetes import CommandFailed, Kubernetes, Object

ROOT = CHART.parents[1]
EVERYTHING: dict[str, Any] = {
    "certificates": {"certManager": {"enabled": True, "issuer": {"name": "ours"}}},
    "monitoring": {part: {"enabled": True} for part in ("serviceMonitor", "alerts", "dashboard")},
    "image": {"pullSecrets": ["registry"]},
    "operator": {
        "podLabels": {"team": "data"},
        "podAnnotations": {"note": "x"},
        "nodeSelector": {"disk": "fast"},
        "tolerations": [{"key": "data", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {}},
        "priorityClassName": "system-cluster-critical",
        "watchNamespaces": ["one", "two"],
    },
}


def one(objects: list[Object], kind: str, name: str) -> Object:
    (found,) = (each for each in objects if (each["kind"], each["metadata"]["name"]) == (kind, name))
    return found


def kinds(objects: list[Object]) -> set[tuple[str, str]]:
    return {(each["kind"], each["metadata"]["name"]) for each in objects}


def pod_specs(objects: list[Object]) -> list[Object]:
    found = []
    for each in objects:
        if each["kind"] == "Pod":
            found.append(each["spec"])
        elif "template" in each.get("spec", {}):
            found.append(each["spec"]["template"]["spec"])
    return found


def environment(objects: list[Object]) -> dict[str, str]:
    main = one(objects, "Deployment", "shop-belvedere-operator")["spec"]["template"]["spec"]["containers"][0]
    return {entry["name"]: entry["value"] for entry in main["env"] if "value" in entry}


def test_the_chart_passes_the_linter(helm: Kubernetes) -> None:
    helm.helm("lint", "--strict", str(CHART))


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_every_pod_is_as_restricted_pod_security_wants_it(render: Render, values: dict[str, Any]) -> None:
    specs = pod_specs(render(**values))
    assert len(specs) == 3
    for spec in specs:
        assert spec["securityContext"]["runAsNonRoot"] is True and spec["securityContext"]["runAsUser"] > 0
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(spec)
        assert not [volume for volume in spec.get("volumes", []) if "hostPath" in volume]
        for container in spec["containers"]:
            security = container["securityContext"]
            assert security["allowPrivilegeEscalation"] is False and security["readOnlyRootFilesystem"] is True
            assert security["capabilities"] == {"drop": ["ALL"]}
            assert container["resources"]["requests"] and container["resources"]["limits"]["memory"]


@pytest.mark.parametrize("values", [{}, EVERYTHING], ids=["defaults", "everything"])
def test_no_rule_has_a_wildcard_and_secrets_are_its_own(render: Render, values: dict[str, Any]) -> None:
    for each in render(**values):
        for rule in each.get("rules") or []:
            assert "*" not in [*rule["apiGroups"], *rule["resources"], *rule["verbs"]], each["metadata"]["name"]
            assert "escalate" not in rule["verbs"] and "impersonate" not in rule["verbs"]
            if "secrets" in rule["resources"] and each["metadata"]["name"].endswith("-pools"):
                assert rule["verbs"] == ["get", "create", "patch"], "nothing lists, watches or deletes them"
            elif "secrets" in rule["resources"]:
                assert each["kind"] == "Role" and (rule["verbs"] == ["create"] or rule["resourceNames"])
            if "bind" in rule["verbs"]:
                assert rule["resourceNames"] == ["shop-belvedere-gateway", "shop-belvedere-spark"]


def test_drivers_of_spark_may_work_with_pods_and_nothing_else(render: Render) -> None:
    (rule,) = one(render(), "ClusterRole", "shop-belvedere-spark")["rules"]
    assert (rule["apiGroups"], rule["resources"]) == ([""], ["pods"])
    assert set(rule["verbs"]) == {"create", "get", "list", "watch", "delete"}


def test_jobs_of_spark_are_set_up_by_values(render: Render) -> None:
    assert json.loads(environment(render())["BELVEDERE_OPERATOR_SPARK"]) == {}, "there are none without an image"
    given = {"executors": 3, "driver": {"heap": "2g"}}
    told = environment(render(spark={"image": {"repository": "registry/spark"}, "defaults": given}))
    assert json.loads(told["BELVEDERE_OPERATOR_SPARK"]) == {"image": "registry/spark:0.1.0", **given}
    variables = ("BELVEDERE_OPERATOR_SPARK", "BELVEDERE_OPERATOR_SPARK_ROLE")
    words = [
        f"--{name.removeprefix('BELVEDERE_OPERATOR_').lower().replace('_', '-')}={told[name]}" for name in variables
    ]
    settings = settings_of(options(words))
    assert settings.spark.executors == 3 and settings.spark.image == "registry/spark:0.1.0"
    assert settings.spark_role == "shop-belvedere-spark"


def test_what_the_operator_is_told_are_options_that_it_has(render: Render) -> None:
    told = environment(render())
    known = {f"BELVEDERE_OPERATOR_{name.upper()}" for name in vars(options([]))}
    assert set(told) <= known
    assert told["BELVEDERE_OPERATOR_IMAGE"] == "belvedere:0.1.0"
    assert told["BELVEDERE_OPERATOR_ZOOKEEPER"] == "shop-belvedere-zookeeper.systems.svc:2181"
    assert told["BELVEDERE_OPERATOR_WATCH"] == ""


def test_named_namespaces_get_roles_and_nothing_in_the_cluster_at_large(render: Render) -> None:
    objects = render(operator={"watchNamespaces": ["one", "two"]})
    assert environment(objects)["BELVEDERE_OPERATOR_WATCH"] == "one,two"
    pools = [each for each in objects if each["metadata"]["name"] == "shop-belvedere-operator-pools"]
    assert {(each["kind"], each["metadata"]["namespace"]) for each in pools} == {
        (kind, namespace) for kind in ("Role", "RoleBinding") for namespace in ("one", "two")
    }
    everywhere = one(render(), "ClusterRole", "shop-belvedere-operator-pools")["rules"]
    assert all(each["rules"] == everywhere for each in pools if each["kind"] == "Role")


def test_a_zookeeper_of_ones_own_replaces_the_bundled_one(render: Render) -> None:
    objects = render(zookeeper={"hosts": "zk-0:2181,zk-1:2181/base"})
    assert not [name for _, name in kinds(objects) if "zookeeper" in name]
    assert environment(objects)["BELVEDERE_OPERATOR_ZOOKEEPER"] == "zk-0:2181,zk-1:2181/base"
    with pytest.raises(CommandFailed, match=r"zookeeper: give its hosts in zookeeper\.hosts"):
        render(zookeeper={"bundled": {"enabled": False}})


def test_a_zookeeper_with_tls_is_known_by_its_authority(render: Render) -> None:
    objects = render(zookeeper={"hosts": "zk:2281", "tlsSecret": "zk-ca"})
    assert environment(objects)["BELVEDERE_OPERATOR_ZOOKEEPER_AUTHORITY"] == "/etc/belvedere/zookeeper/ca.crt"
    spec = one(objects, "Deployment", "shop-belvedere-operator")["spec"]["template"]["spec"]
    (volume,) = (each for each in spec["volumes"] if each["name"] == "zookeeper")
    assert volume["secret"] == {"secretName": "zk-ca", "items": [{"key": "ca.crt", "path": "ca.crt"}]}
    assert {"name": "zookeeper", "mountPath": "/etc/belvedere/zookeeper", "readOnly": True} in spec["containers"][0][
        "volumeMounts"
    ]
    assert environment(render())["BELVEDERE_OPERATOR_ZOOKEEPER_AUTHORITY"] == ""


def test_certificates_of_cert_manager_take_the_right_to_its_own_secret_away(render: Render) -> None:
    objects = render(
        certificates={"certManager": {"enabled": True, "issuer": {"name": "ours", "kind": "ClusterIssuer"}}}
    )
    certificate = one(objects, "Certificate", "shop-belvedere-operator")["spec"]
    assert certificate["dnsNames"] == ["shop-belvedere-operator.systems.svc"]
    assert certificate["issuerRef"] == {"name": "ours", "kind": "ClusterIssuer"}
    assert environment(objects)["BELVEDERE_OPERATOR_CERTIFICATES"] == "/etc/belvedere/tls"
    own = one(objects, "Role", "shop-belvedere-operator")["rules"]
    named = [rule["resourceNames"] for rule in own if "secrets" in rule["resources"] and "resourceNames" in rule]
    assert named == [["shop-belvedere-operator-zookeeper"]]
    objects = render(
        certificates={"certManager": {"enabled": True, "issuer": {"name": "ours"}}}, zookeeper={"credentials": False}
    )
    own = one(objects, "Role", "shop-belvedere-operator")["rules"]
    assert not [rule for rule in own if "secrets" in rule["resources"]]
    with pytest.raises(CommandFailed, match=r"certManager\.issuer\.name"):
        render(certificates={"certManager": {"enabled": True}})


def test_without_external_metrics_nothing_of_them_is_left(render: Render) -> None:
    objects = render(externalMetrics={"enabled": False})
    assert environment(objects)["BELVEDERE_OPERATOR_EXTERNAL_METRICS"] == "false"
    assert not [name for _, name in kinds(objects) if "external-metrics" in name]
    groups = {group for each in objects for rule in each.get("rules") or [] for group in rule["apiGroups"]}
    assert not {"apiregistration.k8s.io", "external.metrics.k8s.io"} & groups
    assert not [each for each in objects if each["metadata"].get("namespace") == "kube-system"]


def test_settings_of_pods_reach_the_operator(render: Render) -> None:
    template = one(render(**EVERYTHING), "Deployment", "shop-belvedere-operator")["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "data" and template["metadata"]["annotations"] == {"note": "x"}
    spec, given = template["spec"], EVERYTHING["operator"]
    for name in ("nodeSelector", "tolerations", "affinity", "priorityClassName"):
        assert spec[name] == given[name]
    assert spec["imagePullSecrets"] == [{"name": "registry"}]


def test_a_value_that_is_not_known_is_refused_by_name(render: Render) -> None:
    with pytest.raises(CommandFailed, match="replica"):
        render(operator={"replica": 3})
    with pytest.raises(CommandFailed, match="replicas"):
        render(operator={"replicas": 0})


def test_definitions_are_those_of_the_operator_and_are_kept(render: Render) -> None:
    rendered = {each["metadata"]["name"]: each for each in render() if each["kind"] == "CustomResourceDefinition"}
    files = [yaml.safe_load(path.read_text()) for path in (ROOT / "crds").glob("*.yaml")]
    assert len(files) == 3
    for crd in files:
        found = rendered[crd["metadata"]["name"]]
        assert found["spec"] == crd["spec"]
        assert found["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"
    assert not [each for each in render(crds={"install": False}) if each["kind"] == "CustomResourceDefinition"]
    free = [each for each in render(crds={"keep": False}) if each["kind"] == "CustomResourceDefinition"]
    assert len(free) == 3 and not [each for each in free if "helm.sh/resource-policy" in str(each["metadata"])]


def test_readme_and_schema_have_every_value() -> None:
    assert (CHART / "README.md").read_text() == readme.text(), "run 'python -m tests.charts.readme'"
    schema = json.loads((CHART / "values.schema.json").read_text())
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    described = {path for path, _, _ in readme.leaves(schema, values)}

    def paths(part: Any, path: str) -> list[str]:
        if isinstance(part, dict) and part and path not in described:
            return [found for name, below in part.items() for found in paths(below, f"{path}.{name}".strip("."))]
        return [path]

    assert set(paths(values, "")) == described


def test_alerts_and_dashboard_name_metrics_that_there_are_and_each_alert_has_a_runbook(render: Render) -> None:
    objects = render(**EVERYTHING)
    alerts = one(objects, "PrometheusRule", "shop-belvedere")["spec"]["groups"][0]["rules"]
    runbooks = (ROOT / "docs" / "howto" / "runbooks.md").read_text()
    sections = {line.removeprefix("## ").strip() for line in runbooks.splitlines() if line.startswith("## ")}
    assert {alert["alert"] for alert in alerts} == sections
    assert all(alert["annotations"]["runbook_url"].endswith("#" + alert["alert"].lower()) for alert in alerts)
    dashboard = one(objects, "ConfigMap", "shop-belvedere-dashboard")["data"]["belvedere.json"]
    used = set(re.findall(r"\bbelvedere_[a-z_]+", dashboard + json.dumps([alert["expr"] for alert in alerts])))
    reference = (ROOT / "docs" / "reference" / "metrics.md").read_text()
    own = Path(ROOT / "operator" / "belvedere_operator" / "metrics.py").read_text()
    for name in used:
        base = re.sub(r"_(sum|count|bucket)$", "", name)
        assert base in reference or base.removesuffix("_total") in own, f"{name} is no metric of the project"
    assert len(used) >= 15


def test_users_who_may_only_view_see_no_rows(render: Render) -> None:
    view = one(render(), "ClusterRole", "shop-belvedere-view")
    assert not [rule for rule in view["rules"] if any("/" in resource for resource in rule["resources"])]
    assert view["metadata"]["labels"]["rbac.authorization.k8s.io/aggregate-to-view"] == "true"
    edit = one(render(), "ClusterRole", "shop-belvedere-edit")
    granted = {(resource, verb) for rule in edit["rules"] for resource in rule["resources"] for verb in rule["verbs"]}
    assert {("materializedviews/rows", "get"), ("basetables/rows", "create"), ("viewpools/scale", "patch")} <= granted
    silent = one(render(rbac={"aggregate": False}), "ClusterRole", "shop-belvedere-edit")
    assert "aggregate" not in str(silent["metadata"]["labels"])
