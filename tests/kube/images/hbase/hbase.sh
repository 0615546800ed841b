#!/bin/sh
# All of an HBase below /data, reached by others as $HOST. The container ends with the first process that does.
set -eu
conf=/tmp/conf
mkdir -p "$conf" /data/zookeeper /data/data
sed "s/@HOST@/$HOST/g" /hbase/settings/hbase-site.xml > "$conf/hbase-site.xml"
cp /hbase/settings/log4j.properties "$conf/"
cat > "$conf/zoo.cfg" <<E2
tickTime=500
dataDir=/data/zookeeper
clientPort=2181
admin.enableServer=false
maxClientCnxns=0
forceSync=no
E2
start() {
  heap=$1; shift
  # The options are words without blanks.
  # shellcheck disable=SC2046
  java $(cat /hbase/settings/jvm) "-Xmx$heap" -cp "$conf:/hbase/lib/*" "$@" &
  pids="${pids:-} $!"
}
start 128m org.apache.zookeeper.server.ZooKeeperServerMain "$conf/zoo.cfg"
start 192m org.apache.hadoop.hbase.master.HMaster start
start 384m org.apache.hadoop.hbase.regionserver.HRegionServer start
start 128m org.apache.hadoop.hbase.thrift.ThriftServer -p 9090 start
trap 'kill $pids; exit 0' TERM
while :; do
  for pid in $pids; do kill -0 "$pid" 2> /dev/null || exit 1; done
  sleep 1 & wait $!
done
