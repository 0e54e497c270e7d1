"""Configurations of training frameworks, read into scenarios; what is not understood is told, never dropped."""
