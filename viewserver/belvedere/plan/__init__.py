"""Maintenance plans: what keeps a view exact when its tables change.

nodes        the operators of a plan, their keys and identities
rules/       rewrites of bound queries, one per file, in order
canonical    equal parts of queries become one object; demand: which columns each part must provide
conditions   equalities of joins; lower: queries to nodes; build: schemas, keys, identities
sharing      equal nodes are one node, existing state is used again
planner      plan_views(catalog, views, existing): the way in
zones        parts of a plan whose rows lie under one key
explain      text and JSON; svg: the picture, layout: its geometry
"""
