"""The Kubernetes operator of Belvedere.

It watches `BaseTable`, `MaterializedView` and `ViewPool` resources (`belvedere.dev/v1alpha1`), decides with pure
functions what has to change, and acts: on Kubernetes by server-side apply, on pools through the HTTP API of their
gateways. From the top down:

    __main__, process     a replica: servers, the Lease, watches and workers
    handlers              kopf: which pool is to be looked at
    admission, external   what the API server asks: is this to be stored? how loaded is that pool?
    reconcile             rounds: observe, decide, act, say
    decide, build         what is to be done and said; the objects of a pool. Pure
    gateway, kube         the two outside systems
    api                   the typed API; crds/ and its reference page are made from it
    plugin                kubectl belvedere

It is a package of its own beside `belvedere` because it runs in another process with other dependencies (the extra
`operator`), and because a source root called `operator` must not become a package: that would shadow the standard
library's module.
"""
