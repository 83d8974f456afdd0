"""API key and client keys: from settings, or made once and kept."""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path

from attrs import field, frozen

from cormorant.rules.errors import KeyUnusable
from cormorant.rules.events import WebKeyMade
from cormorant.rules.ports import Emit
from cormorant.rules.secrets import Secret
from cormorant.rules.settings.settings import Settings
from storage.engine.data_files import FILE_MODE, create_file, folder_mode, make_folder

__all__ = ["Keys", "kept_client_key", "kept_key", "key_file", "keys_of", "new_key"]

_BYTES = 32
_KEY_LENGTH_MAX = 1_000


@frozen(kw_only=True)
class Keys:
    """Every key that opens something, and the secret that links are signed with."""

    web: Secret
    clients: Mapping[str, Secret] = field(factory=dict)
    _digests: Mapping[str, bytes] = field(init=False, repr=False, eq=False)
    """Of the keys of clients: made once, for every request of an app is compared with all of them."""
    _secrets: dict[str, bytes] = field(init=False, factory=dict, repr=False, eq=False)
    """What is signed with, by purpose: made once, for a page has hundreds of signatures."""

    def opens_api(self, given: str) -> bool:
        """Whether this is the key of the API."""
        return hmac.compare_digest(_digest(given), _digest(self.web.reveal()))

    @_digests.default
    def _digests_of_clients(self) -> Mapping[str, bytes]:
        return {name: _digest(key.reveal()) for name, key in self.clients.items()}

    def client(self, given: str) -> str | None:
        """The client app whose key this is. Every key is compared, so that the time tells nothing."""
        digest = _digest(given)
        found = [name for name, known in self._digests.items() if hmac.compare_digest(digest, known)]
        return found[0] if found else None

    def sign(self, *words: str) -> bytes:
        """What only we can have written beside these words."""
        return self.sign_for("links of the gate", *words)[:16]

    def sign_for(self, purpose: str, *words: str) -> bytes:
        """The same for another purpose: what was signed for one says nothing for any other."""
        secret = self._secrets.get(purpose)
        if secret is None:
            secret = self._secrets[purpose] = hmac.digest(self.web.reveal().encode(), purpose.encode(), "sha256")
        return hmac.digest(secret, "\0".join(words).encode(errors="surrogatepass"), "sha256")


def _digest(key: str) -> bytes:
    # Digests are compared, so that not even the length of a key shows in the time it takes.
    return hashlib.sha256(key.encode(errors="surrogatepass")).digest()


def keys_of(settings: Settings, *, emit: Emit) -> Keys:
    """The keys as they are set; those that are not are made, and kept in the data folder."""
    return Keys(
        web=settings.web.key or _kept(settings, "web", of="the API", emit=emit),
        clients={
            name: client.key or kept_client_key(settings, name, emit=emit) for name, client in settings.clients.items()
        },
    )


def kept_client_key(settings: Settings, name: str, *, emit: Emit) -> Secret:
    """The key of a client that is kept in the data folder; made when it is not there."""
    return _kept(settings, f"client-{name}", of=f"the client {name}", emit=emit)


def key_file(settings: Settings, name: str) -> Path:
    """The file in the data folder in which a key is kept."""
    return Path(settings.data) / "keys" / f"{name}.key"


def _kept(settings: Settings, name: str, *, of: str, emit: Emit) -> Secret:
    return kept_key(key_file(settings, name), of=of, emit=emit, file_mode=settings.data_file_mode)


def new_key() -> str:
    """A key that nobody can guess."""
    return secrets.token_urlsafe(_BYTES)


def kept_key(file: Path, *, of: str, emit: Emit, file_mode: int = FILE_MODE) -> Secret:
    """The key in a file; made when it is not there."""
    try:
        if file.exists():  # then nothing needs to be written, also where nothing can be
            return _read(file)
        make_folder(file.parent, mode=folder_mode(file_mode))
        try:
            made = new_key()
            # A name of its own first: nobody ever finds a file without its key.
            fresh = file.with_name(f".{file.name}.{secrets.token_hex(8)}")
            create_file(fresh, mode=file_mode)
            with fresh.open("w", encoding="ascii") as opened:
                opened.write(f"{made}\n")
                opened.flush()
                os.fsync(opened.fileno())
            try:
                os.link(fresh, file)
            finally:
                fresh.unlink()
        except FileExistsError:
            return _read(file)
    except OSError as error:
        raise KeyUnusable(str(file), error.strerror or type(error).__name__) from error
    emit(WebKeyMade(of=of, file=str(file)))
    return Secret(made)


def _read(file: Path) -> Secret:
    try:
        text = file.read_text(encoding="ascii")[:_KEY_LENGTH_MAX].strip()
    except ValueError:
        raise KeyUnusable(str(file), "it is not text") from None
    if not text:
        raise KeyUnusable(str(file), "it is empty")
    return Secret(text)
