"""An HTTP endpoint that takes and answers JSON. Failures that may pass are retried; others are reported at once."""

from __future__ import annotations

import random
import threading
import time
import weakref
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from recollect.errors import EmbedderError, FailedError, UsageError

if TYPE_CHECKING:
    import httpx2

OPENAI_URL = "https://api.openai.com/v1"

TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504})
"""Statuses after which a request is tried again."""

FIRST_WAIT_S = 0.25
LONGEST_WAIT_S = 30.0
"""No wait is longer, whatever the server asks for, because a user waits for the answer."""

EXCERPT = 200
"""Characters of a server's answer that an error message quotes."""

NOT_OPENAI = "check that base_url is that of an OpenAI-compatible API, usually ending in /v1"

HINTS = {
    401: "check the API key",
    403: "check the API key",
    404: "check base_url and the model's name",
    **dict.fromkeys(TRANSIENT, "the server may need time; try again later"),
}


class Endpoint:
    """A base address and its API key. The key is sent in one header, to this host only, and is never shown."""

    def __init__(
        self,
        base_url: str,
        api_key: str | None,
        *,
        timeout: float,
        retries: int,
        failure: type[FailedError] = EmbedderError,
    ) -> None:
        if urlsplit(base_url).scheme not in ("http", "https") or not urlsplit(base_url).hostname:
            raise UsageError(f"the base URL {base_url!r} is not an http or https address", hint="http://HOST:PORT/v1")
        if timeout <= 0 or retries < 0:
            raise UsageError("timeout must be above 0 and retries at least 0")
        self._base_url = base_url.rstrip("/")
        self._key = api_key
        self._timeout = timeout
        self._tries = retries + 1
        self._failure = failure
        self._lock = threading.Lock()
        self._client: httpx2.Client | None = None

    @property
    def host(self) -> str:
        """Host and port, without a password that an address may contain."""
        parts = urlsplit(self._base_url)
        return f"{parts.hostname}:{parts.port}" if parts.port else str(parts.hostname)

    def post(self, path: str, body: dict[str, Any]) -> Any:
        """The JSON of the answer. Raises the endpoint's `failure` for an error status or no answer."""
        import httpx2

        for attempt in range(1, self._tries + 1):
            last = attempt == self._tries
            try:
                response = self._http().post(self._base_url + path, json=body)
            except httpx2.TransportError as error:
                if last:
                    raise self._unreachable(error) from error
                time.sleep(_wait(attempt))
                continue
            except httpx2.HTTPError as error:
                raise self._unreachable(error) from error
            if response.status_code not in TRANSIENT or last:
                return self._read(response)
            time.sleep(_wait(attempt, response.headers.get("retry-after")))
        return None

    def _http(self) -> httpx2.Client:
        """The client, made at first use. It follows no redirect: key and text are only for this host."""
        import httpx2

        with self._lock:
            if self._client is None:
                headers = {"Authorization": f"Bearer {self._key}"} if self._key else {}
                self._client = httpx2.Client(headers=headers, timeout=self._timeout, follow_redirects=False)
                weakref.finalize(self, self._client.close)  # open connections are closed with the endpoint
            return self._client

    def _read(self, response: httpx2.Response) -> Any:
        status = f"{self.host} answered {response.status_code}"
        if response.is_redirect:
            target = urlsplit(response.headers.get("location", "")).hostname or "another path"
            raise self._failure(
                f"{status}, a redirect to {target}, which is not followed",
                hint="set base_url to that address if it is the right one",
            )
        if not response.is_success:
            hint = HINTS.get(response.status_code, "the server's own message says why")
            raise self._failure(f"{status}: {self._excerpt(response)}", hint=hint)
        try:
            return response.json()
        except ValueError as error:
            raise self._failure(
                f"{status} with a body that is not JSON: {self._excerpt(response)}", hint=NOT_OPENAI
            ) from error

    def _excerpt(self, response: httpx2.Response) -> str:
        """The start of the body. A server may repeat the key in its message; it is removed."""
        text = response.text.replace(self._key, "[key]") if self._key else response.text
        return text[:EXCERPT].strip() or "nothing"

    def _unreachable(self, error: Exception) -> FailedError:
        tries = f"after {self._tries} tries" if self._tries > 1 else "at the only try"
        return self._failure(
            f"{self.host} did not answer {tries}: {type(error).__name__}: {error}",
            hint="check that the server runs and that base_url is right",
        )


def _wait(attempt: int, retry_after: str | None = None) -> float:
    """Seconds before the next try: what the server asks for, else doubling, at random so that clients spread out."""
    requested = _seconds(retry_after) if retry_after else None
    if requested is not None:
        return min(max(requested, 0.0), LONGEST_WAIT_S)
    return min(FIRST_WAIT_S * 2.0 ** (attempt - 1), LONGEST_WAIT_S) * random.uniform(0.5, 1.0)  # noqa: S311


def _seconds(retry_after: str) -> float | None:
    """A Retry-After header, which is a number of seconds or a date; None if it is neither."""
    if retry_after.strip().isdecimal():
        return float(retry_after)
    try:
        return (parsedate_to_datetime(retry_after) - datetime.now(UTC)).total_seconds()
    except (TypeError, ValueError):
        return None


def well_formed(text: str) -> str:
    """The text with characters that no tokenizer or server accepts (lone surrogates, NUL) replaced by U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace").replace("\0", "\ufffd")
