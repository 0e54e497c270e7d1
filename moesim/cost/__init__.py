"""Seconds and peak bytes: prices of the operations on a machine."""
