"""Batches into files, by several processes, and their verification."""
