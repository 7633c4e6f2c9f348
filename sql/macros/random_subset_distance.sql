-- grain:   one number
-- inputs:  columns of attention_rows; N, and the number of keys
-- meaning: root mean square, over all sets of n of the n_keys keys, of the distance between the sum of their weighted
--          value states and that of the others: the value of distance_rest for keys chosen at random, in closed form;
--          in the unit of the norms; NULL unless 1 <= n < n_keys
CREATE MACRO random_subset_distance(norm_output, norm_contributions, n, n_keys) AS
    CASE
        WHEN n >= 1 AND n < n_keys THEN
            sqrt(
                4.0::DOUBLE * n * (n_keys - n) / (n_keys::DOUBLE * (n_keys - 1))
                * greatest(norm_contributions::DOUBLE - norm_output::DOUBLE / sqrt(n_keys), 0)
                * (norm_contributions::DOUBLE + norm_output::DOUBLE / sqrt(n_keys))
                + ((1 - 2.0::DOUBLE * n / n_keys) * norm_output::DOUBLE) ** 2
            )
    END
