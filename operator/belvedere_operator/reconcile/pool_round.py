"""One round of one pool: what is there is observed, what is to be done is decided, it is done, and it is said.

A round may end at any point, with the operator or by an error: the next one begins with what is there then. Nothing is
remembered that would be needed for being right; what is remembered saves requests.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from belvedere_operator.api import API_VERSION
from belvedere_operator.api.materialized_view import JobStatus
from belvedere_operator.api.reading import InvalidSpec, read
from belvedere_operator.api.view_pool import PendingDrop, ViewPoolSpec, ViewPoolStatus
from belvedere_operator.build.inputs import Capabilities, PoolInput, selector_text
from belvedere_operator.build.network import gateway_url, role_binding_name
from belvedere_operator.build.pool import Key, key, objects, optional_keys
from belvedere_operator.build.workloads import volume_claim_name
from belvedere_operator.decide import pool_saying, saying
from belvedere_operator.decide.certificates import CLOCKS_S
from belvedere_operator.decide.farewell import Step
from belvedere_operator.decide.items import Item, Phase, PoolState, by_item, item_of
from belvedere_operator.decide.jobs import together
from belvedere_operator.decide.load import Assessment, Target, assess
from belvedere_operator.decide.pods import troubles
from belvedere_operator.decide.relations import Attempt, Plan, decide
from belvedere_operator.decide.trials import FAILED, MARK
from belvedere_operator.gateway import DocumentResult, PoolFigures, PoolRefused, PoolUnreachable, Problem
from belvedere_operator.kube.client import Kube, KubeError, Resource
from belvedere_operator.kube.events import Event
from belvedere_operator.metrics import Metrics
from belvedere_operator.names import (
    DEFAULT_POOL,
    FINALIZER,
    MADE_ON_DEMAND,
    ROLE_LABEL,
    ROTATE,
    ZOOKEEPER_PATH,
    object_name,
    paused,
)
from belvedere_operator.reconcile import zookeeper
from belvedere_operator.reconcile.builds import Builds
from belvedere_operator.reconcile.certificates import PoolCertificates
from belvedere_operator.reconcile.gateways import Gateways
from belvedere_operator.reconcile.leaving import take_leave
from belvedere_operator.reconcile.objects import PoolObjects
from belvedere_operator.reconcile.repairs import Repairs, SeenRepairs
from belvedere_operator.reconcile.resources import PoolKey, Resources
from belvedere_operator.reconcile.sampling import Sampling
from belvedere_operator.reconcile.verifications import Seen, Verifications
from belvedere_operator.reconcile.writing import Writing
from belvedere_operator.reconcile.zookeeper import ZooKeeperCredentials
from belvedere_operator.settings import Settings
from belvedere_operator.times import age_s

SOON_S, LATER_S = 2.0, 15.0
"""Until the next round while something is under way, and when nothing is."""


@dataclass(frozen=True, slots=True)
class Cluster:
    """What the operator knows of the cluster that it runs in."""

    capabilities: Callable[[], Capabilities] = Capabilities
    other_provider: Callable[[], str] = str
    """Who else serves external metrics; empty: nobody."""


@dataclass(slots=True)
class _Memory:
    objects: PoolObjects
    verifications: Verifications
    certificates: PoolCertificates
    builds: Builds
    repairs: Repairs
    attempt: Attempt = field(default_factory=Attempt)
    replicas: int | None = None
    zookeeper: str = ""
    working: bool = False
    """A Job works on a view."""


@dataclass(frozen=True, slots=True)
class _Observed:
    """Of a pool that is there."""

    pool: PoolInput
    state: PoolState
    workloads: tuple[pool_saying.Workload, ...]
    figures: PoolFigures | None
    problem: tuple[str, str] | None


class PoolRounds:
    """Rounds of all pools. Rounds of different pools run at the same time, in threads."""

    def __init__(
        self,
        kube: Kube,
        resources: Resources,
        gateways: Gateways,
        settings: Settings,
        cluster: Cluster | None = None,
        clock: Callable[[], float] = time.time,
        metrics: Metrics | None = None,
    ) -> None:
        self._kube, self._resources, self._gateways, self._settings = kube, resources, gateways, settings
        self._cluster, self._clock, self._metrics = cluster or Cluster(), clock, metrics
        self._writing = Writing(kube, resources)
        self._credentials = ZooKeeperCredentials(kube, settings)
        self._sampling = Sampling(gateways)
        self._memory: dict[PoolKey, _Memory] = {}

    def run(self, at: PoolKey) -> float | None:
        """Seconds until the next round; None: when something changes."""
        pool = self._resources.pool(at)
        relations = self._resources.relations(at)
        if pool is None:
            pool = self._missing(at, relations)
        if pool is None:
            self._forget(at)
            if not relations:
                return None
            text = f"there is no ViewPool {at[1]!r} in namespace {at[0]!r}; create it, or name another with spec.pool"
            items = [item_of(one) for one in relations]
            self._tend(at, relations, items, PoolState(at[1], Phase.MISSING, text), None, (), pool_saying.DEFAULT_LAG_S)
            return LATER_S
        if pool["metadata"].get("deletionTimestamp"):
            state = PoolState(at[1], Phase.DELETING, f"ViewPool {at[1]!r} is being deleted")
            items = [item_of(one) for one in relations]
            self._tend(at, relations, items, state, None, (), pool_saying.DEFAULT_LAG_S)
            self._let_pool_go(at, pool)
            return SOON_S
        if paused(pool):
            return None
        return self._round(at, pool, relations)

    # ------------------------------------------------------------------ a pool that is there

    def _round(self, at: PoolKey, pool: Resource, relations: Sequence[Resource]) -> float:
        now = self._clock()
        memory = self._memory.get(at)
        if memory is None:
            memory = self._memory[at] = _Memory(
                PoolObjects(self._kube, self._clock),
                Verifications(self._kube, self._clock),
                PoolCertificates(self._kube, self._now, self._settings.rotation_pause_s),
                Builds(self._kube, self._clock),
                Repairs(self._kube, self._clock),
            )
        before = _status(pool)
        try:
            spec = read(ViewPoolSpec, pool.get("spec"))
        except InvalidSpec as error:
            problem = ("InvalidSpec", str(error))
            found = pool_saying.PoolFound(
                ViewPoolSpec(),
                before,
                _generation(pool),
                PoolState(at[1], Phase.STARTING, str(error)),
                (),
                None,
                None,
                now,
                problem=problem,
            )
            self._say_pool(pool, found, None, 0)
            return LATER_S
        if FINALIZER not in (pool["metadata"].get("finalizers") or ()):
            self._writing.finalize(pool)
            pool = self._resources.pool(at) or pool
        items = [item_of(one) for one in relations]
        lag_s = pool_saying.target_lag_s(spec, items)
        observed = self._observe(at, pool, spec, before, memory)
        plan, results = self._tend(
            at, relations, items, observed.state, observed.figures, before.pending_drops, lag_s, observed.pool
        )
        assessment = self._assess(at, spec, lag_s, observed)
        live = [item for item in items if not item.deleting]
        found = pool_saying.PoolFound(
            spec=spec,
            before=before,
            generation=_generation(pool),
            state=observed.state,
            workloads=observed.workloads,
            figures=observed.figures,
            assessment=assessment,
            now=now,
            ready_views=sum(
                1 for name, told in observed.figures.views.items() if told.state == "Ready" and MARK not in name
            )
            if observed.figures
            else 0,
            views=sum(1 for item in live if item.kind != "BaseTable"),
            tables=sum(1 for item in live if item.kind == "BaseTable"),
            gateway=gateway_url(at[1], at[0]),
            zookeeper=observed.pool.zookeeper,
            selector=selector_text(observed.pool.selector("viewserver")),
            pending_drops=plan.pending_drops,
            other_provider=self._cluster.other_provider(),
            serves_metrics=self._settings.metrics_provider,
            keda=observed.pool.capabilities.keda,
            target_lag_s=lag_s,
            problem=observed.problem,
            certificates=memory.certificates.secured.text if memory.certificates.secured is not None else "",
        )
        replicas_before, memory.replicas = memory.replicas, observed.pool.replicas
        self._say_pool(self._resources.pool(at) or pool, found, replicas_before, observed.pool.replicas)
        return SOON_S if memory.working else self._pause(observed, plan, results)

    def _observe(
        self, at: PoolKey, pool: Resource, spec: ViewPoolSpec, before: ViewPoolStatus, memory: _Memory
    ) -> _Observed:
        """The objects of the pool are applied here: what is observed then is what they came to."""
        namespace, name = at
        memory.zookeeper = memory.zookeeper or self._zookeeper(at, pool, spec, before)
        problem = pool_saying.problem_of(spec, memory.zookeeper)
        wanted = PoolInput(
            name=name,
            namespace=namespace,
            uid=pool["metadata"]["uid"],
            spec=spec,
            settings=self._settings,
            replicas=self._replicas(pool, spec),
            zookeeper=memory.zookeeper,
            capabilities=self._cluster.capabilities(),
            external_metrics=self._settings.metrics_provider and not self._cluster.other_provider(),
        )
        zookeeper_secret, zookeeper_tls = self._credentials.secret_of(wanted), self._credentials.tls_of(wanted)
        wanted = replace(wanted, zookeeper_secret=zookeeper_secret, zookeeper_tls=zookeeper_tls)
        if problem is not None:
            return _Observed(wanted, PoolState(name, Phase.STARTING, problem[1]), (), None, problem)
        selector = selector_text(wanted.selector())
        listed: dict[Key, Resource] = {}
        for kind in ("Deployment", "StatefulSet"):
            for one in self._kube.list("apps/v1", kind, namespace, labelSelector=selector):
                listed[key(one)] = one
        wanted = replace(wanted, at_once=pool_saying.replaced_at_once(listed.values(), wanted.tls.mode))
        documents = objects(wanted)
        try:
            if wanted.mutual_tls:
                self._writing.events(pool, self._certified(at, pool, wanted, memory))
            own = self._credentials.documents(wanted)
            self._writing.events(pool, memory.objects.apply([*own, *documents], listed))
        except KubeError as error:
            if error.status != 403 and error.status != 422:
                raise
            problem = ("Refused", f"the cluster refuses what the pool needs: {error.message}")
        needed = {key(document) for document in documents}
        memory.objects.remove([one for one in optional_keys(wanted) if one not in needed], namespace)
        workloads = tuple(
            pool_saying.workload_of(one, one["metadata"].get("labels", {}).get(ROLE_LABEL, ""))
            for one in sorted(listed.values(), key=lambda one: str(one["metadata"]["name"]))
        )
        if any(not one.settled and not one.trouble for one in workloads):
            why = troubles(self._kube.list("v1", "Pod", namespace, labelSelector=selector))
            workloads = tuple(replace(one, trouble=one.trouble or why.get(one.role, "")) for one in workloads)
        figures, unreachable = None, ""
        try:
            figures = self._gateways.of(at).figures()
        except PoolUnreachable as error:
            unreachable = str(error)
        except PoolRefused as error:
            unreachable = f"its gateway refuses the operator: {error}"
        return _Observed(
            wanted, pool_saying.phase_of(workloads, figures, unreachable, name), workloads, figures, problem
        )

    def _certified(self, at: PoolKey, pool: Resource, wanted: PoolInput, memory: _Memory) -> list[Event]:
        """Before the pods that mount them are made."""
        asked = str((pool["metadata"].get("annotations") or {}).get(ROTATE, ""))
        events = memory.certificates.tend(wanted, asked)
        if self._metrics is not None and memory.certificates.secured is not None:
            self._metrics.certificates.labels(*at).set(memory.certificates.secured.left)
        return events

    def _now(self) -> float:
        """By the API server's clock, if ours is far from it: certificates are for others."""
        offset = self._kube.clock_offset_s
        return self._clock() + (offset if abs(offset) > CLOCKS_S else 0.0)

    def _zookeeper(self, at: PoolKey, pool: Resource, spec: ViewPoolSpec, before: ViewPoolStatus) -> str:
        """Hosts and path. The volume of a store knows where its pool lies; a pool without one lies under its own id, so
        that no other pool's past is taken for its own."""
        given = spec.zookeeper.hosts if spec.zookeeper is not None else self._settings.zookeeper
        if not given:
            return ""
        hosts, _, base = given.partition("/")
        namespace, name = at
        protect = zookeeper.shares(spec, self._settings)
        known = before.zookeeper.partition("/")[2] if before.zookeeper else ""
        if spec.backend is not None:
            return f"{hosts}/{known or zookeeper.path_of(base, namespace, name, protect=protect)}"
        claim = self._kube.get("v1", "PersistentVolumeClaim", namespace, volume_claim_name(object_name(name, "store")))
        of_volume = ((claim or {}).get("metadata", {}).get("annotations") or {}).get(ZOOKEEPER_PATH)
        if of_volume or known:
            return f"{hosts}/{of_volume or known}"
        unique = f"{name}-{pool['metadata']['uid'][:8]}"
        return f"{hosts}/{zookeeper.path_of(base, namespace, unique, protect=protect)}"

    def _replicas(self, pool: Resource, spec: ViewPoolSpec) -> int:
        """spec.replicas; where it is not given it is written, since an autoscaler reads it there."""
        least = spec.autoscaling.min_replicas if spec.autoscaling is not None else 1
        if spec.replicas is None:
            answer = self._kube.merge(pool, {"spec": {"replicas": least}})
            self._resources.put({"apiVersion": API_VERSION, "kind": "ViewPool"} | answer)
            return least
        return spec.replicas

    def _assess(self, at: PoolKey, spec: ViewPoolSpec, lag_s: float, observed: _Observed) -> Assessment | None:
        if spec.autoscaling is None or observed.figures is None:
            return None
        try:
            samples = self._sampling.of(at)
        except (PoolUnreachable, PoolRefused):
            return None
        return assess(samples, target_of(spec, lag_s), observed.pool.replicas)

    def _say_pool(
        self, pool: Resource, found: pool_saying.PoolFound, replicas_before: int | None, replicas: int
    ) -> None:
        status = pool_saying.pool_status(found)
        events = pool_saying.scaling_events(found, replicas_before, replicas)
        events += saying.events_of(found.before.conditions, status.conditions, pool=True)
        self._writing.status(pool, status, found.now)
        self._writing.events(pool, events)

    @staticmethod
    def _pause(observed: _Observed, plan: Plan, results: Sequence[DocumentResult]) -> float:
        figures = observed.figures
        building = figures is not None and any(
            told.state == "Building" or told.progress is not None for told in figures.views.values()
        )
        changed = any(one.action in ("created", "changed") for one in results) or bool(plan.drops)
        settled = observed.workloads and all(one.settled for one in observed.workloads)
        under_way = building or changed or any(reason != FAILED for reason, _ in plan.trying.values())
        return LATER_S if settled and not under_way and observed.state.up else SOON_S

    # ------------------------------------------------------------------ its tables and views

    def _tend(
        self,
        at: PoolKey,
        relations: Sequence[Resource],
        items: Sequence[Item],
        state: PoolState,
        figures: PoolFigures | None,
        pending: Sequence[PendingDrop],
        lag_s: float,
        pool: PoolInput | None = None,
    ) -> tuple[Plan, tuple[DocumentResult, ...]]:
        now = self._clock()
        by_key = {(one["kind"], one["metadata"]["name"]): one for one in relations}
        memory = self._memory.get(at)
        last = memory.attempt if memory is not None else None
        verdicts = memory.verifications.verdicts(pool, items) if memory is not None and pool is not None else {}
        plan = decide(
            items,
            state,
            figures,
            now=now,
            pending=pending,
            last=last,
            verdicts=verdicts,
            has_spark=pool is None or pool.has_spark,
            auto_above=None if pool is None else pool.spark.auto_above,
        )
        for item in plan.finalize:
            self._writing.finalize(by_key[item.key])
        released = {item.key for item in plan.release}
        waiting = dict(plan.waiting)
        dropped: list[Item] = []
        pending_drops = list(plan.pending_drops)
        for drop in plan.drops:
            try:
                self._gateways.of(at).drop(drop.name)
            except (PoolUnreachable, PoolRefused) as error:
                if drop.item is not None:
                    waiting[drop.item.key] = ("DropRefused", f"the pool did not drop it: {error}")
                else:
                    pending_drops.append(PendingDrop(drop.kind, drop.name))
                continue
            if drop.item is not None and drop.item.deleting:
                released.add(drop.item.key)
            if drop.item is not None:
                dropped.append(drop.item)
        results = self._apply(at, plan, memory, now)
        for released_key in released:
            self._writing.release(by_key[released_key])
        if figures is not None and (dropped or results):
            figures = self._look_again(at, figures)
        verified, repaired = None, SeenRepairs()
        built: Mapping[str, tuple[JobStatus, ...]] = {}
        if memory is not None and pool is not None:
            left = [item for item in items if item.key not in released]
            verified = memory.verifications.tend(pool, left, figures, plan.verify)
            built = memory.builds.tend(pool, left, figures)
            repaired = memory.repairs.tend(pool, left, figures)
            asked = bool(verified.requests or repaired.requests)
            memory.working = asked or verified.under_way or repaired.under_way or memory.builds.under_way
        seen = verified or Seen()
        told = by_item(plan.apply, results)
        found = saying.Found(
            pool=state,
            figures=figures,
            now=now,
            # That a trial was taken says nothing of the view itself; that its text was refused does.
            results={key: one for key, one in told.items() if one.problem is not None or key not in plan.trying},
            waiting=waiting,
            trying=plan.trying,
            verifications=seen.results,
            jobs_seen=seen.looked,
            jobs=together(seen.jobs, built, repaired.jobs),
            repairs=repaired.results,
            repair_requests=repaired.requests,
            requests=seen.requests,
            problems=seen.problems,
            target_lag_s=lag_s,
        )
        current = {(one["kind"], one["metadata"]["name"]): one for one in self._resources.relations(at)}
        for item in items:
            if item.key in current and item.key not in released and not item.paused:
                self._say(current[item.key], item, found)
        return replace(plan, pending_drops=tuple(dict.fromkeys(pending_drops))), results

    def _apply(self, at: PoolKey, plan: Plan, memory: _Memory | None, now: float) -> tuple[DocumentResult, ...]:
        """All as one change."""
        if not plan.apply:
            return ()
        digests = frozenset(item.digest() for item in plan.apply)
        try:
            results = self._gateways.of(at).apply(plan.documents())
        except PoolUnreachable:
            return ()  # the next round tells that it does not answer
        except PoolRefused as error:
            # Not a document but the whole of it: a pool that is stalled, or an operator without rights.
            problem = Problem(error.problem.error, error.problem.text)
            return tuple(DocumentResult(item.kind, item.sql_name, "refused", problem) for item in plan.apply)
        if memory is not None:
            refused = any(one.problem is not None for one in results)
            memory.attempt = Attempt(digests, now) if refused else Attempt()
        return results

    def _look_again(self, at: PoolKey, before: PoolFigures) -> PoolFigures:
        try:
            return self._gateways.of(at).figures()
        except (PoolUnreachable, PoolRefused):
            return before

    def _say(self, resource: Resource, item: Item, found: saying.Found) -> None:
        status = saying.status_of(item, found)
        if self._writing.status(resource, status, found.now):
            self._writing.events(resource, saying.events_of_view(item.status, status))

    # ------------------------------------------------------------------ a pool that is not there

    def _missing(self, at: PoolKey, relations: Sequence[Resource]) -> Resource | None:
        """It may be there and not be known yet. The default pool is made when something wants to be in it."""
        namespace, name = at
        found = self._kube.get(API_VERSION, "ViewPool", namespace, name)
        if found is not None:
            self._resources.put(found)
            return found
        wanted = any(not one["metadata"].get("deletionTimestamp") and not paused(one) for one in relations)
        if name != DEFAULT_POOL or not wanted:
            return None
        made = {
            "apiVersion": API_VERSION,
            "kind": "ViewPool",
            "metadata": {"name": name, "namespace": namespace, "labels": {MADE_ON_DEMAND: "true"}},
            "spec": {"replicas": 1},
        }
        try:
            answer = {"apiVersion": API_VERSION, "kind": "ViewPool"} | self._kube.create(made)
        except KubeError as error:
            if error.conflict or error.status == 403:  # somebody was faster, or the namespace is going
                return None
            raise
        self._resources.put(answer)
        return answer

    def _let_pool_go(self, at: PoolKey, pool: Resource) -> None:
        """What has no owner is taken away here; Kubernetes takes away the rest. Nothing that has to answer for it can
        hold it for ever."""
        namespace, name = at
        if FINALIZER not in (pool["metadata"].get("finalizers") or ()) or not self._has_said_farewell(at, pool):
            return
        meta = {"name": role_binding_name(namespace, name)}
        self._kube.delete(
            {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": meta}
        )
        self._writing.release(pool)
        self._forget(at)

    def _has_said_farewell(self, at: PoolKey, pool: Resource) -> bool:
        """Whether nothing is left to be done in other systems."""
        namespace, name = at
        try:
            spec = read(ViewPoolSpec, pool.get("spec"))
        except InvalidSpec:
            return True
        where = self._zookeeper(at, pool, spec, _status(pool))
        leaving = PoolInput(name, namespace, pool["metadata"]["uid"], spec, self._settings, zookeeper=where)
        leaving = replace(
            leaving,
            zookeeper_secret=self._credentials.secret_of(leaving),
            zookeeper_tls=self._credentials.tls_of(leaving),
        )
        age = age_s(pool["metadata"]["deletionTimestamp"], self._now())
        farewell = take_leave(self._kube, leaving, age)
        if farewell.event is not None:
            self._writing.events(pool, [farewell.event])
        return farewell.step is Step.LET_GO

    def _forget(self, at: PoolKey) -> None:
        self._memory.pop(at, None)
        self._gateways.forget(at)
        self._sampling.forget(at)
        if self._metrics is not None:
            with contextlib.suppress(KeyError):
                self._metrics.certificates.remove(*at)


def target_of(spec: ViewPoolSpec, lag_s: float) -> Target:
    scaling = spec.autoscaling
    if scaling is None:
        return Target(lag_s)
    return Target(lag_s, scaling.target_busy / 100, scaling.min_replicas, scaling.max_replicas)


def _status(pool: Resource) -> ViewPoolStatus:
    try:
        return read(ViewPoolStatus, pool.get("status") or {}, "status")
    except InvalidSpec:  # of another version of the operator: it is written anew
        return ViewPoolStatus()


def _generation(pool: Resource) -> int:
    return int(pool["metadata"].get("generation", 0))
