"""Secrets in text: tokens, keys and passwords of well-known forms, replaced by placeholders before text is sent away.

Only forms that hardly occur by chance are recognised. Every pattern takes linear time: it begins where no word is under
way, or with fixed letters, and its repetitions are possessive or bounded.
"""

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

PLACEHOLDER = "[redacted: {}]"
WARNING = "the query looks as if it contains a secret; other machines got a placeholder in its place"

LEAST_ENTROPY = 3.0  # bits a character, from which on a quoted value is taken for a generated one
MIN_BODY = 64  # characters of a private key; a mark alone, as in documentation, is no secret
HEAD = 60  # characters of a token in which the words of documentation are looked for

_START = r"(?<![A-Za-z0-9_-])"
_BETWEEN = r"(?:\s|\\[nr]|[\"'>|#*,])*+"  # between the lines of a key: also as JSON, in a quotation or a comment
_MARK = re.compile(r"-----(BEGIN|END) (?:[A-Z0-9]{1,20} ){0,4}PRIVATE KEY(?: BLOCK)?-----")
_BODY = re.compile(
    rf"(?:{_BETWEEN}(?:(?:Proc-Type|DEK-Info|Version|Comment|Hash): [^\n\\]{{0,100}}+|[A-Za-z0-9+/=]{{16,}}+))++"
    rf"(?:{_BETWEEN}[A-Za-z0-9+/=]{{1,15}}+(?={_BETWEEN}-----END))?{_BETWEEN}"
)
_BODY_BACKWARDS = re.compile(r"[\s\\\"'>|#*,]*+[A-Za-z0-9+/=]++(?:[\s\\\"'>|#*,]*+[A-Za-z0-9+/=]{16,}+)*+")
# Three whole lines of base64, as wide as in a PEM file, an OpenSSH key or a mail: the middle of a key that was cut.
_LINES = "|".join(rf"(?:[A-Za-z0-9+/]{{{width}}}\n){{3,}}+" for width in (64, 70, 76))
_SAMPLE_TOKEN = re.compile(r"example|placeholder|your|xxxx|\*\*\*|1234567|abcdefg", re.IGNORECASE)
_SAMPLE_PASSWORD = re.compile(
    r"example|sample|placeholder|change.?me|your|dummy|xxx|\*\*\*|\.\.\.|…|^[<$({\[%]|\$\{|\{\{|1234567|abcdefg|"
    r"^(?:my|the|user)?[_-]?(?:pass(?:word|wd)?|pwd|pw|secret|token|s3cret|hunter2)[_-]?\d{0,3}$",
    re.IGNORECASE,
)


def _is_real(password: str) -> bool:
    """Whether a password is none of those that documentation uses."""
    return not _SAMPLE_PASSWORD.search(password) and len(set(password)) > 2  # noqa: PLR2004  (not one letter repeated)


def _is_generated(value: str) -> bool:
    """Whether a quoted value has digits, letters and the disorder of a generated secret."""
    counts = Counter(value)
    entropy = -sum(count / len(value) * math.log2(count / len(value)) for count in counts.values())
    mixed = any(character.isdigit() for character in value) and any(character.isalpha() for character in value)
    return mixed and entropy >= LEAST_ENTROPY and _is_real(value)


def _is_disordered(text: str) -> bool:
    """Whether lines of base64 hold digits, small letters and capitals; hexadecimal sums do not."""
    return all(any(map(test, text)) for test in (str.isdigit, str.islower, str.isupper))


def _is_token(value: str) -> bool:
    return not _SAMPLE_TOKEN.search(value, 0, HEAD)


class SecretForm(NamedTuple):
    """The form of one kind of secret. `hints` are texts of which a text with such a secret contains at least one.

    If the pattern has a group, the group is the secret; `accept` decides about it.
    """

    name: str
    hints: tuple[str, ...]
    pattern: re.Pattern[str]
    accept: Callable[[str], bool] = _is_token


def _form(name: str, hints: str, pattern: str) -> SecretForm:
    """The form of a token, which begins where no other word is under way."""
    return SecretForm(name, tuple(hints.split()), re.compile(_START + pattern))


