-- grain:   one row per (study, claim)
-- inputs:  paper_claims, studies, assumption_norms, assumption_similarity, assumption_similarity_model,
--          assumption_weights_model, coverage, elbows, elbows_model, selection_means_model, sink_effect, head_taxonomy
-- meaning: what the paper claims, and whether this model supports it; at the last query of a study, bounds at the κ that
--          serves best, where N > 1 and Δ > 0: elsewhere the theorems claim nothing, or what is so by definition;
--          kinds of heads over those that attend to two keys or more, since one key leaves nothing to select;
--          intermediate N only where some lies between N = 2 and the last
CREATE OR REPLACE VIEW claims AS
WITH norms AS (
    SELECT
        study,
        median(cv_of_mean_norm) AS norms_stable,
        median(cv_within_sequence) AS norms_stable_within_sequence,
        median(lambda_sink) AS sink_compressed
    FROM assumption_norms
    GROUP BY study
),
similarity AS (
    SELECT
        study,
        avg(mae) AS similarity_decays_exponentially,
        avg((preferred = 'exponential')::INTEGER) AS exponential_preferred
    FROM assumption_similarity
    GROUP BY study
),
weights AS (
    SELECT
        study,
        p_sink / p_base AS sink_dominates,
        (variant IN ('tied', 'untied'))::INTEGER AS four_phases,
        r2_log AS phases_fit
    FROM assumption_weights_model
    QUALIFY query = max(query) OVER (PARTITION BY study)
),
bounds AS (
    SELECT
        study,
        premise_share AS premise_holds,
        precision_coverage_premise AS precision_covered,
        recall_coverage_premise AS recall_covered
    FROM coverage
    WHERE serves_best
    QUALIFY query = max(query) OVER (PARTITION BY study)
),
last_n AS (
    SELECT study, query, max(n) AS last_n
    FROM selection_means_model
    GROUP BY study, query
),
elbow AS (
    SELECT
        study,
        elbow_n AS small_n_elbow,
        CASE
            WHEN status <> 'trivial' AND last_n > 3
                THEN coalesce(lowest_n > elbow_n AND lowest_n < last_n, false)::INTEGER
        END AS intermediate_weakest
    FROM elbows_model
    JOIN last_n USING (study, query)
    QUALIFY query = max(query) OVER (PARTITION BY study)
),
sink AS (
    SELECT
        study,
        avg((correlation > 0)::INTEGER) AS sink_raises_recall,
        arg_max(n, (correlation, -n)) FILTER (WHERE correlation IS NOT NULL) AS sink_effect_peaks_early
    FROM sink_effect
    WHERE n > 1
    GROUP BY study, query
    QUALIFY query = max(query) OVER (PARTITION BY study)
),
labelled AS (
    SELECT head_taxonomy.*, layers
    FROM head_taxonomy
    JOIN studies USING (study)
    QUALIFY query = max(query) OVER (PARTITION BY study)
),
kinds AS (
    SELECT
        study,
        avg((label <> 'Other')::INTEGER) AS regimes_fit,
        avg(layer) FILTER (WHERE label = 'Retriever') - avg(layer) FILTER (WHERE label <> 'Retriever') AS distance,
        CASE WHEN min(layer) < max(layer) THEN distance END AS retrievers_first,
        avg((label = 'Reset')::INTEGER) FILTER (WHERE layers > 1 AND layer < layers / 4) AS resets_early,
        avg((label = 'Mixer')::INTEGER) FILTER (WHERE layers > 1 AND layer >= layers / 2) AS mixers_prevail_deep
    FROM labelled
    SEMI JOIN elbows USING (study, query, layer, head)
    GROUP BY study
),
measured AS (
    UNPIVOT (
        SELECT study, COLUMNS(* EXCLUDE study)::DOUBLE
        FROM (
            SELECT study, norms.* EXCLUDE study, similarity.* EXCLUDE study, weights.* EXCLUDE study,
                bounds.* EXCLUDE study, elbow.* EXCLUDE study, sink.* EXCLUDE study, kinds.* EXCLUDE (study, distance)
            FROM studies
            LEFT JOIN norms USING (study)
            LEFT JOIN similarity USING (study)
            LEFT JOIN weights USING (study)
            LEFT JOIN bounds USING (study)
            LEFT JOIN elbow USING (study)
            LEFT JOIN sink USING (study)
            LEFT JOIN kinds USING (study)
        )
    )
    ON * EXCLUDE study INTO NAME claim VALUE value
)
SELECT
    study, -- name of the study
    claim, -- short name of the claim
    figure, -- figure or theorem of the paper that makes it
    statement, -- what the paper says
    measure, -- what is measured here
    value, -- that, for this study; NULL if it cannot be judged
    direction, -- how the value must lie to the threshold: '<=' or '>='
    threshold, -- the end of what supports the claim
    CASE direction WHEN '<=' THEN value <= threshold ELSE value >= threshold END AS supported, -- NULL: cannot be judged
FROM (SELECT study FROM studies)
CROSS JOIN paper_claims
LEFT JOIN measured USING (study, claim)
