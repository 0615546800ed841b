"""Independent evaluation: what views must contain, worked out without any of the code under test."""
