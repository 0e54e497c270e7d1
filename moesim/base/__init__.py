"""What everything else stands on: numbers, units, errors, registries, events, expressions."""
