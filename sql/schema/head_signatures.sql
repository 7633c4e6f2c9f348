-- grain:   one row per (study, sequence, query, layer, head)
-- inputs:  attention_rows, selection_counts, concentration
-- meaning: what the taxonomy of heads looks at, sequence by sequence: what sink, last token and rest contribute, what the
--          output is without either, how the cosines of s_N run over ln N, every N weighing 1/N so that all of ln N
--          counts alike, and over how many keys contributions are spread; cosines are NULL for a head that attends to
--          one key
CREATE TABLE head_signatures (
{{ key_columns("study", "sequence", "query", "layer", "head") }}
{{ signature_columns() }}
)
