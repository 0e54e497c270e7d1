"""What must be computed, moved and kept: pure arithmetic, no hardware."""
