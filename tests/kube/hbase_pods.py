"""An HBase in one pod, and a program for a pod beside it that writes to it as an application does."""

from __future__ import annotations

from tests.kube import plain_pool
from tests.kube.images import HBASE
from tests.kube.kubernetes import Object

NAME, ZOOKEEPER, THRIFT = "hbase", 2181, 9090


def hbase(namespace: str) -> list[Object]:
    main = plain_pool.container(NAME, HBASE, [], {"zookeeper": ZOOKEEPER, "thrift": THRIFT})
    main["env"] = [{"name": "HOST", "value": f"{NAME}-0.{NAME}.{namespace}.svc.cluster.local"}]
    main["volumeMounts"].append({"name": "files", "mountPath": "/data"})
    main["resources"] = {"requests": {"cpu": "100m", "memory": "1Gi"}, "limits": {"memory": "2Gi"}}
    # Thrift listens before the master can do anything: whoever uses it asks for tables first.
    main["readinessProbe"] = {"tcpSocket": {"port": "thrift"}, "periodSeconds": 1}
    pod = plain_pool.pod(main, [{"name": "files", "emptyDir": {}}]) | {"terminationGracePeriodSeconds": 3}
    template = {"metadata": {"labels": {"app": NAME}}, "spec": pod}
    spec = {"serviceName": NAME, "replicas": 1, "selector": {"matchLabels": {"app": NAME}}, "template": template}
    made = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": NAME}, "spec": spec}
    return [plain_pool.service(NAME, {"zookeeper": ZOOKEEPER, "thrift": THRIFT}), made]


PROGRAM = """
import json, struct, sys, time
import happybase

def connected():
    deadline = time.monotonic() + 300
    while True:
        try:
            found = happybase.Connection("hbase", 9090, timeout=60_000)
            found.tables()
            return found
        except Exception as problem:
            if time.monotonic() > deadline:
                sys.exit(f"hbase does not answer: {problem}")
            time.sleep(1)

command, *words = sys.argv[1:]
if command == "left":
    from belvedere.backend.hbase.client import connect_hbase
    from belvedere.backend.hbase.admin import Admin
    hbase = connect_hbase("hbase:2181", timeout=60.0)
    admin = Admin(hbase.master)
    print(json.dumps({"peers": [peer.id for peer in admin.peers()], "namespaces": sorted(admin.namespaces())}))
    hbase.close()
else:
    connection = connected()
    if command == "create":
        connection.create_table("orders", {"d": dict(max_versions=1)})
    table = connection.table("orders")
    with table.batch() as batch:
        for id in range(int(words[0]), int(words[1])):
            batch.put(struct.pack(">q", id), {"d:customer": struct.pack(">i", id % 7), "d:total": f"{id}.25"})
    print(json.dumps({"rows": sum(1 for _ in table.scan(batch_size=1000))}))
"""
