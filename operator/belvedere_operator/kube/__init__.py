"""The Kubernetes API as the operator needs it: requests, resources by kind, Events, the lease of the leader."""
