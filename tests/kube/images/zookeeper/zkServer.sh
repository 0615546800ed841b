#!/bin/sh
# A server in the foreground with the settings in /conf/zoo.cfg, as the script of that name does.
set -eu
[ "$1" = start-foreground ]
exec java ${SERVER_JVMFLAGS:-} -Dzookeeper.admin.enableServer=false -cp "/apache-zookeeper/lib/*" \
  org.apache.zookeeper.server.quorum.QuorumPeerMain /conf/zoo.cfg
