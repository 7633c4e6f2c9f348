"""Findings on the example of keys on a circle: what Precision and Recall count."""

from collections.abc import Sequence

from reports.findings.numbers import Row, count, join_words, number

WITHIN, BEYOND = "within the ball that counts it", "beyond it"
"""Whether a key counts: a selected one within r_min, one left out within r_max."""


def describe_example(keys: Sequence[Row], r_min: float, r_max: float) -> str:
    """Keys of the example that count for Recall, within r_min, and against Precision, within r_max."""
    chosen, others = ([row for row in keys if row["selected"] is selected] for selected in (True, False))
    near, far = ([row for row in chosen if row["within"] is within] for within in (True, False))
    mixed = [row for row in others if row["within"]]
    return (
        f"Of {count(len(keys), 'key')}, {_list_keys(chosen)} are selected. Within r_min = {number(r_min)} lie "
        f"{_list_keys(near)}, not {_list_keys(far)}: Recall is {len(near)}/{len(chosen)}. Within "
        f"r_max = {number(r_max)} lie also {_list_keys(mixed)}: Precision is {len(chosen)}/{len(chosen) + len(mixed)}."
    )


def _list_keys(keys: Sequence[Row]) -> str:
    """Numbers of keys: ‘keys 1, 4 and 7’."""
    return f"key{'s' if len(keys) > 1 else ''} {join_words([str(row['key']) for row in keys])}"
