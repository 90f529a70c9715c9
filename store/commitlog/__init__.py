"""The log: records as bytes, written, scanned and cut. Knows no queue."""
