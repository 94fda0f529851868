"""Secrets in text: every form is replaced, ordinary text is not, and no text takes long."""

from __future__ import annotations

import random
import string
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support import ROOT

from recollect.redaction import FORMS, WARNING, query_warning, redact, redact_json

_random = random.Random(7)


def noise(count: int, letters: str = string.ascii_letters + string.digits) -> str:
    """Letters in disorder, as in a generated token; put together here, so that no scanner takes them for real ones."""
    return "".join(_random.choice(letters) for _ in range(count - 3)) + "a1Z"


HEX = "0123456789abcdef"
LINE = "\n".join(noise(64) for _ in range(25))
KEY = f"-----BEGIN RSA PRIVATE KEY-----\n{LINE}\n{noise(12)}=\n-----END RSA PRIVATE KEY-----"
SECRETS = {
    "AWS access key": "AKIA" + "QZ7XN2MBV5KDJ3HW", "GitHub token": "ghp_" + noise(36),
    "GitLab token": "glpat-" + noise(20),
    "GitHub token ": "github_pat_" + noise(22) + "_" + noise(59), "Slack token": "xoxb-" + "730191371696-" + noise(24),
    "Stripe key": "sk_live_" + noise(24), "Anthropic key": "sk-ant-" + "api03-" + noise(95),
    "OpenAI key": "sk-proj-" + noise(60),
    "OpenAI key ": "sk-" + noise(48), "Google key": "AIza" + noise(35), "Google token": "ya29." + noise(60),
    "JSON web token": f"eyJ{noise(30)}.eyJ{noise(60)}.{noise(43)}", "npm token": "npm_" + noise(36),
    "PyPI token": "pypi-" + "AgEIcHlwaS5vcmc" + noise(80), "Hugging Face token": "hf_" + noise(34),
    "SendGrid key": f"SG.{noise(22)}.{noise(43)}", "Telegram token": "731928465:AA" + noise(33),
    "DigitalOcean token": "dop_v1_" + "".join(_random.choice(HEX) for _ in range(64)),
    "age key": "AGE-SECRET-KEY-1" + noise(58).upper(),
    "API key": "sk-or-v1-" + "".join(_random.choice(HEX) for _ in range(64)),
    "private key": KEY, "Slack webhook": "T024BE7LH/B024BE7LI/" + noise(24), "storage key": noise(86) + "==",
    "password": "kX9mQ2vLp7zR", "AWS secret key": noise(40), "Google secret": "GOCSPX-" + noise(28),
}  # fmt: skip
AROUND = {
    "Slack webhook": "https://hooks.slack.com/services/{}", "storage key": "AccountName=a;AccountKey={};End",
    "password": "postgresql://ada:{}@db.lan/notes", "AWS secret key": "aws_secret_access_key = {}",
}  # fmt: skip


@pytest.mark.parametrize("name", SECRETS)
def test_every_form_is_replaced_wherever_it_stands(name: str) -> None:
    """Alone, in a sentence, in code and in JSON; the rest of the text and its lines stay; once is enough."""
    secret = SECRETS[name]
    written = AROUND.get(name, "{}").format(secret)
    for text in (written, f"Use {written} here.", f'name: "{written}"\nnext', f"a\n{written}\nb", f"({written})"):
        clean, count = redact(text)
        assert secret not in clean
        assert f"[redacted: {name.strip()}]" in clean
        assert count == 1
        assert clean.count("\n") == text.count("\n")
        assert redact(clean) == (clean, 0)
        assert clean.split("[redacted")[0] == text.split(secret)[0]


def test_every_form_has_an_example() -> None:
    """A form without a test would not be missed."""
    assert {form.name for form in FORMS} | {"private key"} == {name.strip() for name in SECRETS} | {"key material"}


def test_part_of_a_private_key_is_replaced() -> None:
    """A chunk or a piece may hold only its beginning, its middle or its end; in JSON its lines have escaped ends."""
    lines = KEY.split("\n")
    for part in ("\n".join(lines[:8]), "\n".join(lines[6:20]) + "\n", "\n".join(lines[-6:])):
        clean, count = redact(f"Before.\n{part}\nAfter.")
        assert count == 1
        assert not any(line in clean for line in lines)
        assert "Before." in clean
        assert "After." in clean
    clean, count = redact('{"private_key": "' + KEY.replace("\n", "\\n") + '\\n", "type": "x"}')
    assert count == 1
    assert clean.endswith('"type": "x"}')
    assert lines[5] not in clean


