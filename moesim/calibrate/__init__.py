"""Constants of the price forms from measurements: readers, robust fits, splits, scores, and overlays that keep them."""
