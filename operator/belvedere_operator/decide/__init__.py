"""Decisions: pure functions from what was observed to what is to be done and said. No network, no clock, no kopf."""
