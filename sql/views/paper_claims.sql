-- grain:   one row per claim
-- inputs:  none
-- meaning: the paper's claims, the measure that tests each, and the requirements for a study to test it. Means over N
--          give every part of ln N the same weight and begin at N = 2; a sink is a position 0 that gets at least ten
--          times the uniform share; bounds are informative if they exclude at least a tenth of the possible range
CREATE OR REPLACE VIEW paper_claims AS
SELECT
    claim, -- short name of the claim
    figure, -- figure, table or section of the paper that makes it
    statement, -- what the paper says
    measure, -- what is measured here
    direction, -- comparison that supports the claim, of the measure with the threshold: '<=', '<', '>=' or '>'
    threshold::DOUBLE AS threshold, -- the value that the measure is compared with
    premise, -- requirement for a study to test the claim, besides two sequences and two KV groups; NULL: none
    least_rows, -- smallest number of rows that the measure must be computed from
    rows_of, -- what these rows are
FROM (
    VALUES
        ('norms_stable', 'Figure 2 right', 'Norms of value states hardly vary: a coefficient of variation of 0.02-0.03',
            'median over KV heads of the coefficient of variation over positions of the expected norm', '<=', 0.05,
            NULL, 2, 'KV heads'),
        ('norms_stable_within_sequence', 'Figure 2 right', 'Norms of value states are effectively constant',
            'median over KV heads of the coefficient of variation of norms within one sequence', '<=', 0.05,
            NULL, 2, 'KV heads'),
        ('sink_compressed', 'Figure 2 left', 'The value state of the sink is much shorter than the others',
            'median over KV heads with a sink of the norm of the sink''s value state over the median of the others',
            '<=', 0.5, 'KV heads one of whose heads has a sink', 4, 'KV heads with a sink'),
        ('similarity_decays_exponentially', 'Figure 3', 'exp(-β k) fits the mean cosine with an error of 9 % on average',
            'mean over KV heads of the mean absolute error of exp(-β k)', '<=', 0.1,
            'neighbours with a mean cosine of 0.1 or more: exp(-β k) fits a curve of zeros', 4, 'KV heads'),
        ('exponential_preferred', 'Figure 3', 'Similarity decays to 0, with no floor',
            'median over KV heads of how much the BIC of exp(-β k) is below that of a decay to a floor, for each '
            'independent distance', '>=', 0,
            'neighbours with a mean cosine of 0.1 or more: exp(-β k) fits a curve of zeros', 4, 'KV heads'),
        ('sink_dominates', 'Figure 4', 'The sink has a hundred times the weight of a key on the plateau',
            'weight of the sink over that of a plateau key, p_sink / p_base, in the fit to the model''s mean weights',
            '>=', 100, 'a fit of the model''s mean weights', 2, 'heads'),
        ('four_phases', 'Figure 4', 'Weights have four phases: sink, plateau, oscillation, growth',
            'by how much the BIC of the best fit with an oscillation is below that of the best without, for each '
            'independent position', '>', 0,
            'a fit of the model''s mean weights', 2, 'heads'),
        ('phases_fit', 'Figure 4', 'The four phases describe the weights by position',
            'R² on a log scale of the fit to the model''s mean weights', '>=', 0.9,
            'a fit of the model''s mean weights', 2, 'heads'),
        ('premise_holds', 'Theorems 1-2', 'Selected keys have a positive margin Δ over those left out',
            'mean over heads and N of the share of sequences with Δ > 0', '>=', 0.5,
            NULL, 2, 'heads'),
        ('precision_covered', 'Theorem 1', 'Mean Precision of a head lies within its bounds',
            'share within, at the κ with the largest', '>=', 0.95,
            'Δ > 0 in most sequences, and bounds that say something', 100, '(head, N)'),
        ('recall_covered', 'Theorem 2', 'Mean Recall of a head lies within its bounds',
            'share within, at the κ with the largest', '>=', 0.95,
            'Δ > 0 in most sequences, and bounds that say something', 100, '(head, N)'),
        ('precision_enveloped', 'Figure 5 left', 'The model''s mean Precision lies within the mean bounds',
            'share of the N at which it does, at the κ with the largest', '>=', 0.95,
            'mean bounds that say something', 10, 'N'),
        ('recall_enveloped', 'Figure 5 right', 'The model''s mean Recall lies within the mean bounds',
            'share of the N at which it does, at the κ with the largest', '>=', 0.95,
            'mean bounds that say something', 10, 'N'),
        ('upper_tight', 'Figure 5', 'Upper bounds are tight',
            'mean over N of the distance of the model''s mean Precision and Recall to their mean upper bound, at the κ '
            'with the least', '<=', 0.1, NULL, 10, 'N'),
        ('lower_conservative', 'Figure 5', 'Lower bounds are conservative: farther from the means than upper ones',
            'mean over N of the distance to the lower bound less that to the upper, at the κ with the largest', '>', 0,
            'mean bounds that say something', 10, 'N'),
        ('small_n_elbow', 'Figure 5', 'Non-trivial separability is strongest at small N, up to an elbow at N = 1 to 4',
            'N of the elbow of the model''s mean curves', '<=', 4, 'a curve with an elbow', 2, 'heads'),
        ('intermediate_weakest', 'Figure 5', 'Separability is weakest at intermediate N',
            'mean of the model''s curve in the first or the last third of ln N, the lower, less that in the middle '
            'third; of specificity or of Recall, the lesser', '>', 0, 'an N in every third', 2, 'heads'),
        ('distinguishable_share_settles', 'arXiv 2508.17821',
            'Of the selected keys, a share that settles at 0.70-0.85 can be told apart, being nearer than all others',
            'distance from 0.775 of the model''s mean Recall in the middle and in the last third of ln N, the greater',
            '<=', 0.075, 'an N in every third', 2, 'heads'),
        ('sink_raises_recall', 'Figure 6', 'Recall and the sink''s similarity to the others rise together over heads',
            'share of the N at which corr(R(r_min, N), ρ_0) over heads is above 0', '>=', 0.9,
            'a sink in half of the heads', 6, 'heads'),
        ('sink_effect_peaks_early', 'Figure 6', 'corr(R, ρ_0) over heads is largest at small N: about 3, in LLaMA 6',
            'N of the largest corr(R(r_min, N), ρ_0)', '<=', 8, 'a sink in half of the heads', 6, 'heads'),
        ('sink_predicts_recall', 'Section 4.1', 'ρ_0 is strongly correlated with the average Recall across N',
            'correlation over heads of ρ_0 and the mean over N of Recall', '>=', 0.3,
            'a sink in half of the heads', 6, 'heads'),
        ('sink_predicts_precision', 'Section 4.1', 'The sink improves Precision when it aligns with the others',
            'correlation over heads of ρ_0 and the mean over N of Precision above its floor N/n', '>', 0,
            'a sink in half of the heads', 6, 'heads'),
        ('sink_widens_r_min', 'eq. 33', 'r_min is smaller where ρ_0 is negative, which lowers Recall',
            'correlation over heads of ρ_0 and the mean over N of r_min over the norm of s_N', '>', 0,
            'a sink in half of the heads', 6, 'heads'),
        ('regimes_fit', 'Figure 7', 'Heads are of three kinds: Retriever, Mixer, Reset',
            'share of heads that meet the rule of none of them', '<=', 0.2,
            'heads of two of the kinds, or most of none', 6, 'heads'),
        ('retrievers_first', 'Figure 8', 'Retriever heads are most visible in the first two layers',
            'mean layer of Retriever heads less mean layer of the others', '<', 0,
            'two Retrievers and two others', 2, 'Retrievers'),
        ('resets_early', 'Figure 8', 'Reset heads prevail in the first few layers',
            'share of Reset heads in the first quarter of the layers', '>=', 0.5, 'two layers', 4, 'heads there'),
        ('mixers_prevail_deep', 'Figure 8', 'From the lower-middle layers on, Mixer heads are predominant',
            'share of Mixer heads in the upper half of the layers', '>=', 0.5, 'two layers', 4, 'heads there'),
        ('kinds_in_order', 'Section 4.2', 'With depth, heads go from Retriever to Reset to Mixer',
            'the lesser of the two steps in mean layer, from Retriever to Reset and from Reset to Mixer', '>', 0,
            'two heads of each kind', 6, 'heads of the three kinds'),
        ('margin_positive_early', 'Table 2', 'In regime II, with the top of the tail selected, Δ > 0',
            'mean over heads and sequences of the share of the regime''s N with Δ > 0', '>=', 0.5,
            'heads with a regime II', 2, 'heads with the regime'),
        ('margin_lost_in_valleys', 'Table 2', 'In regime IV, once valleys and plateau are selected, often Δ <= 0',
            'mean over heads and sequences of the share of the regime''s N with Δ <= 0', '>=', 0.5,
            'heads with a regime IV', 2, 'heads with the regime'),
        ('selection_sharpens', 'Abstract', 'Top-N selection sharpens separability',
            'mean over heads and N of a measure less that of N keys at random; of specificity, Recall and AUC, the least',
            '>', 0, 'nulls (analysis.nulls)', 2, 'heads'),
        ('values_sharpen', 'Abstract', 'Value states sharpen what the weights separate',
            'mean over heads and N of a measure less that of shuffled value states; of specificity, Recall and AUC, the '
            'least', '>', 0, 'nulls (analysis.nulls)', 2, 'heads'),
        ('recall_predicts_loss', 'Abstract',
            'Geometry explains what heads do: Recall correlates with the loss that removing a head costs',
            'size of the rank correlation over heads of the mean over N of Recall and the loss that removing one costs',
            '>=', 0.3, 'effects (analysis.effects), and a head worth 0.01 nats', 6, 'heads'),
        ('elbow_budgets_gain', 'Abstract', 'Geometry informs sparse attention: N by elbow loses less than one N for all',
            'mean over budgets of the loss with N in proportion to each head''s elbow, less that with the same N for all',
            '<', 0, 'effects (analysis.effects), and a policy that costs 0.01 nats', 4, '(sequence, budget)'),
        ('recall_budgets_gain', 'Abstract', 'Geometry informs sparse attention: N by Recall loses less than one N for all',
            'mean over budgets of the loss with the N from which each head has the same Recall, less that with the same N '
            'for all', '<', 0, 'effects (analysis.effects), and a policy that costs 0.01 nats', 4, '(sequence, budget)'),
        ('elbow_budgets_beat_random', 'Abstract', 'N by elbow loses less than the same numbers given to heads at random',
            'mean over budgets of the loss with N by elbow, less that with these N in random order',
            '<', 0, 'effects (analysis.effects), and a policy that costs 0.01 nats', 4, '(sequence, budget)'),
        ('elbow_chooses_full_heads', 'Abstract', 'The elbow tells which heads need all keys',
            'mean over budgets of the loss with all keys for the heads of the largest elbows, less that for random heads',
            '<', 0, 'effects (analysis.effects), and a policy that costs 0.01 nats', 4, '(sequence, budget)')
) AS stated (claim, figure, statement, measure, direction, threshold, premise, least_rows, rows_of)
