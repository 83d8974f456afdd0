"""What of a source must no app see? Its key and its proxy, however they are spelled; looked for in every text we send."""

from __future__ import annotations

from attrs import frozen

from cormorant.rules.redaction import HIDDEN, spellings
from cormorant.rules.secrets import SECRET_LENGTH_MIN, Secret

__all__ = ["NO_SCREEN", "SecretFilter", "screen_of"]


@frozen
class SecretFilter:
    """Every spelling of the secrets of one source, the longest first: a shorter one may be a part of it."""

    texts: tuple[str, ...]

    def shows(self, text: str) -> bool:
        """Whether a secret is in a text."""
        return any(each in text for each in self.texts)

    def hidden(self, text: str) -> str:
        """The text without secrets."""
        for each in self.texts:
            if each in text:
                text = text.replace(each, HIDDEN)
        return text


NO_SCREEN = SecretFilter(())


def screen_of(key: Secret, proxy: Secret) -> SecretFilter:
    """Hides the key and the proxy of a source."""
    found = [secret.reveal() for secret in spellings([key, proxy])]
    return SecretFilter(
        tuple(sorted((text for text in found if len(text) >= SECRET_LENGTH_MIN), key=len, reverse=True))
    )
