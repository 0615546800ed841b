"""The configuration of a small HBase on this machine, and why each setting is there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from xml.sax.saxutils import escape

HEAP = {"master": "192m", "regionserver": "384m", "thrift": "128m"}
_OPENS = (
    "java.lang java.lang.reflect java.io java.nio java.net java.util java.util.concurrent sun.nio.ch jdk.internal.misc"
)
JVM = (
    # Java 17 hides what HBase and its Netty reach for by reflection.
    *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in _OPENS.split()),
    "--add-exports=java.base/jdk.internal.misc=ALL-UNNAMED",
    "--add-exports=java.security.jgss/sun.security.krb5=ALL-UNNAMED",
    "-Dorg.apache.hbase.thirdparty.io.netty.tryReflectionSetAccessible=true",
    "-XX:+UseSerialGC",
    "-XX:MaxDirectMemorySize=128m",
    "-Djava.net.preferIPv4Stack=true",
    "-Djava.awt.headless=true",
)
"""For all of its processes."""
FAST_START = "-XX:TieredStopAtLevel=1"
"""Half the time to start; for benchmarks leave it out, the second compiler is worth a factor of two there."""


def site(directory: Path, zookeeper_port: int) -> dict[str, str]:
    """hbase-site.xml of all processes."""
    return {
        "hbase.cluster.distributed": "true",
        "hbase.rootdir": f"file://{directory}/data",
        "hbase.tmp.dir": f"{directory}/tmp",
        # The local file system has no hsync to the disk: it survives kill -9, not a power cut.
        "hbase.unsafe.stream.capability.enforce": "false",
        "hbase.zookeeper.quorum": "127.0.0.1",
        "hbase.zookeeper.property.clientPort": str(zookeeper_port),
        # A region server that is killed is missed after so long; one that is starved for longer ends itself.
        "zookeeper.session.timeout": "10000",
        # Everything on the loopback, on ports that the system chooses, without web pages.
        "hbase.unsafe.regionserver.hostname": "localhost",
        "hbase.master.hostname": "localhost",
        "hbase.master.ipc.address": "127.0.0.1",
        "hbase.regionserver.ipc.address": "127.0.0.1",
        "hbase.regionserver.thrift.ipaddress": "127.0.0.1",
        "hbase.master.port": "0",
        "hbase.regionserver.port": "0",
        "hbase.master.info.port": "-1",
        "hbase.regionserver.info.port": "-1",
        "hbase.thrift.info.port": "-1",
        # Small and quick.
        "hbase.master.wait.on.regionservers.mintostart": "1",
        "hbase.master.wait.on.regionservers.timeout": "1000",
        "hbase.master.wait.on.regionservers.interval": "200",
        "hbase.regionserver.msginterval": "500",
        "hbase.regionserver.handler.count": "12",
        "hbase.regionserver.metahandler.count": "6",
        "hbase.master.handler.count": "8",
        "hfile.block.cache.size": "0.2",
        "hbase.hregion.memstore.flush.size": str(32 << 20),
        "hbase.regionserver.global.memstore.size": "0.4",
        "hbase.server.thread.wakefrequency": "1000",
        "hbase.ipc.server.reservoir.enabled": "false",
        # A connection to the gateway that says nothing for a minute is closed otherwise: that of somebody who reads on.
        "hbase.thrift.server.socket.read.timeout": "3600000",
        "hbase.master.cleaner.interval": "60000",
        # Regions are moved by tests, not behind their backs. Daughters of a split can be merged again when a chore has
        # removed what they had of their parent (each two minutes by default).
        "hbase.hfile.compaction.discharger.interval": "1000",
        "hbase.balancer.period": "86400000",
        # Replication. An idle reader of the log sleeps sleepforretries x 1, 2, ... up to maxretriesmultiplier (1 s and
        # 300 by default!): this is the latency of a view. After a failover a serial peer looks so often whether its
        # turn has come (10 s by default). Region servers read these, a peer's own configuration does not override them.
        "replication.source.sleepforretries": "20",
        "replication.source.maxretriesmultiplier": "5",
        "hbase.serial.replication.waiting.ms": "100",
        "replication.sleep.before.failover": "500",
        # All sinks of a peer are used, and not half of them; batches are small enough to be answered soon.
        "replication.source.ratio": "1.0",
        "replication.source.size.capacity": str(4 << 20),
        "replication.source.nb.capacity": "5000",
    }


def write_configuration(
    directory: Path, zookeeper_port: int, otherwise: Mapping[str, str] = MappingProxyType({})
) -> Path:
    """The configuration directory, first on the class path of every process. `otherwise`: what is not as on this
    machine."""
    place = directory / "conf"
    place.mkdir(parents=True, exist_ok=True)
    properties = "".join(
        f"  <property><name>{name}</name><value>{escape(value)}</value></property>\n"
        for name, value in {**site(directory, zookeeper_port), **otherwise}.items()
    )
    (place / "hbase-site.xml").write_text(f'<?xml version="1.0"?>\n<configuration>\n{properties}</configuration>\n')
    logging = {
        "rootLogger": "INFO,console",
        "appender.console": "org.apache.log4j.ConsoleAppender",
        "appender.console.target": "System.err",
        "appender.console.layout": "org.apache.log4j.PatternLayout",
        "appender.console.layout.ConversionPattern": "%d{ISO8601} %-5p [%t] %c{2}: %m%n",
    }
    (place / "log4j.properties").write_text("".join(f"log4j.{name}={value}\n" for name, value in logging.items()))
    return place
