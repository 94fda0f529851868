"""The training data: passages of public collections, and questions about them. `SOURCES` lists each with its licence.

Every reader gives groups: the passages of one conversation, page or module, and questions, each with the number of the
passage that answers it, or with none. The collections are git repositories in a folder (`training/README.md`).
"""

from __future__ import annotations

import ast
import csv
import io
import json
import random
import re
import shutil
import subprocess
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from html import unescape
from pathlib import Path

NAMES = (
    "Aaron Abby Adam Alice Amy Andrea Angela Anna Anton Ben Beth Brian Carla Carlos Chloe Chris Clara Dan Dana Diego "
    "Elena Eli Ella Emma Eric Eva Fatima Felix Frank Grace Greg Hana Harry Helen Ian Ines Iris Isaac Ivan Jack Jamal "
    "Jane Jason Jenny Joe Julia Karen Ken Kim Lars Laura Leo Lily Lucas Lucy Maria Mark Marta Max Maya Mia Mike Mina "
    "Nadia Nick Nina Noah Nora Olga Oscar Paul Pete Priya Rachel Raj Rita Rob Rosa Ruth Sam Sara Sean Simon Sofia "
    "Steve Sue Tara Theo Tina Tom Uma Vera Victor Wendy Will Yara Yuki Zoe"
).split()
GIT = shutil.which("git") or "git"
LONGEST = 560  # characters of a passage: a title and what a reranker reads of a text
SHORTEST = 12
PARAGRAPHS = 3  # of an article


@dataclass
class Group:
    """Passages that belong together, and questions: each a text and the number of its answer, or None."""

    kind: str
    passages: list[str] = field(default_factory=list)
    questions: list[tuple[str, int | None]] = field(default_factory=list)

    def ask(self, question: str, answer: int | None) -> None:
        question = " ".join(question.split())
        if 6 < len(question) < 600:
            self.questions.append((question, answer))


class Repository:
    """The newest commit of a bare git repository; files that it lists but lacks are passed over."""

    def __init__(self, folder: Path) -> None:
        inside = folder / "repo"
        self.folder = inside / ".git" if (inside / ".git").is_dir() else inside

    def git(self, *arguments: str) -> bytes:
        return subprocess.run([GIT, "-C", str(self.folder), *arguments], check=True, capture_output=True).stdout

    def files(self, pattern: str) -> Iterator[tuple[str, str]]:
        """The path and the text of each file whose path matches."""
        lines = self.git("ls-tree", "-r", "-l", "HEAD").decode().splitlines()
        rows = [line.split("\t") for line in lines]
        wanted = [
            (head.split()[2], path) for head, path in rows if re.search(pattern, path) and head.split()[3] != "BAD"
        ]
        asked = "".join(f"{blob}\n" for blob, _ in wanted).encode()
        command = [GIT, "-C", str(self.folder), "cat-file", "--batch"]
        stream = io.BytesIO(subprocess.run(command, input=asked, check=True, capture_output=True).stdout)
        for _, path in wanted:
            head = stream.readline().split()
            if len(head) == 3:
                yield path, stream.read(int(head[2]) + 1).decode("utf-8", "replace")


Reader = Callable[[Repository, random.Random], Iterator[Group]]


# Conversations. A question that is answered by the next turn becomes a question about the one who answers.


