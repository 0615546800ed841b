"""The simulator: one process, virtual time, the real protocol and the real engine, and everything that can go wrong."""
