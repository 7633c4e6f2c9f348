-- grain:   one row per (study, sequence, position)
-- inputs:  tokens of the tensor store, tokenizer
-- meaning: the text that was read; token is untrusted text and must be escaped wherever it is shown
-- rows:    sequences * positions
CREATE TABLE tokens (
{{ key_columns("study", "sequence") }}
    position INTEGER NOT NULL, -- position in the sequence; 0 is the sink
    token_id INTEGER NOT NULL, -- id in the model's vocabulary
    token VARCHAR NOT NULL -- the token as text; a character of several tokens stands at the first, and the others are empty
)
