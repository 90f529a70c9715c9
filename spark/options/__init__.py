"""The data source's options, columns and filters."""
