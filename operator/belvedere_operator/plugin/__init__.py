"""`kubectl belvedere`: pools and views in a cluster, for people. It needs kubectl and nothing else of this machine."""
