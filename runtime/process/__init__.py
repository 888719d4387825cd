"""What concerns the whole process: signals, threads, interruption."""