@pytest.mark.parametrize("text", [
    "A file that begins with -----BEGIN PRIVATE KEY----- is never read, nor is any other file that holds a key.",
    "postgresql://user:password@localhost/db and https://user:${TOKEN}@host/ and redis://:<password>@host",
    'password = "correct horse battery staple"', 'api_key: "YOUR_API_KEY_HERE_123"', "AKIAIOSFODNN7EXAMPLE",
    'token = os.environ["RECOLLECT_TOKEN"]', "sk-proj-your-key-goes-here-1234567890-abcdefgh",
    "sk-learn-is-a-library-for-python",
    "xoxb-your-token-goes-here-please", "the ghp_ prefix", "eyJhbGciOi", 'secret: "https://example.org/a1b2c3"',
    "\n".join("".join(HEX[(3 * row + at) % 16] for at in range(64)) for row in range(6)) + "\n",
    "user@host:22/path://a:b", "12:34:56://x:yz@w", 'password: "passwordpassword"',
])  # fmt: skip
def test_documentation_is_left_alone(text: str) -> None:
    """Placeholders, prose about keys, sums of files."""
    assert redact(text) == (text, 0)


def test_this_projects_own_texts_hold_no_secret() -> None:
    """About 400,000 characters of documentation and the sample notes; a match would be a false one."""
    files = [*(ROOT / "docs").rglob("*.md"), *(ROOT / "src" / "recollect" / "sample").rglob("*.md"), *ROOT.glob("*.md")]
    assert len(files) > 100
    assert {
        str(file): redact(file.read_text(encoding="utf-8"))[1] for file in files if redact(Path(file).read_text())[1]
    } == {}


HOSTILE = (
    "a", "eyJ", "eyJaaaaaaaaaaaaaaa.", "-----BEGIN PRIVATE KEY-----", "-----END PRIVATE KEY-----", "sk-", "://a:",
    'password="', "password    ", "xoxb-a", "glpat-", "hooks.slack.com/services/T", "12345678:AA",
    "-----BEGIN A B C D ", "AKIA", "AccountKey=", "secret_access_key   ", "\n", "A" * 64 + "\n", "A" * 63 + "\n", "SG.",
    "'password':'", "://", "-",
)  # fmt: skip


@pytest.mark.parametrize("seed", HOSTILE)
def test_hostile_text_takes_linear_time(seed: str) -> None:
    """Four times the text takes about four times as long, never sixteen; the process's own time is measured."""

    def seconds(size: int) -> float:
        text = f'-----BEGIN PRIVATE KEY-----\n{seed * (size // len(seed))} -----END PRIVATE KEY----- " sk- eyJ ://'
        began = time.process_time()
        redact(text)
        return time.process_time() - began

    small = min(seconds(250_000) for _ in range(3))
    assert min(seconds(1_000_000) for _ in range(3)) < 10 * small + 0.05


@given(st.text(), st.sampled_from(sorted(SECRETS)), st.text())
def test_any_text_around_a_token_stays(before: str, name: str, after: str) -> None:
    """Redaction changes nothing but what it replaces, and never fails."""
    written = AROUND.get(name, "{}").format(SECRETS[name])
    clean, count = redact(f"{before}\n {written} \n{after}")
    assert SECRETS[name] not in clean
    assert count >= 1


def test_json_is_redacted_at_every_depth() -> None:
    """Names and numbers stay."""
    secret = SECRETS["GitHub token"]
    value = {"input": ["a", f"x {secret}"], "n": 1, "messages": [{"content": secret, "role": None}]}
    clean, count = redact_json(value)
    assert count == 2
    assert clean == {"input": ["a", "x [redacted: GitHub token]"], "n": 1, "messages": [
        {"content": "[redacted: GitHub token]", "role": None}]}  # fmt: skip


def test_warning_only_about_a_query_with_a_secret() -> None:
    """A text that only names a kind of secret holds none."""
    assert query_warning(SECRETS["npm token"]) == (WARNING,)
    assert query_warning("npm token") == ()
