"""`Coordination` on a real ZooKeeper, with kazoo. This folder is the only place that knows kazoo.

link.py          one kazoo client, one session: asking, heartbeats, breaking off
nodes.py         the nodes of a pool, their access lists, and what a session makes
members.py       the members, by watches
election.py      the candidacy
coordination.py  the whole, with its threads
"""

from belvedere.cluster.zookeeper.coordination import ZooKeeperCoordination
from belvedere.cluster.zookeeper.nodes import Credentials

__all__ = ["Credentials", "ZooKeeperCoordination"]
