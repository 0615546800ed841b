"""A real Kubernetes for tests and for trying out: one node, without a container engine, registry or virtual machine.

    binaries.py       every component, built from source once per version into the cache
    requirements.py   what the machine must have, and what is missing
    certificates.py   who is who in the cluster
    components.py     what is started, with which settings (pure)
    supervisor.py     the process that starts it, and whose end is the end of everything
    cluster.py        up, down, run a command inside
    images.py         images from Dockerfiles, and into the cluster

`python -m tests.kube` is the same for people (`make kube-up`, `make kube-down`). Why it is so is in
`docs/design/test-cluster.md`.
"""
