-- grain:   one row per (study, query{{ ", layer, head" if not model }})
-- inputs:  selection_means{{ "_model" if model }}, elbows_of
{% if model %}
-- meaning: the elbow of the whole model, from its mean Precision and Recall
{% else %}
-- meaning: the elbow of each head: the harmonic mean of mean Precision and mean Recall, falls from N = 2
--          to its lowest value; the elbow is the N at which the curve lies highest above the straight line between
--          these two points over ln N, if by at least a tenth of the fall; N = 1 is trivial
{% endif %}
CREATE OR REPLACE VIEW elbows{{ "_model" if model }} AS
WITH curves AS (
    SELECT
        {'study': study, 'query': query} AS query, -- one curve for each
        {{ "0 AS layer, 0 AS head" if model else "layer, head" }}, n, precision, recall
    FROM selection_means{{ "_model" if model }}
)
SELECT
    elbow.query.study AS study, -- name of the study
    elbow.query.query AS query, -- position of the query in its sequence
{% if not model %}
{{ key_names("layer", "head") }}
{% endif %}
    elbow_n, -- N where it begins to fall faster; NULL unless status is 'ok'
    harmonic_mean::DOUBLE AS harmonic_mean, -- harmonic mean at elbow_n
    lowest_n, -- N of lowest harmonic mean from N = 2 on, the end of the curve that is searched for the elbow
    lowest_harmonic_mean::DOUBLE AS lowest_harmonic_mean, -- harmonic mean at lowest_n
    status, -- 'ok'; no elbow: 'no_bend': falls from N = 2 on without bending downwards; 'no_decline': lowest at N = 2; 'trivial': only N = 1
FROM elbows_of(curves) AS elbow
