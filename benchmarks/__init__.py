"""Speed, measured as ratios: `python -m benchmarks` prints a table and saves it as JSON.

Holds one module per subject, and the measuring they share. The package is not part of the wheel.
"""
