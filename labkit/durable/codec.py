"""How payloads are kept: input, instructions, answers, arguments, results, errors and reasons."""

from abc import ABC, abstractmethod
from collections.abc import Sequence

from labkit.durable.errors import RunStoreIntegrityError
from labkit.errors import UsageError

__all__ = ["EncryptedPayloadCodec", "PayloadCodec", "PlaintextPayloadCodec"]


class PayloadCodec(ABC):
    @abstractmethod
    def encode(self, text: str) -> bytes: ...

    @abstractmethod
    def decode(self, data: bytes) -> str:
        """Raises RunStoreIntegrityError for what this codec, with its keys, did not encode."""


class PlaintextPayloadCodec(PayloadCodec):
    """For development: whoever reads the file reads the payloads."""

    PREFIX = b"plaintext:"

    def encode(self, text: str) -> bytes:
        return self.PREFIX + text.encode("utf-8")

    def decode(self, data: bytes) -> str:
        if not data.startswith(self.PREFIX):
            raise RunStoreIntegrityError("the payloads are not plaintext; open with their codec")
        return data.removeprefix(self.PREFIX).decode("utf-8")


class EncryptedPayloadCodec(PayloadCodec):
    """Fernet of the `cryptography` library: encodes under the first key, decodes under any.

    Raises UsageError for a key that is none; `cryptography.fernet.Fernet.generate_key` makes one.
    """

    def __init__(self, keys: Sequence[str | bytes]) -> None:
        try:
            from cryptography.fernet import Fernet, InvalidToken, MultiFernet
        except ImportError:
            raise UsageError("encrypted payloads need: pip install cryptography") from None
        try:
            self._fernet = MultiFernet([Fernet(key) for key in keys])
        except (ValueError, TypeError):
            raise UsageError("each key is 32 bytes in url-safe base64; newest first") from None
        self._invalid = InvalidToken

    def encode(self, text: str) -> bytes:
        return self._fernet.encrypt(text.encode("utf-8"))

    def decode(self, data: bytes) -> str:
        try:
            return self._fernet.decrypt(data).decode("utf-8")
        except (self._invalid, TypeError):
            raise RunStoreIntegrityError("no key here opens the payloads; give theirs") from None
