-- inputs:  head_signatures, label_heads, taxonomy_thresholds
-- meaning: the kind of every head in every sequence by the default thresholds
WITH thresholds AS (FROM taxonomy_thresholds()),
signatures AS (FROM head_signatures WHERE study = $study)
SELECT study, sequence, query, layer, head, label, nearest, {% for kind in kinds %}{{ kind.name }}_score, {% endfor %}conditions
FROM label_heads(signatures, thresholds)
