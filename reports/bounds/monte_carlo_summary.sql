-- grain:   one row per (family, kappa, scale)
-- inputs:  monte_carlo; $study
-- meaning: results for the bounds in expectation over the grid, at the points that have bounds; _points: grid points
--          with that bound (N = 1 has no printed one); _holds: share of those at which it holds within three standard
--          errors; _meeting: the same for points that meet the family's assumptions; _share: share of single draws on
--          the right side of the bound; worst_: smallest gap (negative: the inequality fails by this amount)
SELECT
    family, kappa, scale,
    count(*) AS points,
    count(*) FILTER (WHERE meets_assumptions) AS points_meeting,
    avg(premise_share) AS premise_share,
{% for inequality in ("precision", "recall", "precision_upper", "recall_upper") %}
    count({{ inequality }}_holds) AS {{ inequality }}_points,
    avg({{ inequality }}_holds::INTEGER) AS {{ inequality }}_holds,
    count({{ inequality }}_holds) FILTER (WHERE meets_assumptions) AS {{ inequality }}_points_meeting,
    avg({{ inequality }}_holds::INTEGER) FILTER (WHERE meets_assumptions) AS {{ inequality }}_holds_meeting,
    min({{ inequality }}_gap) AS worst_{{ inequality }}_gap,
{% endfor %}
    avg(COLUMNS('(lower|upper)_share'))
FROM monte_carlo
WHERE study = $study
GROUP BY family, kappa, scale
ORDER BY family, scale, kappa