FORMS = (
    _form("AWS access key", "AKIA ASIA", r"(?:AKIA|ASIA)[A-Z2-7]{16}(?![A-Za-z0-9])"),
    _form("GitHub token", "ghp_ gho_ ghu_ ghs_ ghr_", r"gh[pousr]_[A-Za-z0-9]{36,255}+"),
    _form("GitHub token", "github_pat_", r"github_pat_[A-Za-z0-9]{22}_[A-Za-z0-9]{59}"),
    _form("GitLab token", "glpat- gldt- glrt- glptt-", r"gl(?:pat|dt|rt|ptt)-[A-Za-z0-9_-]{20,}+"),
    _form("Slack token", "xox", r"xox[abeoprs]-(?=[A-Za-z0-9-]{0,20}[0-9])[A-Za-z0-9-]{20,}+"),
    _form("Slack token", "xapp-", r"xapp-[0-9]-[A-Z0-9]{8,}+-[0-9]{8,}+-[a-f0-9]{32,}+"),
    _form("Slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/(T[A-Z0-9]{7,}+/B[A-Z0-9]{7,}+/\w{20,}+)"),
    _form("Stripe key", "sk_live_ rk_live_ sk_test_ rk_test_", r"[sr]k_(?:live|test)_[A-Za-z0-9]{16,}+"),
    _form("Stripe key", "whsec_", r"whsec_[A-Za-z0-9]{32,}+"),
    _form("Anthropic key", "sk-ant-", r"sk-ant-[a-z0-9]{2,10}-[A-Za-z0-9_-]{32,}+"),
    _form("OpenAI key", "sk-proj- sk-svcacct- sk-admin-", r"sk-(?:proj|svcacct|admin)-[A-Za-z0-9_-]{32,}+"),
    _form("API key", "sk-or-", r"sk-or-v1-[a-f0-9]{64}"),
    _form("OpenAI key", "sk-", r"sk-(?=[A-Za-z]{0,40}[0-9])[A-Za-z0-9]{40,}+(?![A-Za-z0-9_-])"),
    _form("Google key", "AIza", r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _form("Google token", "ya29.", r"ya29\.[A-Za-z0-9_-]{40,}+"),
    _form("Google secret", "GOCSPX-", r"GOCSPX-[A-Za-z0-9_-]{28}(?![A-Za-z0-9_-])"),
    _form("JSON web token", "eyJ", r"eyJ[A-Za-z0-9_-]{10,}+\.eyJ[A-Za-z0-9_-]{10,}+\.[A-Za-z0-9_-]{20,}+"),
    _form("npm token", "npm_", r"npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])"),
    _form("PyPI token", "pypi-", r"pypi-AgE[A-Za-z0-9_-]{50,}+"),
    _form("Hugging Face token", "hf_", r"hf_[A-Za-z0-9]{34}(?![A-Za-z0-9_])"),
    _form("SendGrid key", "SG.", r"SG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])"),
    _form("Telegram token", ":AA", r"[0-9]{8,10}:AA[A-Za-z0-9_-]{33}(?![A-Za-z0-9_-])"),
    _form("DigitalOcean token", "dop_v1_ doo_v1_", r"do[op]_v1_[a-f0-9]{64}"),
    _form("age key", "AGE-SECRET-KEY-1", r"AGE-SECRET-KEY-1[0-9A-Z]{58}"),
    _form("storage key", "AccountKey=", r"AccountKey=([A-Za-z0-9+/]{86}==)"),
    SecretForm("key material", ("\n",), re.compile(rf"^(?:{_LINES})", re.MULTILINE), _is_disordered),
    SecretForm(
        "AWS secret key", ("ecret_access_key", "ecretAccessKey", "SECRET_ACCESS_KEY"),
        re.compile(
            r"(?i:secret_access_key|SecretAccessKey)[\"']?\s{0,4}[:=]\s{0,4}[\"']?([A-Za-z0-9/+]{40})(?![A-Za-z0-9/+])"
        ),
        _is_generated,
    ),
    SecretForm("password", ("://",), re.compile(r"://[^\s:/@\"'<>]{0,64}:([^\s/@\"'<>]{3,256})@"), _is_real),
    SecretForm(
        "password", ('"', "'"),
        re.compile(
            r"(?i:password|passwd|passphrase|secret|token|api[_-]?key|access[_-]?key|auth[_-]?key)[\"']?\s{0,4}[:=]\s{0,4}"
            r"[\"']([^\s\"']{12,200})[\"']"
        ),
        _is_generated,
    ),
)  # fmt: skip


def redact(text: str) -> tuple[str, int]:
    """The text with a placeholder for each secret, and how many there were. The number of lines stays the same."""
    spans: list[tuple[int, int, str]] = []
    for start, stop, name in sorted(_spans(text), key=lambda span: (span[0], -span[1])):
        if spans and start < spans[-1][1]:  # both are one secret, named after the first
            spans[-1] = (spans[-1][0], max(stop, spans[-1][1]), spans[-1][2])
        else:
            spans.append((start, stop, name))
    pieces, end = [], 0
    for start, stop, name in spans:
        pieces += [text[end:start], PLACEHOLDER.format(name), "\n" * text.count("\n", start, stop)]
        end = stop
    return "".join((*pieces, text[end:])), len(spans)


def redact_json(value: Any) -> tuple[Any, int]:
    """A JSON value in which every text is redacted, and how many secrets there were."""
    match value:
        case str():
            return redact(value)
        case list() | tuple():
            pairs = [redact_json(item) for item in value]
            return [item for item, _ in pairs], sum(count for _, count in pairs)
        case dict():
            named = {name: redact_json(item) for name, item in value.items()}
            return {name: item for name, (item, _) in named.items()}, sum(count for _, count in named.values())
    return value, 0


def query_warning(text: str) -> tuple[str, ...]:
    """The warning about a query that contains a secret and leaves this machine; none if it contains none."""
    return (WARNING,) if next(_spans(text), None) else ()


def _spans(text: str) -> Iterator[tuple[int, int, str]]:
    yield from _private_keys(text)
    for form in FORMS:
        if any(hint in text for hint in form.hints):
            for match in form.pattern.finditer(text):
                group = match.re.groups
                if form.accept(match[group]):
                    yield *match.span(group), form.name


def _private_keys(text: str) -> Iterator[tuple[int, int, str]]:
    """The blocks of private keys, also those whose beginning or end is in another chunk."""
    if "PRIVATE KEY" not in text:
        return
    end = 0
    for mark in _MARK.finditer(text):
        start, stop = mark.span()
        if mark[1] == "BEGIN":
            body = _BODY.match(text, stop)
            stop = body.end() if body else stop
            if closing := _MARK.match(text, stop):
                stop = closing.end()
            length = body.end() - body.start() if body else 0
        elif start < end:
            continue  # it ends the block before
        else:
            body = _BODY_BACKWARDS.match(text[end:start][::-1])
            length = body.end() if body else 0
            start -= length
        if length >= MIN_BODY:
            yield start, stop, "private key"
        end = stop
