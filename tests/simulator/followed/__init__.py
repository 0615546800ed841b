"""Histories of a followed HBase table: loads and reloads as the product has them, in a small world of one seed."""
