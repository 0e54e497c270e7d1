"""The trade-off matrix: what each training method does to each bottleneck, derived from estimates with and without it."""
