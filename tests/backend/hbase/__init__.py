"""The HBase backend, against a real HBase."""
