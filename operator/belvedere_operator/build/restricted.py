"""What the Pod Security standard `restricted` wants of pods and containers of Jobs; their files are as the images have
them."""

from __future__ import annotations

from belvedere_operator.build.inputs import Document
from belvedere_operator.build.pods import ID


def pod_security() -> Document:
    return {
        "runAsNonRoot": True,
        "runAsUser": ID,
        "runAsGroup": ID,
        "fsGroup": ID,
        "seccompProfile": {"type": "RuntimeDefault"},
    }


def container_security() -> Document:
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
