-- grain:   one row per study that is not described exactly once
-- inputs:  studies
-- meaning: the study has one description
SELECT $study AS study, count(*) AS found
FROM studies
WHERE study = $study
HAVING count(*) <> 1
