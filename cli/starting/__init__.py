"""What a start of ``rocketlet up`` does besides when an option asks for it; each module is imported then only."""
