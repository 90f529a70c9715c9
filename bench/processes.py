"""What a process has used so far: CPU time and memory (Linux)."""

import os
from pathlib import Path


def cpu_us(pid: int) -> float:
    """Return the CPU time of a process, in microseconds; the system counts in steps of 10,000."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) * 1e6 / os.sysconf("SC_CLK_TCK")


def running_us(pid: int) -> float:
    """Return how long the threads of a process have run, in microseconds; the scheduler counts nanoseconds."""
    tasks = Path(f"/proc/{pid}/task").glob("*/schedstat")
    return sum(int(task.read_text().split()[0]) for task in tasks) / 1000


def memory_mb(pid: int, name: str = "RssAnon") -> float:
    """Return the memory that a process has of its own, or another value of its status."""
    return int(Path(f"/proc/{pid}/status").read_text().partition(f"{name}:")[2].split()[0]) / 1024
