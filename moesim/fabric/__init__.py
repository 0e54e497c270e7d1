"""Networks: from a kind of topology to its graph, its tiers and the bandwidth that a group of ranks gets."""
