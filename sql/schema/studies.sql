-- grain:   one row per (study)
-- inputs:  provenance of the tensor store and of the metrics store
-- meaning: what was run: model, text, settings, hashes and library versions
-- rows:    1
CREATE TABLE studies (
{{ key_columns("study") }}
    model VARCHAR NOT NULL, -- hub id, directory or file of the model, or 'embedded'
    model_name VARCHAR NOT NULL, -- name of the model in the metadata of a GGUF file; otherwise the same as model
    architecture VARCHAR, -- class of the model in transformers; NULL: no model
    weights VARCHAR, -- 'trained', 'random', or the type that a GGUF file stores them in and what became of them, such as 'Q4_1, dequantised to float32'; NULL: no model
    revision VARCHAR, -- commit of the hub model, or SHA-256 over the files of a local one
    corpus VARCHAR NOT NULL, -- hub id or file of the text, or the name of a built-in one
    corpus_name VARCHAR NOT NULL, -- what a built-in text is, such as 'the manual of Python'; otherwise the same as corpus
    context_length INTEGER NOT NULL, -- tokens in each sequence
    sequences INTEGER NOT NULL, -- number of sequences
    bos VARCHAR, -- what every sequence was asked to begin with: 'auto', 'always' or 'never'; NULL: no text
    text_start VARCHAR, -- special tokens with which every sequence begins, such as '<s>'; '': none; NULL: no text
    special_tokens INTEGER, -- special tokens that the tokenizer made of their spelling in the documents read; NULL: no text
    lost_characters INTEGER, -- characters of the documents read for which the tokenizer has no token; NULL: no text, or not counted
    layers INTEGER NOT NULL, -- number of layers of the model; those with softmax attention have rows in heads
    heads INTEGER NOT NULL, -- query heads in each layer; the largest number if layers differ
    kv_heads INTEGER NOT NULL, -- KV heads in each layer; the largest number if layers differ
    head_dim INTEGER NOT NULL, -- length of one value state; the largest if layers differ
    dtype VARCHAR NOT NULL, -- type of the model's weights in the forward pass
    device VARCHAR NOT NULL, -- device of the forward pass
    twin VARCHAR, -- study of random weights in the same architecture that this one is compared with; NULL: none
    provenance JSON NOT NULL, -- everything known of the origin: settings, hashes and versions, and under the key metrics those of the metrics
    format_version INTEGER NOT NULL -- version of the layout of these tables; 1 is the first
)
