"""Rules that tell the class of a kernel by its name: one family a file."""
