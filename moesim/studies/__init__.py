"""Questions asked of one or many estimates."""
