"""The command line: one file a verb, one grammar for all."""
