"""The live cluster as Spark sees it: queues, ranges, offsets, choice of topics."""
