"""The Helm chart: what it renders, with which values, and that nothing in it contradicts the rest of the project."""
