-- grain:   one row
-- inputs:  thresholds; those not given, or NULL, have their default
-- meaning: the thresholds of the taxonomy of heads (Section 4.2), with their defaults, for which the paper gives no
--          numbers: {{ thresholds | join("; ") }}
CREATE MACRO taxonomy_thresholds(
{% for threshold in thresholds %}
    {{ threshold.name }} := NULL{{ "," if not loop.last }}
{% endfor %}
) AS TABLE
SELECT
{% for threshold in thresholds %}
    coalesce({{ threshold.name }}, {{ threshold.default }})::DOUBLE AS {{ threshold.name }}{{ "," if not loop.last }}
{% endfor %}
