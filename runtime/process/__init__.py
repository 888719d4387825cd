"""Control the whole process: signals, threads, interruption."""
