"""Which sequences are read at once."""

import pytest

from storage.zarr.layers import split_sequences


@pytest.mark.parametrize("most", [1, 10, 30, 39, 40, 1000])
def test_parts_hold_each_sequence_once_and_as_many_as_they_may(most: int) -> None:
    sequences, of_one = 4, 10
    parts = split_sequences(sequences, of_one, most)
    assert [sequence for part in parts for sequence in range(part.start, part.stop)] == list(range(sequences))
    lengths = [part.stop - part.start for part in parts]
    assert all(length * of_one <= max(most, of_one) for length in lengths)
    assert all((length + 1) * of_one > most for length in lengths[:-1])
