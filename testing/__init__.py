"""What tests of applications use: pytest fixtures and a manual clock."""
