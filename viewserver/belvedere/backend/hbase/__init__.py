"""HBase 2.x, unmodified: a client of its RPC, administration of our own tables, cells, and the store made of them."""
