"""A real HBase on this machine, from its jars: for `belvedere dev hbase` and for tests."""
