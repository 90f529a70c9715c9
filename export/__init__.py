"""Commit logs as Arrow batches and files, without Spark."""
