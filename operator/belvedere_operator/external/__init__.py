"""The API `external.metrics.k8s.io`, from which a HorizontalPodAutoscaler reads how loaded a pool is."""
