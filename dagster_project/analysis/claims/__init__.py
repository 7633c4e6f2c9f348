"""Claims of the paper: measures of the model, comparisons of them with thresholds, and the sentences that follow.

One module per subject holds its measures, with their estimator, and its claims; ``subjects`` lists them.
"""