def conversation(turns: list[tuple[int, str]], rng: random.Random, facts: Sequence[tuple[int, str]] = ()) -> Group:
    """Turns with speakers' names, or windows of a chat of user and assistant; questions about what was said.

    `facts` are further statements of the speakers about themselves. Which turn says such a fact is not known.
    """
    group = Group("conversation")
    chat = rng.random() < 0.35
    names = ["user", "assistant"] if chat else rng.sample(NAMES, 2)
    if rng.random() < 0.5:
        names.reverse()
    speaks = [f"{names[who % 2]}: {' '.join(said.split())}" for who, said in turns]
    place = {}
    if chat:  # passages of several turns
        for number, turn in enumerate(speaks):
            if group.passages and len(group.passages[-1]) + len(turn) < LONGEST and rng.random() < 0.9:
                group.passages[-1] += f"\n{turn}"
            else:
                group.passages.append(turn[:LONGEST])
            place[number] = len(group.passages) - 1
    else:
        group.passages = [turn[:LONGEST] for turn in speaks]
        place = {number: number for number in range(len(speaks))}
    for number, (who, said) in enumerate(turns):
        name = "I" if chat else names[who % 2]
        other = "I" if chat else names[(who + 1) % 2]
        if number + 1 < len(turns):
            for question in re.findall(r"(?:^|[.!?] )([A-Z][^.!?]{8,120}\?)", said):
                if re.search(r"\byou(r|rs|rself)?\b", question):
                    group.ask(about(question, other), place[number + 1])
                elif rng.random() < 0.5:
                    group.ask(question, place[number + 1])
        if number > 2 and rng.random() < 0.05:  # a long question: a conversation that goes on
            group.ask(" ".join(speaks[number - rng.randint(1, 3) : number + 1])[:500], None)
        for statement in re.findall(r"\b(?:I|i) ((?:just |also |really |recently )?[a-z]{3,} [^.!?,;]{6,90})", said):
            if rng.random() < 0.5:
                group.ask(from_statement(statement, name, rng), place[number])
    for who, fact in facts:
        group.ask(from_fact(fact, "I" if chat else names[who % 2], rng), None)
    return group


SECOND_PERSON = (
    (r"\bdo you\b", "does {}", "do I"), (r"\bare you\b", "is {}", "am I"), (r"\bhave you\b", "has {}", "have I"),
    (r"\bwere you\b", "was {}", "was I"), (r"\byours\b", "{}'s", "mine"), (r"\byour\b", "{}'s", "my"),
    (r"\byourself\b", "{}", "myself"), (r"\byou're\b", "{} is", "I am"), (r"\byou've\b", "{} has", "I have"),
    (r"\byou\b", "{}", "I"),
)  # fmt: skip


def about(question: str, name: str) -> str:
    """A question that one speaker asked the other, asked of a third: "Where do you live?", "Where does Ann live?"."""
    for pattern, third, first in SECOND_PERSON:
        question = re.sub(pattern, first if name == "I" else third.format(name), question, flags=re.IGNORECASE)
    return question


IRREGULAR = dict(
    went="go", got="get", bought="buy", made="make", took="take", saw="see", met="meet", found="find", had="have",
    started="start", ate="eat", wrote="write", read="read", gave="give", told="tell", heard="hear", felt="feel",
    left="leave", lost="lose", won="win", ran="run", came="come", thought="think", taught="teach", built="build",
    spent="spend", grew="grow", drove="drive", broke="break", sold="sell", was="be", knew="know", began="begin",
)  # fmt: skip


MODAL = {"can", "could", "would", "will", "should", "might", "must"}
MINE = {"my": "their", "me": "them", "myself": "themselves", "we": "they", "our": "their", "am": "is"}
BREAKS = (
    "to in at on into near with for from about of because so when after before since during last next this every "
    "yesterday tomorrow and but while by"
).split()
ASKS = {
    "in": "Where", "at": "Where", "on": "Where", "near": "Where", "into": "Where", "with": "Who", "for": "What",
    "from": "What", "about": "What", "because": "Why", "so": "Why", "when": "When", "after": "When", "before": "When",
    "since": "When", "during": "When", "last": "When", "next": "When", "this": "When", "every": "How often",
    "yesterday": "When", "tomorrow": "When",
}  # fmt: skip


def base_of(verb: str) -> str:
    """The base form of a verb in the past: "moved", "move"."""
    if verb in IRREGULAR or verb.endswith("ied"):
        return IRREGULAR.get(verb, f"{verb[:-3]}y")
    stem = verb.removesuffix("ed")
    return f"{stem}e" if stem in WITH_E else re.sub(r"([^aeiouls])\1$", r"\1", stem)


WITH_E = set(
    "mov lov liv lik us danc chang continu hop hik bak shar car prepar creat invit decid arriv clos notic practic rais "
    "realiz organiz smok sav explor ador admir requir inspir manag damag celebrat graduat donat decorat appreciat "
    "relocat participat excit amaz surpris purchas releas increas believ receiv imagin retir divorc".split()
)


