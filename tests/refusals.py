"""What a user is told where something cannot be done."""

from collections.abc import Callable
from typing import Any

import pytest

from storage.errors import UserError


def read_refusal(call: Callable[..., object], *given: Any, **named: Any) -> str:
    """The one line in which a call is refused."""
    with pytest.raises(UserError) as caught:
        call(*given, **named)
    said = str(caught.value)
    assert "\n" not in said
    return said
