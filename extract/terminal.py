"""Text for terminals and logs that may come from anywhere: names of files, models and corpora."""


def harmless(text: str, keep: str = "\n") -> str:
    r"""Text in which control characters, marks of direction and the like show as escapes, such as \x1b.

    Parameters
    ----------
    keep
        Characters that stay as they are although they are not printable; "" for what belongs on one line.
    """
    return "".join(
        character if character.isprintable() or character in keep else character.encode("unicode_escape").decode()
        for character in text
    )
