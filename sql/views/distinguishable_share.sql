-- grain:   one row per (study, query{{ ", layer, head" if not model }}, n)
-- inputs:  selection_means{{ "_model" if model }}
-- meaning: the share N_s / N of the selected keys that are distinguishable, that is nearer to s_N than every key left
--          out: mean Recall R(r_min, N) under the name that arXiv 2508.17821 gives it (only its abstract and secondary
--          accounts were available); the value reported there settles at 0.70-0.85. At N = 1 it is 1 by definition
CREATE OR REPLACE VIEW distinguishable_share{{ "_model" if model }} AS
SELECT
{{ key_names("study", "query", "layer", "head", "n", of_model=model) }}
{% if model %}
{{ key_names("heads") }}
{% endif %}
{{ key_names("sequences") }}
    recall AS share, -- mean share of the selected keys that are distinguishable
    recall_low AS low, -- lower end of its 95 % interval over sequences; NULL for one sequence
    recall_high AS high, -- upper end of that interval
    0.70::DOUBLE AS band_low, -- lower end of the reported range
    0.85::DOUBLE AS band_high, -- upper end of that range
    recall BETWEEN 0.70 AND 0.85 AS within_band, -- whether the share lies within the reported range
FROM selection_means{{ "_model" if model }}
