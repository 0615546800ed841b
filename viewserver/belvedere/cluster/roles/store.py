"""The store: LMDB behind a Flight port of its own, base tables included, which push their changes to distributors.

It has no machine: what it does is decided by who calls it. It is a member so that others find it. The directory stays
open from incarnation to incarnation; a session that is lost costs nothing but a new name.
"""

from __future__ import annotations

import logging

from belvedere.cluster.options import Options
from belvedere.cluster.process import Incarnation, Surroundings
from belvedere.cluster.transport import Handler, Payload, Receiver
from belvedere.protocol.messages import Member, Message, Role
from belvedere.protocol.ring import MemberId
from belvedere.store.seam import Store

log = logging.getLogger(__name__)
