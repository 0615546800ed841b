"""The admission webhook: what `kubectl apply` is told before anything is stored."""
