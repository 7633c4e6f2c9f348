-- grain:   one row per (study, query{{ ", layer, head" if not model }})
-- inputs:  selection_means{{ "_model" if model }}
{% if model %}
-- meaning: the elbow of the whole model, from its mean Precision and Recall
-- rows:    queries_of_two
{% else %}
-- meaning: the elbow of each head: the harmonic mean of mean Precision and mean Recall, falls from N = 2
--          to its lowest value; the elbow is the N at which the curve lies highest above the straight line between
--          these two points over ln N, if by at least a tenth of the fall; N = 1 is trivial
-- rows:    head_queries
{% endif %}
CREATE TABLE elbows{{ "_model" if model }} (
{{ key_columns("study", "query") }}
{% if not model %}
{{ key_columns("layer", "head") }}
{% endif %}
    elbow_n INTEGER, -- N where it begins to fall faster; NULL unless status is 'ok'
    harmonic_mean DOUBLE, -- harmonic mean at elbow_n [0, 1]
    lowest_n INTEGER, -- N of lowest harmonic mean from N = 2 on, the end of the curve that is searched for the elbow
    lowest_harmonic_mean DOUBLE, -- harmonic mean at lowest_n [0, 1]
    status VARCHAR NOT NULL -- 'ok'; no elbow: 'no_bend': falls from N = 2 on without bending downwards; 'no_decline': lowest at N = 2; 'trivial': only N = 1
)
