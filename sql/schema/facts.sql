-- grain:   one row per (study, fact)
-- inputs:  measures, measure_values, layer_profiles
-- meaning: what the study found, in sentences, apart from the claims of the paper: measures that could be tested against
--          0, the value if there were nothing to tell; a page tells the first five, and none without a twin
CREATE TABLE facts (
{{ key_columns("study") }}
    fact VARCHAR NOT NULL, -- short name
    subject VARCHAR NOT NULL, -- what it is about; one fact of each subject is told
    measure VARCHAR NOT NULL, -- the measure, as in measures
    sentence VARCHAR, -- the fact in words; NULL if it is not told
{{ interval_columns("value", "the measure", "[-1, 1]") }}
    p DOUBLE NOT NULL, -- p value of the measure against 0, two-sided [0, 1]
    effect DOUBLE, -- distance from 0, and from the twin's value, that is certain: of the nearest end of both intervals, in the direction of the value; at most 0 if there may be none
    place INTEGER, -- place in the order of effects among the facts that are told, by a page only of a study with a twin; NULL if not told: p above 0.05 after correction for all facts, no effect, or one of the same subject is larger [1, inf)
    shown_by VARCHAR NOT NULL -- key of the figure of the report that shows it
)
