-- grain:   one row
-- inputs:  thresholds; those not given, or NULL, have their default
-- meaning: the thresholds of the taxonomy of heads (Section 4.2), with their defaults, which stand here alone:
--          last_leads: the last token's share, over the larger of the others' (Retriever); last_high: its cosine at
--          either end of ln N (Retriever); sink_falls, last_rises: changes of the cosines (Mixer); sink_comparable: the
--          sink's share, over the larger of the others', spread_broad: spread, last_weak: the last token's cosine (Reset)
CREATE MACRO taxonomy_thresholds(
    last_leads := NULL,
    last_high := NULL,
    sink_falls := NULL,
    last_rises := NULL,
    sink_comparable := NULL,
    spread_broad := NULL,
    last_weak := NULL
) AS TABLE
SELECT
    coalesce(last_leads, 1)::DOUBLE AS last_leads,
    coalesce(last_high, 0.5)::DOUBLE AS last_high,
    coalesce(sink_falls, 0.1)::DOUBLE AS sink_falls,
    coalesce(last_rises, 0.1)::DOUBLE AS last_rises,
    coalesce(sink_comparable, 0.8)::DOUBLE AS sink_comparable,
    coalesce(spread_broad, 0.8)::DOUBLE AS spread_broad,
    coalesce(last_weak, 0.3)::DOUBLE AS last_weak
