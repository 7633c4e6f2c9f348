-- grain:   one row per (study, query, layer, head)
-- inputs:  head_signatures, label_heads, summarise_kinds, taxonomy_thresholds
-- meaning: the rows of head_taxonomy under other thresholds, for all studies: FROM taxonomy(last_high := 0.6);
--          thresholds that are not given, or NULL, have the defaults of taxonomy_thresholds
CREATE MACRO taxonomy(
{% for threshold in thresholds %}
    {{ threshold.name }} := NULL{{ "," if not loop.last }}
{% endfor %}
) AS TABLE
WITH thresholds AS (
    FROM taxonomy_thresholds(
{% for threshold in thresholds %}
        {{ threshold.name }} := {{ threshold.name }}{{ "," if not loop.last }}
{% endfor %}
    )
),
labelled AS (
    FROM label_heads(head_signatures, thresholds)
)
FROM summarise_kinds(labelled)
