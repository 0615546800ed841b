"""The typed API of the operator: what a `BaseTable`, a `MaterializedView` and a `ViewPool` may say and tell.

The dataclasses here are the one place where fields are defined. The custom resource definitions (`crds/`) and their
reference page are generated from them, and handlers read resources into them. Names and meanings are those of the
manifests that `belvedere apply -f` reads; a test compares the two.
"""

GROUP = "belvedere.dev"
VERSION = "v1alpha1"
API_VERSION = f"{GROUP}/{VERSION}"
