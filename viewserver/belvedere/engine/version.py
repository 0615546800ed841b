"""The version of the engine: what it writes for the same input.

It grows when state of an older engine can no longer be used. An embedded database then rebuilds its state from base
rows; a plan of a cluster names the version that it has to be carried out with, also when it is repeated.
"""

ENGINE_VERSION = 1
