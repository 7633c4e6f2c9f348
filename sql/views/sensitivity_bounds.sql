-- grain:   one row per (study, query{{ ", layer, head" if not model }}, temperature)
-- inputs:  sensitivity, jacobian_bounds
-- meaning: the spectral norm of the softmax Jacobian over {{ "heads and " if model }}sequences, compared with its
--          bounds: which of them hold, how often, and how close the norm comes to the one that always holds; a norm
--          that exceeds a bound by rounding only (1e-15 of it) counts as equal
CREATE OR REPLACE VIEW sensitivity_bounds{{ "_model" if model }} AS
WITH held AS (
    SELECT *, jacobian_bounds(temperature) AS bounds, spectral_norm / (1 + 1e-15) AS least
    FROM sensitivity
)
SELECT
{{ key_names("study", "query", "layer", "head", "temperature", of_model=model) }}
    count(*) AS rows, -- number of {{ "(sequence, head)" if model else "sequences" }}
    avg(spectral_norm) AS spectral_norm, -- mean spectral norm
    quantile_cont(spectral_norm, 0.1) AS norm_p10, -- 10 % quantile of the norms
    quantile_cont(spectral_norm, 0.9) AS norm_p90, -- 90 % quantile
    max(spectral_norm) AS norm_max, -- largest norm
    any_value(bounds.quarter) AS quarter, -- 1/(4T)
    any_value(bounds.half) AS half, -- 1/(2T)
    any_value(bounds.reported) AS reported, -- the smaller of 1/(4T) and the square root of 2
    avg((least <= bounds.quarter)::INTEGER) AS quarter_holds, -- share of the rows whose norm is at most 1/(4T)
    avg((least <= bounds.half)::INTEGER) AS half_holds, -- share of the rows whose norm is at most 1/(2T); always 1
    avg((least <= bounds.root)::INTEGER) AS root_holds, -- share of the rows whose norm is at most the square root of 2
    avg((least <= bounds.reported)::INTEGER) AS reported_holds, -- share of the rows whose norm is at most the bound as reported
    avg(spectral_norm / bounds.half) AS closeness, -- mean norm divided by 1/(2T)
    max(spectral_norm / bounds.half) AS closest, -- largest norm divided by 1/(2T)
FROM held
GROUP BY study, query{{ ", layer, head" if not model }}, temperature
