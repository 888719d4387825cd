"""The ground: files, locks, threads, memory and clocks. It knows no model and no document."""
