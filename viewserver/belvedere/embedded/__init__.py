"""The embedded database, in parts: rows given by users, the engine's thread, DDL, recovery, reads, verification."""
