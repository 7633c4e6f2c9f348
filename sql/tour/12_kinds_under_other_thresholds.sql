-- grain:   one row per (label, strict_label)
-- inputs:  head_taxonomy, taxonomy, last_query; $study
-- meaning: How many heads change their kind if a Retriever's cosine must be 0.8, and a Mixer's must change by 0.3?
FROM head_taxonomy
JOIN taxonomy(last_high := 0.8, sink_falls := 0.3, last_rises := 0.3) AS strict USING (study, query, layer, head)
SELECT head_taxonomy.label, strict.label AS strict_label, count(*) AS heads
WHERE study = $study AND query = last_query($study)
GROUP BY ALL
ORDER BY ALL
