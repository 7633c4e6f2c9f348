"""Speed, measured as ratios: `python -m benchmarks` prints a table and saves it as JSON.

Holds one module per subject, and the shared code for measurements. The package is not part of the wheel.
"""
