"""What every database shares, embedded or over a cluster: keys in order, sessions."""
