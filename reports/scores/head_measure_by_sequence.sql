-- grain:   one row per (layer, head, sequence)
-- inputs:  selection, attention_rows, head_signatures, last_query, weighted_level; $study, $measure
-- meaning: one measure of every head, sequence by sequence; no rows for a measure that is defined for all sequences
--          together only
WITH of_selections AS (
    SELECT sequence, layer, head, weighted_level(COLUMNS({{ metrics | list }}), 1 / n) AS '\0'
    FROM selection
    WHERE study = $study AND query = last_query($study)
    GROUP BY sequence, layer, head
),
of_concentration AS (
    SELECT
        sequence, layer, head, COLUMNS({{ concentration | map(attribute="name") | list }})::DOUBLE,
        n_90::DOUBLE AS mass
    FROM attention_rows
    WHERE study = $study AND query = last_query($study)
),
of_signatures AS (
    SELECT sequence, layer, head, COLUMNS('^cos_')
    FROM head_signatures
    WHERE study = $study AND query = last_query($study)
)
{% for relation in ("of_selections", "of_concentration", "of_signatures") %}
SELECT layer, head, sequence, value
FROM {{ relation }} UNPIVOT INCLUDE NULLS (value FOR measure IN (COLUMNS(* EXCLUDE (sequence, layer, head))))
WHERE measure = $measure
{{ "UNION ALL" if not loop.last }}
{% endfor %}
ORDER BY layer, head, sequence