def from_statement(statement: str, name: str, rng: random.Random) -> str:
    """A question about what somebody said of themselves: "went out with my son", "Who did Ann go out with?"."""
    words = re.sub(r"^(just|also|really|recently) ", "", statement).split()
    if name != "I":
        words = [MINE.get(word, word) for word in words]
    verb, rest = words[0], words[1:]
    past = verb in IRREGULAR or verb.endswith("ed")
    does, base = ("did", base_of(verb)) if past else ("do" if name == "I" else "does", verb)
    if verb in MODAL and rest:
        does, base, rest = verb, rest[0], rest[1:]
    chunks = [[base]]  # the verb with its object, then a chunk for each preposition
    for word in rest:
        if word in BREAKS and not (word == "to" and len(chunks[-1]) == 1 and base != "go"):
            chunks.append([])
        chunks[-1].append(word)
    kind, at = rng.random(), rng.randrange(len(chunks))
    kept = [word for number, chunk in enumerate(chunks) if number != at or number == 0 for word in chunk]
    if kind < 0.45 and at > 0 and (asks := ASKS.get(chunks[at][0], "Where" if base == "go" else "")):
        end = f" {chunks[at][0]}" if asks in ("Who", "What") else ""
        return f"{asks} {does} {name} {' '.join(kept)}{end}?"
    if kind < 0.45 and len(chunks[0]) > 2:
        others = chunks[1 : 1 + rng.randint(0, len(chunks) - 1)]
        return f"What {does} {name} {' '.join([base, *(word for chunk in others for word in chunk)])}?"
    whole = " ".join(word for chunk in chunks[: rng.randint(1, len(chunks))] for word in chunk)
    if kind < 0.7:
        asks = rng.choice(("When", "When", "Where", "Why", "How often", "Who", "What"))
        return f"{asks} {does} {name} {whole}?"
    if kind < 0.85:
        return f"{does.capitalize()} {name} {whole}?"
    own = "my" if name == "I" else f"{name}'s"
    if things := re.findall(r"\b(?:my|their) ((?:new |old |favorite )?[a-z]{3,})", statement):
        asks = rng.choice(("What is {}?", "Who is {}?", "What happened to {}?", "What does {} like?", "How is {}?"))
        return asks.format(f"{own} {rng.choice(things)}")
    nouns = [word for word in rest if len(word) > 3 and word not in BREAKS]
    return f"{name} {base} {' '.join(rng.sample(nouns, min(len(nouns), 3)))}"


def from_fact(fact: str, name: str, rng: random.Random) -> str:
    """A question about a short statement: "My favorite sport is tennis.", "What is Ann's favorite sport?"."""
    fact, own = fact.strip().rstrip(".!"), "my" if name == "I" else f"{name}'s"
    if found := re.match(r"(?i)my (.{3,40}?) (is|are|was|were) ", fact):
        return f"{rng.choice(('What', 'Who', 'Where'))} {found[2]} {own} {found[1]}?"
    if found := re.match(r"(?i)i am (.{4,90})$", fact):
        verb = "am" if name == "I" else "is"
        return f"{verb.capitalize()} {name} {found[1]}?" if rng.random() < 0.5 else f"{name} {verb} {found[1]}"
    found = re.match(r"(?i)i ((?:just |also |really )?[a-z]{3,} .{6,90})$", fact)
    return from_statement(found[1], name, rng) if found else ""


def persona_chat(repository: Repository, rng: random.Random) -> Iterator[Group]:
    for _, text in repository.files(r"data/.*\.csv$"):
        for row in csv.DictReader(io.StringIO(text)):
            said = row.get("Best Generated Conversation") or ""
            turns = re.findall(r"^User (\d): (.+)$", said, re.MULTILINE)
            facts = [(who, fact) for who in (1, 2) for fact in (row.get(f"user {who} personas") or "").split("\n")]
            if turns:
                yield conversation([(int(who), turn) for who, turn in turns], rng, facts)


def topical_chat(repository: Repository, rng: random.Random) -> Iterator[Group]:
    for _, text in repository.files(r"^conversations/.*\.json$"):
        for talk in json.loads(text).values():
            yield conversation([(turn["agent"] == "agent_2", turn["message"]) for turn in talk["content"]], rng)


def schema_guided(repository: Repository, rng: random.Random) -> Iterator[Group]:
    for path, text in repository.files(r"^train/dialogues_\d+\.json$"):
        if int(re.sub(r"\D", "", path)) % 3 != 0:
            for talk in json.loads(text):
                yield conversation([(turn["speaker"] == "SYSTEM", turn["utterance"]) for turn in talk["turns"]], rng)


