"""The Kubernetes operator of Belvedere: planned, not written yet.

It will watch the `BaseTable`, `MaterializedView` and `ViewPool` resources (group `belvedere.dev/v1alpha1`), decide with
pure functions what has to change, and act: pools of coordinators, distributors and view servers, safe scaling through
the scale subresource, conditions and events that say why. Its handlers (kopf) will stay thin: observe, decide, act.

It is a package of its own beside `belvedere` because it runs in another process with other dependencies (the extra
`operator`), and because a source root called `operator` must not become a package: that would shadow the standard
library's module.
"""
