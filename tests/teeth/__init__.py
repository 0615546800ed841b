"""Mutation tests by hand: breaks that are planted in the product one at a time, and the tests that must notice each.

`make teeth` runs them (`python -m tests.teeth`). A module of this folder with a list `BREAKS` is a part of the list.
"""
