"""Servers of others on this machine, as child processes: for `belvedere local`, `belvedere dev` and tests."""
