"""Texts for `execute` that nobody would write: generated from the grammar, and mutations of texts that people wrote."""
