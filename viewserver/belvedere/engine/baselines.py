"""CPUs that kernels may be compiled for to be shipped, and what such a CPU must be able to do, in LLVM's words.

Apart from the cache, since the name is needed before numba is loaded.
"""

from __future__ import annotations

_V2 = ("cx16", "popcnt", "sahf", "sse3", "sse4.1", "sse4.2", "ssse3")
_V3 = (*_V2, "avx", "avx2", "bmi", "bmi2", "f16c", "fma", "lzcnt", "movbe", "xsave")
X86: dict[str, tuple[str, ...]] = {"x86-64": (), "x86-64-v2": _V2, "x86-64-v3": _V3}
ARM: dict[str, tuple[str, ...]] = {"generic": ("fp-armv8", "neon")}


def of_machine(machine: str) -> dict[str, tuple[str, ...]]:
    """Features by name of CPU, for what `platform.machine` says."""
    known = {"x86_64": X86, "amd64": X86, "aarch64": ARM, "arm64": ARM}
    return known.get(machine.lower(), {})
