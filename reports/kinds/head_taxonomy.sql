-- grain:   one row per (layer, head)
-- inputs:  taxonomy; $study, $query{% for threshold in thresholds %}, ${{ threshold.name }}{% endfor %}

-- meaning: the kind of every head under other thresholds; a threshold that is NULL has its default, see the query
--          taxonomy_thresholds
SELECT * EXCLUDE (study, query)
FROM taxonomy(
{% for threshold in thresholds %}
    {{ threshold.name }} := ${{ threshold.name }}{{ "," if not loop.last }}
{% endfor %}
)
WHERE study = $study AND query = $query
ORDER BY layer, head
