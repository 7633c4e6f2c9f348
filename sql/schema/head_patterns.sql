-- grain:   one row per (study, text, sequence, layer, head)
-- inputs:  weights of all queries of a sequence but the first, measured during extraction
-- meaning: what a head looks at: mean weight on keys that stand in a known relation to the query q, and what uniform
--          weights over the keys that the queries see would give (…_chance); no rows for a synthetic study
CREATE TABLE head_patterns (
{{ key_columns("study") }}
    text VARCHAR NOT NULL, -- 'corpus', the text of the study, or 'probe', random tokens, half a sequence, twice
{{ key_columns("sequence", "layer", "head") }}
{% for name, meaning in {
    "sink": "mean weight on position 0, over queries whose window does not hide it",
    "self": "on the query's own position",
    "previous": "on position q - 1",
    "local": "on the last eight positions up to q",
    "duplicate": "on earlier positions with the query's token, over queries whose token has occurred before",
    "induction": "on the positions after those, over the same queries",
    "sink_matched": "on position 0, over those of the same queries that see it",
    "sink_unmatched": "on position 0, over those of the other queries that see it",
    "entropy": "mean entropy of the weights of the keys, over ln(q + 1)",
}.items() %}
    {{ name }} DOUBLE, -- {{ meaning }}; NULL without such a query [0, 1]
    {{ name }}_chance DOUBLE{{ "," if not loop.last }} -- the same for uniform weights [0, 1]
{% endfor %}
)
