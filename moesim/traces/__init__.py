"""Files of measurements and timelines, read into tables; what they say is compared and fitted elsewhere."""
