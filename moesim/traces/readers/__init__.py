"""Readers of measurement files: one format a file."""
