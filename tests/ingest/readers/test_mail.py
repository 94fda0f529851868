"""E-mail is read with its subject, people, date and text."""

from email.message import EmailMessage
from mailbox import mbox
from pathlib import Path

import pytest

from recollect.ingest.readers import Unreadable
from recollect.ingest.readers.mail import read


def message(subject: str, text: str, **headers: str) -> EmailMessage:
    made = EmailMessage()
    made["Subject"], made["From"], made["To"] = subject, "Ada Lovelace <ada@example.org>", "bob@example.org"
    made["Date"] = headers.pop("date", "Mon, 2 Mar 2026 10:00:00 +0100")
    made.set_content(text)
    return made


def test_message() -> None:
    """The subject is the title; the names of attached files are found, their bytes are not."""
    mail = message("Frühstück um neun", "Bis morgen.\n\nAda")
    mail.add_alternative("<p>Bis <b>morgen</b></p>", subtype="html")
    mail.add_attachment(b"%PDF-", maintype="application", subtype="pdf", filename="Karte.pdf")
    text = read(mail.as_bytes())
    assert text.title == "Frühstück um neun"
    assert text.dates == {0: "2026-03-02T10:00:00+01:00"}
    head = "From: Ada Lovelace <ada@example.org>\nTo: bob@example.org\nDate: Mon, 02 Mar 2026 10:00:00 +0100"
    assert [block.text for block in text.blocks] == [
        "Frühstück um neun",
        f"{head}\nAttached: Karte.pdf",
        "Bis morgen.",
        "Ada",
    ]


def test_only_html() -> None:
    """A message without plain text is read from its HTML."""
    mail = EmailMessage()
    mail["Subject"] = "News"
    mail.set_content("<style>x</style><h1>Storks</h1><p>are back", subtype="html")
    assert [(block.level, block.text) for block in read(mail.as_bytes()).blocks] == [
        (1, "News"),
        (2, "Storks"),
        (0, "are back"),
    ]


def test_forwarded_message() -> None:
    """A message inside a message is read too, below its own subject."""
    mail = message("Fwd: pool", "See below.")
    mail.add_attachment(message("pool", "One worker."))
    texts = [(block.level, block.text) for block in read(mail.as_bytes()).blocks]
    assert (2, "pool") in texts
    assert texts[-1] == (0, "One worker.")


def test_mailbox(tmp_path: Path) -> None:
    """Every message of a mailbox that Python wrote is a part; a line that begins with From ends none."""
    box = mbox(tmp_path / "inbox.mbox")
    for number in (1, 2, 3):
        box.add(
            message(
                f"Note {number}",
                f"From now on there are {number}.\nFrom me 12:00\nend",
                date=f"Mon, {number} Mar 2026 10:00:00 +0000",
            )
        )
    box.close()
    text = read((tmp_path / "inbox.mbox").read_bytes())
    assert (text.unit, text.separate, text.title) == ("message", True, "")
    assert [block.text for block in text.blocks if block.level] == ["Note 1", "Note 2", "Note 3"]
    assert [block.part for block in text.blocks if block.text.startswith("From now on")] == [1, 2, 3]
    assert text.dates[3].startswith("2026-03-03")


def test_mailbox_in_a_mailbox() -> None:
    """Messages nested deeper than anybody forwards end the reading without a loop."""
    mail = message("0", "deepest")
    for depth in range(1, 40):
        outer = message(str(depth), "outer")
        outer.add_attachment(mail)
        mail = outer
    texts = [block.text for block in read(mail.as_bytes()).blocks]
    assert "39" in texts
    assert "deepest" not in texts


@pytest.mark.parametrize("content", [b"\n\n\n", b"From x\n"])
def test_broken_message(content: bytes) -> None:
    """A file without a message has that as its reason."""
    with pytest.raises(Unreadable, match="no message"):
        read(content)


def test_wrong_headers() -> None:
    """A message with an unknown charset, a date that is none and a broken subject is read as far as it goes."""
    content = b"Subject: =?utf-8?q?=ff=?=\nDate: never\nContent-Type: text/plain; charset=none\n\nhi \xff"
    assert any("hi" in block.text for block in read(content).blocks)
