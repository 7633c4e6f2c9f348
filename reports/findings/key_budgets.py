"""Findings on how many keys hold 90 % of the weight, and on budgets of keys in proportion to them."""

from collections.abc import Sequence

from reports.findings.claims import format_interval
from reports.findings.numbers import Row, join_sentences, name_head, number

CONTRASTS = {"recall_less_n_90": "N by Recall", "elbow_less_n_90": "N by elbow"}
"""Measures: the mean difference of loss from budgets in proportion to the keys of 90 % of the weight."""


def describe_key_budgets(rows: Sequence[Row], measures: Sequence[Row]) -> str:
    """How many keys to keep, and how geometry's budgets compare (``key_budgets_of_model``, ``measures``)."""
    if not rows:
        return ""
    (row,) = rows
    kept = format_interval(row, "n_90")
    ends = [row["fewest"], row["most"]]
    windowed = any(end["n_keys"] != row["n_keys"] for end in ends)
    mean = " that a head has on average" if windowed else ""
    text = f"To keep 90 % of its weight, the mean head keeps {kept} of the {number(row['n_keys'])} keys{mean}"
    if row["heads"] > 1:
        keys = [f" of {number(end['n_keys'])}" if windowed else "" for end in ends]
        heads = (f"{format_interval(end, 'n_90')}{of} in {name_head(end)}" for end, of in zip(ends, keys, strict=True))
        text += f", from {' to '.join(heads)}"
    known = {measure["measure"]: measure for measure in measures if measure["value"] is not None}
    compared = [
        f"with {words} {format_interval(known[name], low='value_low', high='value_high')}"
        for name, words in CONTRASTS.items()
        if name in known
    ]
    differences = f"At equal cost the loss, minus that with N in proportion to these, is {' and '.join(compared)} nats."
    return join_sentences(f"{text}.", differences if compared else "")
