-- grain:   one row per (layer, head)
-- inputs:  head_taxonomy, kinds_by_sequence; $study, $query
-- meaning: the kind of every head on one text, its scores, the inputs of the rules, and every condition compared
SELECT
    head_taxonomy.* EXCLUDE (
        study, query, agreement, sequences, other_share{% for kind in kinds %}, {{ kind.name }}_share{% endfor %}
    ),
    conditions
FROM head_taxonomy
JOIN kinds_by_sequence USING (study, query, layer, head)
WHERE study = $study AND query = $query
ORDER BY layer, head
