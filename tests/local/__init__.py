"""Servers of others as child processes."""
