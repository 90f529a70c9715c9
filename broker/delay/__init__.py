"""Messages that wait: delay levels and timers, and their delivery."""
