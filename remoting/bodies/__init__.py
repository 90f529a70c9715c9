"""The bodies of requests and answers, typed, one module per family."""
