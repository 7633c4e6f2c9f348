"""The kinds of heads as a plain reading of their definitions, one signature at a time, in Python alone.

Holds what the tests of the taxonomy compare SQL with. Nothing here reads ``sql``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

Signature = Mapping[str, float | None]
Thresholds = Mapping[str, float]

DEFAULTS = {
    "last_leads": 1.0,
    "last_high": 0.5,
    "sink_seen": 0.5,
    "sink_falls": 0.1,
    "last_rises": 0.1,
    "last_weak": 0.3,
    "sink_comparable": 0.8,
    "broad_least": 5.0,
    "broad_share": 0.1,
}
"""The thresholds that are stated."""

RULES = {
    "Retriever": {None: ("last_leads", "last_high")},
    "Mixer": {None: ("above_smaller", "below_larger", "sink_seen", "sink_falls", "last_rises")},
    "Reset": {
        None: ("last_weak",),
        "sink-biased": ("sink_comparable", "sink_matters"),
        "broad": ("broad_least", "broad_share"),
    },
}
"""The conditions of each kind: those that are always needed, and those of each way to meet the rule."""


RETRIEVER = {
    "n_keys": 100.0,
    "norm_y_0": 0.3,
    "norm_y_last": 1.0,
    "norm_rest": 0.4,
    "change_without_sink": 0.1,
    "change_without_last": 0.8,
    "cos_sink_max": 0.4,
    "cos_sink_level": 0.2,
    "cos_sink_change": 0.0,
    "cos_last_level": 0.9,
    "cos_last_change": 0.05,
    "cos_last_p05": 0.8,
    "effective_contributors": 3.0,
    "top_is_other": 0.0,
}
MIXER = RETRIEVER | {
    "norm_y_0": 0.5,
    "norm_y_last": 0.7,
    "norm_rest": 1.0,
    "cos_sink_max": 0.9,
    "cos_sink_change": -0.5,
    "cos_last_level": 0.5,
    "cos_last_change": 0.5,
    "cos_last_p05": 0.1,
}
SINK_BIASED = RETRIEVER | {
    "norm_y_0": 1.0,
    "norm_y_last": 0.3,
    "norm_rest": 0.8,
    "change_without_sink": 0.6,
    "change_without_last": 0.2,
    "cos_sink_max": 1.0,
    "cos_last_level": 0.1,
    "cos_last_p05": -0.1,
    "effective_contributors": 2.5,
}
BROAD = SINK_BIASED | {
    "norm_y_0": 0.2,
    "norm_rest": 1.0,
    "change_without_sink": 0.1,
    "effective_contributors": 30.0,
    "top_is_other": 1.0,
}


@dataclass(frozen=True)
class Held:
    """A value held against a limit."""

    value: float | None
    direction: str
    limit: float | None
    is_number_of_keys: bool = False

    @property
    def met(self) -> bool:
        if self.value is None or self.limit is None:
            return False
        if self.direction == ">":
            return self.value > self.limit
        return self.value >= self.limit if self.direction == ">=" else self.value <= self.limit

    @property
    def slack(self) -> float | None:
        """How far the value is beyond the limit."""
        if self.value is None or self.limit is None:
            return None
        distance = self.limit - self.value if self.direction == "<=" else self.value - self.limit
        return distance / max(self.value, self.limit) if self.is_number_of_keys else distance


def shares(s: Signature) -> tuple[float | None, float | None, float | None]:
    """What sink, last token and rest contribute, as shares of their sum."""
    sink, last, rest = s["norm_y_0"], s["norm_y_last"], s["norm_rest"]
    total = (sink or 0) + last + rest
    if total == 0:
        return None, None, None
    return (None if sink is None else sink / total), last / total, rest / total


def larger(*numbers: float | None) -> float | None:
    known = [number for number in numbers if number is not None]
    return max(known) if known else None


def times(factor: float, number: float | None) -> float | None:
    return None if number is None else factor * number


def held(s: Signature, t: Thresholds) -> dict[str, Held]:
    """Every condition of every kind."""
    sink, last, rest = shares(s)
    is_between = sink is not None
    total = (s["norm_y_0"] or 0) + s["norm_y_last"] + s["norm_rest"] or None
    without_sink, without_last = (
        None if total is None or s[name] is None else s[name] / total
        for name in ("change_without_sink", "change_without_last")
    )
    found = {
        "last_leads": Held(last, ">=", times(t["last_leads"], larger(sink, rest))),
        "last_high": Held(s["cos_last_p05"], ">=", t["last_high"]),
        "above_smaller": Held(last if is_between else None, ">=", min(sink, rest) if is_between else rest),
        "below_larger": Held(last if is_between else None, "<=", larger(sink, rest)),
        "sink_seen": Held(s["cos_sink_max"], ">=", t["sink_seen"]),
        "sink_falls": Held(times(-1, s["cos_sink_change"]), ">=", t["sink_falls"]),
        "last_rises": Held(s["cos_last_change"], ">=", t["last_rises"]),
        "last_weak": Held(s["cos_last_level"], "<=", t["last_weak"]),
        "sink_comparable": Held(sink, ">=", times(t["sink_comparable"], larger(last, rest))),
        "sink_matters": Held(without_sink, ">", without_last),
        "broad_least": Held(s["effective_contributors"], ">=", t["broad_least"], is_number_of_keys=True),
        "broad_share": Held(s["effective_contributors"], ">=", t["broad_share"] * s["n_keys"], is_number_of_keys=True),
    }
    if s["n_keys"] > 1:
        return found
    return {name: Held(None, one.direction, one.limit) for name, one in found.items()}


def score(kind: str, conditions: Mapping[str, Held]) -> float | None:
    """By how much the narrowest condition is met, in the best way; None if one has no value."""

    def least(names: tuple[str, ...]) -> float | None:
        slacks = [conditions[name].slack for name in names]
        return None if None in slacks else min(slacks)

    rule = RULES[kind]
    always = least(rule[None])
    ways = [least(names) for way, names in rule.items() if way is not None]
    if not ways or always is None:
        return always
    best = larger(*ways)
    return None if best is None else min(always, best)


def is_met(kind: str, conditions: Mapping[str, Held]) -> bool:
    """Whether a head is of a kind."""
    ways = {way: all(conditions[name].met for name in names) for way, names in RULES[kind].items()}
    always = ways.pop(None)
    return always and (not ways or any(ways.values()))


def classified(s: Signature, t: Thresholds) -> dict[str, object]:
    """Label, nearest kind, scores and shares."""
    conditions = held(s, t)
    scores = {kind: score(kind, conditions) for kind in RULES}
    known = {kind: number for kind, number in scores.items() if number is not None}
    mine = [kind for kind in RULES if is_met(kind, conditions)]
    ranked = sorted(known, key=lambda kind: -known[kind])  # stable: ties in the order of the rules
    label = max(mine, key=lambda kind: (known[kind], -list(RULES).index(kind))) if mine else "Other"
    sink, last, rest = shares(s)
    return {
        "label": label,
        "nearest": label if mine else ranked[0] if ranked else None,
        **{f"{kind.lower()}_score": number for kind, number in scores.items()},
        "sink_share": sink,
        "last_share": last,
        "rest_share": rest,
    }
