"""``rocketlet record`` and ``rocketlet replay``: the traffic of topics as a file, and back; no other command."""
