"""Untrusted text for terminals and logs, such as the names of files, models and corpora."""


def escape_unprintable(text: str, keep: str = "\n") -> str:
    r"""Replace control characters, direction marks and other unprintable characters by escapes such as \x1b.

    Parameters
    ----------
    keep
        Unprintable characters that are not replaced; "" for text that must stay on one line.
    """
    return "".join(
        character if character.isprintable() or character in keep else character.encode("unicode_escape").decode()
        for character in text
    )
