-- grain:   one row per claim
-- inputs:  none
-- meaning: what the paper claims, and what must be measured for a model to support it
CREATE OR REPLACE VIEW paper_claims AS
SELECT
    claim, -- short name of the claim
    figure, -- figure or theorem of the paper that makes it
    statement, -- what the paper says
    measure, -- what is measured here
    direction, -- how the measure must lie to the threshold: '<=' or '>='
    threshold::DOUBLE AS threshold, -- the end of what supports the claim
FROM (
    VALUES
        ('norms_stable', 'Figure 2 right', 'Norms of value states hardly vary: a coefficient of variation of 0.02-0.03',
            'median over KV heads of the coefficient of variation of the mean norm over sequences', '<=', 0.05),
        ('norms_stable_within_sequence', 'Figure 2 right', 'Norms of value states are effectively constant',
            'median over KV heads of the coefficient of variation of norms within one sequence', '<=', 0.05),
        ('sink_compressed', 'Figure 2 left', 'The value state of the sink is much shorter than the others',
            'median over KV heads of λ, the norm of the sink''s value state over C, the mean of the others', '<=', 0.5),
        ('similarity_decays_exponentially', 'Figure 3', 'exp(-β k) fits the mean cosine with an error of 9 % on average',
            'mean over KV heads of the mean absolute error of exp(-β k)', '<=', 0.1),
        ('exponential_preferred', 'Figure 3', 'Similarity decays to 0, with no floor',
            'share of KV heads that exp(-β k) fits better than a decay to a floor', '>=', 0.5),
        ('sink_dominates', 'Figure 4', 'The sink has a hundred times the weight of a key on the plateau',
            'weight of the sink over that of a plateau key, p_sink / p_base, in the fit to the model''s mean weights', '>=', 100),
        ('four_phases', 'Figure 4', 'Weights have four phases: sink, plateau, oscillation, growth',
            'the variant that fits the model''s mean weights best oscillates (1 if so)', '>=', 1),
        ('phases_fit', 'Figure 4', 'The four phases describe the weights by position',
            'R² on a log scale of the fit to the model''s mean weights', '>=', 0.9),
        ('premise_holds', 'Theorems 1-2', 'Selected keys have a positive margin Δ over those left out',
            'share of selections of N > 1 with Δ > 0', '>=', 0.5),
        ('precision_covered', 'Figure 5 left', 'Mean Precision lies within its bounds',
            'share within, of the (head, N) with N > 1 and Δ > 0 in most sequences', '>=', 0.95),
        ('recall_covered', 'Figure 5 right', 'Mean Recall lies within its bounds',
            'share within, of the (head, N) with N > 1 and Δ > 0 in most sequences', '>=', 0.95),
        ('small_n_elbow', 'Figure 5', 'Non-trivial separability is strongest at N = 1 to 4',
            'N of the elbow of the model''s mean curves', '<=', 4),
        ('intermediate_weakest', 'Figure 5', 'Separability is weakest at intermediate N',
            'the model''s separability is lowest after the elbow and before the last N (1 if so)', '>=', 1),
        ('sink_raises_recall', 'Figure 6', 'Recall and the sink''s similarity to the others rise together over heads',
            'share of the N > 1 at which corr(R(r_min, N), ρ_0) is above 0', '>=', 0.9),
        ('sink_effect_peaks_early', 'Figure 6', 'corr(R, ρ_0) over heads is largest at small N: about 3, in LLaMA 6',
            'N > 1 of the largest corr(R(r_min, N), ρ_0)', '<=', 8),
        ('regimes_fit', 'Figure 7', 'Heads are of three kinds: Retriever, Mixer, Reset',
            'share of heads with two keys or more that meet the rule of one kind', '>=', 0.8),
        ('retrievers_first', 'Figure 8', 'Retriever heads are most visible in the first two layers',
            'mean layer of Retriever heads minus mean layer of the others', '<=', 0),
        ('resets_early', 'Figure 8', 'Reset heads prevail in the first few layers',
            'share of Reset heads in the first quarter of the layers', '>=', 0.5),
        ('mixers_prevail_deep', 'Figure 8', 'From the lower-middle layers on, Mixer heads are predominant',
            'share of Mixer heads in the upper half of the layers', '>=', 0.5)
) AS stated (claim, figure, statement, measure, direction, threshold)
