-- grain:   one row per (family, quantity, layer, head)
-- inputs:  family_members, family_trends, onsets
-- meaning: Which heads change their kind or what they look at between the first and the last member of a family? Of both
--          members the whole interval lies on one side of the threshold
WITH ends AS (
    SELECT family, arg_min(study, member) AS first_study, arg_max(study, member) AS last_study
    FROM family_members
    WHERE landed
    GROUP BY family
),
thresholds AS (SELECT DISTINCT family, quantity, threshold FROM onsets),
decided AS (
    SELECT family, study, quantity, layer, head, value, value_low > threshold AS has
    FROM family_trends
    JOIN thresholds USING (family, quantity)
    WHERE value_low > threshold OR value_high <= threshold
)
SELECT
    family, quantity, layer, head, first_study,
    was.value AS first_value,
    last_study,
    now.value AS last_value,
    CASE WHEN now.has THEN 'gained' ELSE 'lost' END AS change
FROM ends
JOIN decided AS was USING (family)
JOIN decided AS now USING (family, quantity, layer, head)
WHERE
    was.study = first_study AND now.study = last_study AND was.has <> now.has
    AND (quantity LIKE 'pattern_%' OR quantity LIKE '%_share')
ORDER BY family, quantity, layer, head
