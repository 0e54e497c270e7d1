"""Answers for people: tables, plots, HTML."""
