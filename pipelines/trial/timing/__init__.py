"""What is timed: clocks, the recorder of iterations, warm-up, regions and their figures."""
