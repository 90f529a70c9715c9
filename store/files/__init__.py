"""The seam to the file system: files, segments, descriptors, locks, settings. Knows no record."""
