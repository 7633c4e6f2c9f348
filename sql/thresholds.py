"""The kinds of heads: the thresholds, and the conditions that use them (Section 4.2), each declared once.

Holds ``THRESHOLDS``, the parameters of the macro ``taxonomy``; ``KINDS``, the rules; and ``SIGNATURE``, the inputs of
the rules. The SQL that evaluates them is in ``sql/macros/label_heads.sql``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

OTHER = "Other"  # The label of a head that meets no rule


@dataclass(frozen=True)
class Threshold:
    """One threshold: a parameter of the macro ``taxonomy``."""

    name: str
    default: float
    meaning: str  # The condition that it decides, preceded by the kind of heads that the condition belongs to
    reason: str  # Reason for the default; the paper gives no numbers

    def __str__(self) -> str:
        return f"{self.name} ({self.meaning})"


THRESHOLDS = (
    Threshold(
        "last_leads",
        1.0,
        "Retriever: the last token contributes at least this many times the larger of the contributions of the sink "
        "and the rest",
        "the last token's contribution is the largest of the three",
    ),
    Threshold(
        "last_high",
        0.5,
        "Retriever: cos(s_N, v_L) is at least this over at least 95 % of ln N",
        "at least half of the length of s_N is along v_L: the angle is at most 60°",
    ),
    Threshold(
        "sink_seen",
        0.5,
        "Mixer: cos(s_N, v_0) reaches this at some N at which the sink is selected",
        "s_N can only turn away from v_0 if it was close to it; the same angle as last_high",
    ),
    Threshold(
        "sink_falls",
        0.1,
        "Mixer: cos(s_N, v_0) falls by at least this from the first N to the last",
        "more than the variation of means over a few sequences",
    ),
    Threshold(
        "last_rises",
        0.1,
        "Mixer: cos(s_N, v_L) rises by at least this from the first N to the last",
        "the same as sink_falls",
    ),
    Threshold(
        "last_weak",
        0.3,
        "Reset: cos(s_N, v_L) is at most this on average over ln N",
        "well below last_high, so that no head counts both as near to v_L and as far from it",
    ),
    Threshold(
        "sink_comparable",
        0.8,
        "Reset, sink-biased: the sink contributes at least this many times the larger of the contributions of the "
        "last token and the rest",
        "comparable to the other contributions, or larger",
    ),
    Threshold(
        "broad_least",
        5.0,
        "Reset, broad: the effective number of keys that contribute is at least this",
        "fewer than five keys are a narrow selection, even in a short context",
    ),
    Threshold(
        "broad_share",
        0.1,
        "Reset, broad: the effective number of keys that contribute is at least this share of all keys",
        "in a long context a few dozen keys are still a narrow selection; a tenth of all keys is not",
    ),
)
"""Every threshold, in the order of the conditions."""

SIGNATURE: Mapping[str, str] = {
    "n_keys": "number of keys the query may attend to",
    "norm_y_0": "norm of the sink's weighted value state, in model units; NULL if a window hides the sink",
    "norm_y_last": "norm of the last token's weighted value state",
    "norm_rest": "norm of the sum of all other weighted value states",
    "change_without_sink": "change of the norm of the output without the sink's part; NULL if it is hidden",
    "change_without_last": "change of the norm of the output without the last token's part",
    "cos_sink_max": "largest cos(s_N, v_0) over the N at which the sink is selected; NULL if there is none",
    "cos_sink_level": "mean of cos(s_N, v_0) over ln N; NULL if a window hides the sink or its norm is 0",
    "cos_sink_change": "slope of that cosine over ln N times ln(n_keys - 1): its change from N = 1 to the last N",
    "cos_last_level": "mean of cos(s_N, v_L) over ln N; NULL if the last token's value state has norm 0",
    "cos_last_change": "its change from N = 1 to the last N; 0 if there is only one N",
    "cos_last_p05": "cos(s_N, v_L) reached over at least 95 % of ln N; NULL if it is missing over more than 5 %",
    "effective_contributors": "effective number of keys that contribute; NULL if all weighted norms are 0",
    "top_is_other": "1 if the top contributor is neither sink nor last token, else 0; NULL if all weighted norms are 0",
}
"""Inputs of the rules: columns of ``head_signatures``, and means of them over sequences; all DOUBLE."""


@dataclass(frozen=True)
class Condition:
    """One condition of a rule. A value that does not exist, such as that of a hidden sink, meets no condition."""

    name: str
    meaning: str
    value: str  # The value compared with the limit: SQL over `SIGNATURE` and the shares of `label_heads`
    direction: str  # The comparison with the limit: `>=`, `<=` or `>`
    limit: str  # SQL over the same, with thresholds as columns of `stated`
    way: str | None = None
    """The alternative way to meet the rule that the condition belongs to; None: required in every way."""
    relative: bool = False  # Whether the distance to the limit is divided by the larger of both

    @property
    def met(self) -> str:
        """SQL: whether it is met."""
        return f"coalesce({self.name}_value {self.direction} {self.name}_limit, false)"

    @property
    def slack(self) -> str:
        """SQL: by how much it is met, below 0 by how much it is missed; minus infinity if the value does not exist."""
        value, limit = f"{self.name}_value", f"{self.name}_limit"
        distance = f"{limit} - {value}" if self.direction == "<=" else f"{value} - {limit}"
        if self.relative:
            distance = f"({distance}) / greatest({value}, {limit})"
        return f"coalesce({distance}, '-infinity'::DOUBLE)"


@dataclass(frozen=True)
class Kind:
    """One kind of heads: the conditions of its rule."""

    label: str
    conditions: tuple[Condition, ...]

    @property
    def name(self) -> str:
        """The label as used in column names."""
        return self.label.lower()

    @property
    def ways(self) -> tuple[tuple[Condition, ...], ...]:
        """The conditions of each alternative way to meet the rule; empty if there are no alternatives."""
        names = dict.fromkeys(condition.way for condition in self.conditions if condition.way)
        return tuple(tuple(condition for condition in self.conditions if condition.way == name) for name in names)

    @property
    def met(self) -> str:
        """SQL: whether the rule is met: all conditions required in every way, and all of at least one way."""
        ways = " OR ".join(f"({' AND '.join(f'{c.name}_met' for c in way)})" for way in self.ways)
        return " AND ".join([f"{c.name}_met" for c in self._always] + ([f"({ways})"] if ways else []))

    @property
    def score(self) -> str:
        """SQL: by how much its narrowest condition is met, below 0 by how much the worst is missed, in the best way."""
        ways = ", ".join(f"least({', '.join(f'{c.name}_slack' for c in way)})" for way in self.ways)
        slacks = [f"{c.name}_slack" for c in self._always] + ([f"greatest({ways})"] if ways else [])
        return f"least({', '.join(slacks)})"

    @property
    def _always(self) -> list[Condition]:
        """The conditions required in every way."""
        return [condition for condition in self.conditions if condition.way is None]


_BETWEEN = "CASE WHEN sink_share IS NOT NULL THEN last_share END"
"""The share of the last token; NULL if there is no sink to compare it with."""

KINDS = (
    Kind(
        "Retriever",
        (
            Condition(
                "last_leads",
                "the last token's share of the contributions is the largest",
                "last_share",
                ">=",
                "stated.last_leads * greatest(sink_share, rest_share)",
            ),
            Condition("last_high", "cos(s_N, v_L) is high over 95 % of ln N", "cos_last_p05", ">=", "stated.last_high"),
        ),
    ),
    Kind(
        "Mixer",
        (
            Condition(
                "above_smaller",
                "the last token's share is not the smallest",
                _BETWEEN,
                ">=",
                "least(sink_share, rest_share)",
            ),
            Condition(
                "below_larger",
                "the last token's share is not the largest",
                _BETWEEN,
                "<=",
                "greatest(sink_share, rest_share)",
            ),
            Condition(
                "sink_seen", "s_N is near to v_0 at an N with the sink", "cos_sink_max", ">=", "stated.sink_seen"
            ),
            Condition("sink_falls", "cos(s_N, v_0) falls", "-cos_sink_change", ">=", "stated.sink_falls"),
            Condition("last_rises", "cos(s_N, v_L) rises", "cos_last_change", ">=", "stated.last_rises"),
        ),
    ),
    Kind(
        "Reset",
        (
            Condition("last_weak", "cos(s_N, v_L) is low on average", "cos_last_level", "<=", "stated.last_weak"),
            Condition(
                "sink_comparable",
                "the sink's share is comparable to the others or above them",
                "sink_share",
                ">=",
                "stated.sink_comparable * greatest(last_share, rest_share)",
                way="sink-biased",
            ),
            Condition(
                "sink_matters",
                "leaving the sink out changes the norm of the output more than leaving the last token out",
                "change_without_sink / total_norm",
                ">",
                "change_without_last / total_norm",
                way="sink-biased",
            ),
            Condition(
                "broad_least",
                "several keys contribute",
                "effective_contributors",
                ">=",
                "stated.broad_least",
                way="broad",
                relative=True,
            ),
            Condition(
                "broad_share",
                "a large share of the keys contributes",
                "effective_contributors",
                ">=",
                "stated.broad_share * n_keys",
                way="broad",
                relative=True,
            ),
        ),
    ),
)
"""The rules, in the order in which ties between them are broken."""


def describe_conditions() -> str:
    """All conditions in one line, rule by rule."""
    return "; ".join(
        f"{kind.label}: " + ", ".join(f"{condition.name} ({condition.meaning})" for condition in kind.conditions)
        for kind in KINDS
    )
