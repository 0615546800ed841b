"""What every database shares, below the embedded one and the cluster's client alike."""
