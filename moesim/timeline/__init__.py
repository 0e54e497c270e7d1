"""Static task graphs and their longest paths; knows neither hardware nor models."""
