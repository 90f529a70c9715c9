"""What an export reads: stores, files, ranges, the end and its proof."""
