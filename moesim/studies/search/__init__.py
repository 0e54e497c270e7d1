"""Exact search of layouts: which plans are legal and fit, bounds of their steps, and runs of those that may be best."""
