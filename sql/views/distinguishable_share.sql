-- grain:   one row per (study, query{{ ", layer, head" if not model }}, n)
-- inputs:  selection_means{{ "_model" if model }}
-- meaning: the share N_s / N of the selected keys that can be told apart, being nearer to s_N than every key left out: mean
--          Recall R(r_min, N) under the name of arXiv 2508.17821, of which the abstract and accounts were at hand; as
--          reported there it settles at 0.70-0.85. At N = 1 it is 1 by definition
CREATE OR REPLACE VIEW distinguishable_share{{ "_model" if model }} AS
SELECT
{{ key_names("study", "query") }}
{% if not model %}
{{ key_names("layer", "head") }}
{% endif %}
{{ key_names("n") }}
{% if model %}
{{ key_names("heads") }}
{% endif %}
{{ key_names("sequences") }}
    recall AS share, -- mean share of the selected keys that can be told apart
    recall_ci_low AS ci_low, -- its 95 % bootstrap interval over sequences; NULL for one sequence
    recall_ci_high AS ci_high, -- upper end of that interval
    0.70::DOUBLE AS band_low, -- lower end of what is reported
    0.85::DOUBLE AS band_high, -- upper end
    recall BETWEEN 0.70 AND 0.85 AS within_band, -- whether the share lies within what is reported
FROM selection_means{{ "_model" if model }}
