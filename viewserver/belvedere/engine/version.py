"""The version of the engine: what it writes for the same input.

It grows when state of an older engine can no longer be used. An embedded database then rebuilds its state from base
rows; a plan of a cluster names the version that it has to be carried out with, also when it is repeated.

2: constants in plans are equal by type and bits, so plans share less than before; functions keep BINARY.
3: which calls can fail is decided per call, by one registry; joins keep and place state accordingly.
"""

ENGINE_VERSION = 3
