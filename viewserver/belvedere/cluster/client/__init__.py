"""The client of a cluster: `belvedere.connect`, with the methods of the embedded database."""
