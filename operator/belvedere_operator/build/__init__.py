"""The Kubernetes objects of a pool: pure functions from what is wanted to plain documents, applied server-side."""
