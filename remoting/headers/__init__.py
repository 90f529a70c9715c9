"""The headers of requests and answers, one module per family, and the short ways for frequent frames."""