def meetings(repository: Repository, _: random.Random) -> Iterator[Group]:
    for _, text in repository.files(r"^data/ALL/train/.*\.json$"):
        meeting, group = json.loads(text), Group("conversation")
        place = {}
        for number, turn in enumerate(meeting["meeting_transcripts"]):
            said = re.sub(r"\{\w+\}|<\w+>", "", turn["content"])
            said = f"{turn['speaker']}: {' '.join(said.split())}"
            if group.passages and len(group.passages[-1]) + len(said) < LONGEST:
                group.passages[-1] += f"\n{said}"
            else:
                group.passages.append(said[:LONGEST])
            place[str(number)] = len(group.passages) - 1
        for topic in meeting["topic_list"]:
            group.ask(topic["topic"], None)
        for asked in meeting["specific_query_list"]:
            [begin, end] = asked["relevant_text_span"][0]
            group.ask(asked["query"], place.get(begin) if int(end) - int(begin) < 4 else None)
        yield group


# Questions that people asked about a text


def covid(repository: Repository, _: random.Random) -> Iterator[Group]:
    for _, text in repository.files(r"question-answering/200423_covidQA\.json$"):
        for article in json.loads(text)["data"]:
            for paragraph in article["paragraphs"]:
                group, whole = Group("science"), paragraph["context"]
                group.passages = [whole[at : at + LONGEST] for at in range(0, len(whole), LONGEST)]
                for asked in paragraph["qas"]:
                    if asked["answers"]:
                        group.ask(
                            asked["question"],
                            min(asked["answers"][0]["answer_start"] // LONGEST, len(group.passages) - 1),
                        )
                yield group


def pubmed(repository: Repository, _: random.Random) -> Iterator[Group]:
    for _, text in repository.files(r"data/ori_pqal\.json$"):
        group = Group("science")
        for paper in json.loads(text).values():
            group.passages.append(" ".join(paper["CONTEXTS"])[:LONGEST])
            group.ask(paper["QUESTION"], len(group.passages) - 1)
            group.passages.append(paper["LONG_ANSWER"][:LONGEST])
            group.ask(paper["QUESTION"], len(group.passages) - 1)
        yield group


def medical(repository: Repository, _: random.Random) -> Iterator[Group]:
    for _, text in repository.files(r"_QA.*\.xml$"):
        group = Group("science")
        for asked, said in re.findall(r"<Question[^>]*>(.*?)</Question>\s*<Answer>([^<]+)</Answer>", text):
            answer = " ".join(unescape(said).split())
            group.ask(unescape(asked).replace("(are) ", ""), len(group.passages))
            group.passages += [answer[at : at + LONGEST] for at in range(0, min(len(answer), 3 * LONGEST), LONGEST)]
        yield group


def papers(repository: Repository, rng: random.Random) -> Iterator[Group]:
    """Articles with their abstract and a few paragraphs; the title, or sentences of the plain summary, ask for it."""
    for _, text in repository.files(r"^articles/elife-\d*[0257]-v1\.xml$"):
        title = re.search(r"<article-title>(.*?)</article-title>", text, re.DOTALL)
        abstracts = [plain(part) for part in re.findall(r"<abstract[^>]*>(.*?)</abstract>", text, re.DOTALL)]
        body = re.findall(r"<p>(.*?)</p>", text.partition("<body>")[2].partition("</body>")[0], re.DOTALL)
        if not title or not abstracts:
            continue
        start = rng.randrange(max(1, len(body) - PARAGRAPHS))
        group = Group("science")
        sentences = [one for summary in abstracts[1:] for one in re.split(r"(?<=[.?!]) ", summary) if len(one) > 60]
        if rng.random() < 0.5:
            for sentence in rng.sample(sentences, min(3, len(sentences))):
                group.ask(sentence, 0)
            abstracts = abstracts[:1]
        for whole in (*abstracts, *(plain(part) for part in body[start : start + PARAGRAPHS])):
            group.passages += [whole[at : at + LONGEST] for at in range(0, len(whole), LONGEST)]
        group.ask(plain(title[1]), 0)
        yield group


def abstracts(repository: Repository, rng: random.Random) -> Iterator[Group]:
    """Titles and abstracts of a volume since 2020; a title asks for its abstract."""
    for _, text in repository.files(r"^data/xml/202\d\..*\.xml$"):
        found = re.findall(r"<title>([^\n]*)</title>.*?<abstract>(.*?)</abstract>", text, re.DOTALL)
        rng.shuffle(found)
        for at in range(0, len(found), 10):
            group = Group("science")
            for title, abstract in found[at : at + 10]:
                whole = f"{plain(title)}\n{plain(abstract)}" if rng.random() < 0.5 else plain(abstract)
                group.ask(plain(title), len(group.passages))
                group.passages += [whole[part : part + LONGEST] for part in range(0, len(whole), LONGEST)]
            yield group


def plain(text: str) -> str:
    """XML without its marks, on one line."""
    return " ".join(unescape(re.sub(r"<[^>]+>", "", text)).split())


# Encyclopedia and dictionary: a sentence that says what something is becomes a question


def encyclopedia(
    repository: Repository, rng: random.Random, pattern: str = r"^Page/[A-Z][a-z][aeo]"
) -> Iterator[Group]:
    for path, text in repository.files(pattern):
        title = path.removeprefix("Page/").removesuffix(".md").replace("_", " ")
        prose = re.sub(r"\S+\.(?:jpe?g|png|svg|gif)\b|\[\d+\]|\]\]", "", text, flags=re.IGNORECASE)
        parts = [" ".join(part.split()) for part in prose.split("\n\n") if len(part) > 120][:6]
        group = Group("encyclopedia")
        for part in parts:
            number = len(group.passages)
            group.passages.append((f"{title}\n{part}" if rng.random() < 0.5 else part)[:LONGEST])
            for sentence in re.split(r"(?<=[.!?])\s+", part[:LONGEST])[:-1]:
                if rng.random() < 0.4 and (question := turned(sentence, title, rng)):
                    group.ask(question, number)
        if parts and rng.random() < 0.5:
            group.ask(rng.choice(("{}", "What is {}?", "Who was {}?", "Tell me about {}")).format(title), 0)
        yield group


def more_articles(repository: Repository, rng: random.Random) -> Iterator[Group]:
    """Other articles than those of `encyclopedia`, every eighth."""
    yield from encyclopedia(repository, rng, r"^Page/[A-Z][a-z][^aeo].*[aeimnst]\.md$")


def turned(sentence: str, title: str, rng: random.Random) -> str:
    """A question that a statement answers: "The bridge was built in 1890", "When was the bridge built?"."""
    found = re.match(r"(.{3,60}?) (is|was|are|were|has|had|can|will) (.{8,120}?)[.,;]", sentence)
    if not found:
        return ""
    subject, verb, rest = found.groups()
    if subject.lower() in {"it", "he", "she", "they", "this"}:
        subject = title
    when = re.search(r" (in|on|from|since) (\w+ )?\d{3,4}\b.*$", rest)
    where = re.search(r" (in|at|near|from) (the )?[A-Z].*$", rest)
    if when and rng.random() < 0.7:
        return f"When {verb} {subject} {rest[: when.start()]}?"
    if where and rng.random() < 0.7:
        return f"Where {verb} {subject} {rest[: where.start()]}?"
    if rng.random() < 0.5:
        return f"{rng.choice(('What', 'Which', 'Who'))} {verb} {rest}?"
    return f"What {verb} {subject} {' '.join(rest.split()[: rng.randint(0, 3)])}?"


def dictionary(repository: Repository, rng: random.Random) -> Iterator[Group]:
    for _, text in repository.files(r"^src/yaml/(noun|verb|adj|adv)\.\w+\.yaml$"):
        meanings = list[str]()
        for entry in re.split(r"\n(?=\d+-\w:)", text):
            means = re.search(r"definition:\n  - (.+(?:\n    .+)*)", entry)
            names = re.search(r"members:\n((?:  - .+\n)+)", entry)
            if means and names:
                spelled = ", ".join(re.findall(r"- (.+)", names[1]))
                meanings.append(f"{spelled}: {' '.join(means[1].split())}".replace("'", ""))
        for at in range(0, len(meanings), 30):
            group = Group("encyclopedia", meanings[at : at + 30])
            for number, meaning in enumerate(group.passages):
                name, _, means = meaning.partition(": ")
                name = rng.choice(name.split(", "))
                if rng.random() < 0.5:
                    group.ask(rng.choice(("what is {}", "what does {} mean", "meaning of {}")).format(name), number)
                else:
                    group.ask(f"{rng.choice(('what is', 'what is called', 'the word for'))} {means}", number)
            yield group


# Documentation: a heading, a title or a summary asks for its section


def pages(pattern: str) -> Reader:
    def read(repository: Repository, rng: random.Random) -> Iterator[Group]:
        for path, text in repository.files(pattern):
            if len(text) > 600:
                yield page(path, text, rng)

    return read


def page(path: str, text: str, rng: random.Random) -> Group:
    group = Group("documentation")
    front = re.match(r"---\n(.*?)\n---\n", text, re.DOTALL)
    header = front[1] if front else ""
    text = text[front.end() :] if front else text
    text = re.sub(r"\{\{[^}]*\}\}|\{%.*?%\}|<!--.*?-->|<[^>\n]{1,80}>", "", text, flags=re.DOTALL)
    found = re.search(r"^title: *(.+)$", header, re.MULTILINE)
    title = found[1].strip("'\" ") if found else Path(path).stem.replace("_", " ").replace("-", " ")
    parts = re.split(r"\n(?=#{1,4} )|\n(?=[^\n]{3,70}\n[=\-~]{4,}\n)", text)
    for part in parts[:12]:
        heading, _, body = part.strip().partition("\n")
        if len(body) < 80:
            continue
        heading = heading.strip("# ").split("{#")[0].strip()
        start = 0 if len(body) < LONGEST or rng.random() < 0.7 else rng.randrange(len(body) - LONGEST // 2)
        room = LONGEST - len(title)
        group.passages.append(f"{title}\n{part.strip()[:room] if start == 0 else body[start : start + room]}")
        group.ask(f"{title} {heading}" if rng.random() < 0.5 else heading, len(group.passages) - 1)
    summary = re.search(r"^(?:description|summary): *>?-?\s*(.+(?:\n  .+)*)$", header, re.MULTILINE)
    if group.passages:
        group.ask(title, 0)
        if summary:
            group.ask(summary[1], 0)
    return group


# Code: the first line of a docstring asks for its function


def code(pattern: str) -> Reader:
    def read(repository: Repository, rng: random.Random) -> Iterator[Group]:
        for path, text in repository.files(pattern):
            if "/test" not in path:
                yield module(text, rng)

    return read


def module(text: str, rng: random.Random) -> Group:
    group, lines = Group("code"), text.splitlines()
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError):
        return group
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and (says := ast.get_docstring(node)) and len(node.body) > 1:
            first = " ".join(says.split("\n\n")[0].split())[:160].rstrip(".")
            whole = lines[node.lineno - 1 : node.end_lineno]
            if rng.random() < 0.7:  # without the text that asks for it
                said = node.body[0]
                whole = (
                    lines[node.lineno - 1 : said.lineno - 1] + lines[said.end_lineno or said.lineno : node.end_lineno]
                )
            indent = len(whole[0]) - len(whole[0].lstrip())
            group.passages.append("\n".join(line[indent:] for line in whole)[:LONGEST])
            query = first.lower() if rng.random() < 0.7 else first
            if rng.random() < 0.4:
                query = " ".join(word for word in query.split() if word not in {"the", "a", "an", "of", "this"})
            lead = rng.choice(("", "", "", "python ", "how to ", "python how to ", "python function to "))
            group.ask(lead + query, len(group.passages) - 1)
    return group


@dataclass(frozen=True)
class Source:
    """A public repository: its name, its licence, how it is read, and how many characters of it are used."""

    name: str
    licence: str
    read: Reader
    most: int


SOURCES = (
    Source("google-research-datasets/Synthetic-Persona-Chat", "CC-BY-4.0", persona_chat, 8_000_000),
    Source("alexa/Topical-Chat", "CDLA-Sharing-1.0", topical_chat, 9_000_000),
    Source("google-research-datasets/dstc8-schema-guided-dialogue", "CC-BY-SA-4.0", schema_guided, 12_000_000),
    Source("Yale-LILY/QMSum", "MIT", meetings, 6_000_000),
    Source("deepset-ai/COVID-QA", "Apache-2.0", covid, 5_000_000),
    Source("pubmedqa/pubmedqa", "MIT", pubmed, 3_000_000),
    Source("abachaa/MedQuAD", "CC-BY-4.0", medical, 9_000_000),
    Source("chinapedia/wikipedia.abstract.en", "CC-BY-SA (Wikipedia's text)", encyclopedia, 26_000_000),
    Source("globalwordnet/english-wordnet", "CC-BY-4.0 and WordNet License", dictionary, 3_000_000),
    Source("kubernetes/website", "CC-BY-4.0", pages(r"^content/en/(docs|blog)/.*\.md$"), 9_000_000),
    Source("mdn/content", "CC-BY-SA-2.5, code CC0", pages(r"^files/en-us/.*index\.md$"), 17_000_000),
    Source("rust-lang/book", "MIT or Apache-2.0", pages(r"^src/.*\.md$"), 2_000_000),
    Source("django/django", "BSD-3-Clause", pages(r"^docs/.*\.txt$"), 5_000_000),
    Source("django/django", "BSD-3-Clause", code(r"^django/.*\.py$"), 4_000_000),
    Source("pandas-dev/pandas", "BSD-3-Clause", code(r"^pandas/.*\.py$"), 4_000_000),
    Source("scikit-learn/scikit-learn", "BSD-3-Clause", code(r"^sklearn/.*\.py$"), 4_000_000),
    Source("sympy/sympy", "BSD-3-Clause", code(r"^sympy/.*\.py$"), 4_000_000),
    Source("networkx/networkx", "BSD-3-Clause", code(r"^networkx/.*\.py$"), 3_000_000),
)

FOR_EMBEDDER = (
    Source("elifesciences/elife-article-xml", "CC-BY-4.0, CC-BY-3.0 or CC0", papers, 28_000_000),
    Source("acl-org/acl-anthology", "CC-BY-4.0 (papers since 2016)", abstracts, 16_000_000),
    Source("chinapedia/wikipedia.abstract.en", "CC-BY-SA (Wikipedia's text)", more_articles, 22_000_000),
    Source("github/docs", "CC-BY-4.0", pages(r"^content/.*\.md$"), 8_000_000),
    Source("huggingface/transformers", "Apache-2.0", pages(r"^docs/source/en/.*\.md$"), 3_000_000),
    Source("huggingface/transformers", "Apache-2.0", code(r"^src/.*\.py$"), 3_000_000),
    Source("apache/airflow", "Apache-2.0", code(r"\.py$"), 4_000_000),
    Source("saltstack/salt", "Apache-2.0", code(r"^salt/.*\.py$"), 4_000_000),
    Source("scipy/scipy", "BSD-3-Clause", code(r"^scipy/.*\.py$"), 3_000_000),
    Source("numpy/numpy", "BSD-3-Clause", code(r"^numpy/.*\.py$"), 2_000_000),
    Source("astropy/astropy", "BSD-3-Clause", code(r"^astropy/.*\.py$"), 3_000_000),
)
"""Read beside `SOURCES` for the embedder, which needs more science, medicine and code."""


def wellformed(repository: Repository, _: random.Random) -> Iterator[Group]:
    for _, text in repository.files(r"^(train|dev|test)\.tsv$"):
        yield Group("encyclopedia", [], [(line.split("\t")[0].rstrip(" ?"), None) for line in text.splitlines()])


ASKED = Source("google-research-datasets/query-wellformedness", "CC-BY-SA-4.0", wellformed, 0)
"""Questions that people asked on the web, without passages."""


def read_asked(repositories: Path) -> list[str]:
    repository = Repository(repositories / ASKED.name.replace("/", "+"))
    groups = ASKED.read(repository, random.Random(0))
    return [" ".join(question.split()) for group in groups for question, _ in group.questions]


def read_all(repositories: Path, sources: Sequence[Source] = SOURCES, seed: int = 0) -> Iterator[tuple[str, Group]]:
    """Every group with the name of its source; the groups of a source in random order, up to its share."""
    for source in sources:
        rng = random.Random(f"{seed} {source.name} {source.read.__name__}")
        repository = Repository(repositories / source.name.replace("/", "+"))
        groups = [group for group in source.read(repository, rng) if len(group.passages) > 1]
        rng.shuffle(groups)
        used = 0
        for group in groups:
            used += sum(map(len, group.passages))
            if used > source.most:
                break
            yield source.name, group
