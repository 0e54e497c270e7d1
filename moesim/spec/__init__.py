"""What is read from files: hardware, software, models and scenarios, each number with its source."""
