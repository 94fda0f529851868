"""Questions made from records: their text, their targets, their leakage; and the set in its folder."""

import json
from pathlib import Path

import pytest

from recollect.analysis import Analyzer
from recollect.errors import UsageError
from recollect.evaluation.datasets import read_dataset, read_qrels, read_questions
from recollect.evaluation.prose import (
    Leak,
    Vocabulary,
    best_phrase,
    definitions,
    leak_table,
    links,
    plain,
    sentences,
)
from recollect.evaluation.questions import KINDS, QuestionMaker, SetQuestion, VisibleRecords, choose, split_of
from recollect.evaluation.sets import MaskedRecords, SetOptions, make_set
from recollect.sample import NOTES
from recollect.types import Record

GARDEN = """---
aliases: [The green book, "Plot 14"]
---
# Allotment

Everything about the beds behind the railway.

## Notes

Nothing yet.

## Slugs and what they fear

Copper tape around the raised beds kept the slugs away for a whole summer, and coffee grounds did nothing at all.
"""
KITCHEN = """# Kitchen

Coffee grounds go to [[garden|the beds behind the station]], peel does not. Water for the plants is in
[the barrel note](rain/barrel.md#tap).

The theory behind all this rot and warmth is in [[compost]]. See [here](https://example.org/x) and [[nowhere]].

## Notes

Copper pans want salt and vinegar.
"""
BARREL = """# Rain barrel

The tap drips. Two turns of tape around the thread and a new washer stopped it, and the lid keeps the mosquitoes out.

```python
# Not a heading
```

## 2024-05-01
"""
COMPOST = """# Heap

Brown and green in layers; turned every month, it steams in January. Never any cooked food, which calls the rats.
"""


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    (folder / "rain").mkdir(parents=True)
    for name, text in {"garden": GARDEN, "kitchen": KITCHEN, "rain/barrel": BARREL, "compost": COMPOST}.items():
        (folder / f"{name}.md").write_text(text, encoding="utf-8")
    return folder


@pytest.fixture
def made(memory, notes):
    """Kind → text → the name of the target file."""
    memory.index(notes)
    visible = VisibleRecords(memory, {})
    found = {}
    for question in QuestionMaker(visible.vocabulary)(visible.listed, visible.aliases):
        found.setdefault(question.kind, {})[question.text] = Path(question.target).name
    return found


@pytest.fixture
def sample(memory):
    memory.index(NOTES)
    return memory


def files(folder):
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def rows(folder):
    texts = [(folder / f"queries{end}.jsonl").read_text(encoding="utf-8") for end in ("", "_dev")]
    return [json.loads(line) for text in texts for line in text.splitlines()]


def judged(folder):
    return read_qrels(folder / "qrels.tsv") | read_qrels(folder / "qrels_dev.tsv")


def test_links_become_questions_for_their_target(made):
    """Wiki and markdown links with their own words; links out of the store are ignored."""
    assert made["link"] == {"the beds behind the station": "garden.md", "the barrel note": "barrel.md"}


def test_link_without_words_uses_its_sentence(made):
    """The words before the link."""
    assert made["context"] == {"The theory behind all this rot and warmth": "compost.md"}


def test_aliases_come_from_the_front_matter(made):
    assert made["alias"] == {"The green book": "garden.md", "Plot 14": "garden.md"}


def test_meaningless_headings_are_left_out(made):
    """No `Notes`, which two files have, no date, no comment in code, no title of one word."""
    assert made["heading"] == {"Slugs and what they fear": "garden.md", "Rain barrel": "barrel.md"}


def test_phrase_is_a_run_of_words_of_one_target(made):
    """Inside one clause."""
    assert made["sentence"]
    texts = {"garden.md": GARDEN, "kitchen.md": KITCHEN, "barrel.md": BARREL, "compost.md": COMPOST}
    for text, name in made["sentence"].items():
        assert text in plain(texts[name])
        assert not set(text) & set(";:()")


def test_word_unique_to_the_target_adds_nothing(memory):
    """Of two phrases the one with shared words is taken."""
    for text in (
        "The zebrafish swim past Lisbon harbour at noon.",
        "Lisbon was warm.",
        "A harbour.",
        "At noon we ate.",
    ):
        memory.add(text)
    visible = VisibleRecords(memory, {})
    target = next(record.id for record in visible.listed if "zebrafish" in record.text)
    sentence = "The zebrafish swim past Lisbon harbour at noon."
    assert best_phrase(sentence, target, visible.vocabulary)[1] == "Lisbon harbour at noon"


def test_ambiguous_question_is_left_out(memory, notes):
    """The same words for two files."""
    (notes / "other.md").write_text("# Other\n\nLook at [the barrel note](compost.md) as well, it says more.\n")
    memory.index(notes)
    visible = VisibleRecords(memory, {})
    texts = [question.text for question in QuestionMaker(visible.vocabulary)(visible.listed, visible.aliases)]
    assert "the barrel note" not in texts
    assert len(texts) == len(set(texts))


def test_facts_become_questions_by_category_and_words(memory):
    """Tags missing in the text are part of the question; the judgment is the id."""
    fact = memory.add("Doctor Brandt moved her practice to Linden street.", category="health", tags=["doctor"])
    memory.add("Linden trees bloom in June.")
    visible = VisibleRecords(memory, {})
    (question,) = QuestionMaker(visible.vocabulary)(visible.listed, {})
    assert (question.kind, question.target) == ("fact", fact.id)
    assert question.text.startswith("health ")


def test_reference_links_are_followed():
    labels = definitions("[the guide]: a/b.md\n[x]: <c.md> 'title'\n")
    (one, other) = links("Read [The Guide] first. Then [more words][x] and [not one].", labels)
    assert (one.text, one.target, one.before) == ("The Guide", "a/b.md", "Read")
    assert (other.text, other.target) == ("more words", "c.md")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("One is here. Two is there.", ["One is here.", "Two is there."]),
        ("Ask Dr. Brandt, e.g. Tuesday. Then go.", ["Ask Dr. Brandt, e.g. Tuesday.", "Then go."]),
        ("- [x] *Bold* and `code`\n- [[a|b]] ![i](x.png)\n", ["Bold and code", "b"]),
        ("# H\n\n| a | b |\n|---|---|\n\n~~~\nin code. Here.\n~~~\n", []),
        ("これは本です。あれは猫です。", ["これは本です。", "あれは猫です。"]),
    ],
)
def test_sentences_are_what_a_reader_sees(text, said):
    assert sentences(text) == said


def test_leakage_is_counted_in_the_best_passage(memory, notes):
    """Words in two passages of a file do not add up."""
    memory.index(notes)
    visible = VisibleRecords(memory, {})
    target = str(notes / "compost.md")
    assert visible.vocabulary.share("layers of rats", target) == 1.0
    assert visible.vocabulary.share("layers of elephants", target) == 0.5
    assert visible.vocabulary.share("", target) == 0.0
    assert visible.vocabulary.gives_away("rats and elephants", target)
    assert not visible.vocabulary.gives_away("coffee", target)


def test_table_has_a_row_per_kind_and_a_total():
    leaks = {"link": [Leak(1.0, True, 1), Leak(0.0, False, None)], "alias": [], "heading": [Leak(0.6, False, 1)]}
    link, heading, everything = leak_table(leaks)
    assert [link[name] for name in ("questions", "shared", "leaking", "first", "copied")] == [2, 0.5, 0.5, 0.5, 0.5]
    assert (heading["leaking"], heading["copied"]) == (1.0, 0.0)
    assert (everything["kind"], everything["questions"]) == ("all", 3)


def test_kinds_and_targets_are_balanced():
    """Missing questions of one kind go to the others; each target is used once before any is repeated."""
    many = [SetQuestion(f"s{number}", "sentence", f"t{number % 10}", "r") for number in range(50)]
    few = [SetQuestion(f"a{number}", "alias", "t", "r") for number in range(3)]
    chosen = choose([*many, *few], 13, 1)
    assert sum(question.kind == "alias" for question in chosen) == 3
    assert len({question.target for question in chosen if question.kind == "sentence"}) == 10
    assert chosen == choose([*reversed(many), *few], 13, 1)
    assert chosen != choose([*many, *few], 13, 2)
    assert len(choose(many, 100, 1)) == 50


def test_split_depends_only_on_the_id():
    """About half on each side."""
    sides = [split_of(f"heading-{number}") for number in range(1000)]
    assert 430 < sides.count("dev") < 570
    assert sides == [split_of(f"heading-{number}") for number in range(1000)]


def test_same_store_gives_the_same_bytes(sample, tmp_path):
    """Another seed gives other questions about existing files."""
    made = make_set(sample, tmp_path / "one", SetOptions(60))
    make_set(sample, tmp_path / "two", SetOptions(60))
    make_set(sample, tmp_path / "other", SetOptions(60, seed=7))
    assert files(tmp_path / "one") == files(tmp_path / "two")
    assert files(tmp_path / "one")["queries.jsonl"] != files(tmp_path / "other")["queries.jsonl"]
    assert sum(made["sides"].values()) == len(rows(tmp_path / "one")) == 60
    assert set(made["kinds"]) <= set(KINDS)
    assert all(Path(target).is_file() for grades in judged(tmp_path / "one").values() for target in grades)


def test_questions_and_judgments_match(sample, tmp_path):
    """Each side has its own questions, each with one judgment, in files that `eval run` reads."""
    tmp_path /= "set"
    make_set(sample, tmp_path, SetOptions())
    for end in ("", "_dev"):
        questions, qrels = read_questions(tmp_path / f"queries{end}.jsonl"), read_qrels(tmp_path / f"qrels{end}.tsv")
        assert questions.keys() == qrels.keys()
        assert all(list(grades.values()) == [1] for grades in qrels.values())
    assert not read_questions(tmp_path / "queries.jsonl").keys() & read_questions(tmp_path / "queries_dev.jsonl").keys()


def test_update_keeps_edits_and_deletions(sample, tmp_path):
    """An edited text, a deleted question and an added line stay, and new questions are added."""
    folder = tmp_path / "set"
    make_set(sample, folder, SetOptions(40))
    before = files(folder)
    make_set(sample, folder, SetOptions(40, update=True))
    assert files(folder) == before
    first, second, *rest = [json.loads(line) for line in before["queries.jsonl"].decode().splitlines()]
    second["text"] = "in words of my own"
    lines = [second, *rest, {"_id": "mine", "text": "what nobody made"}]
    (folder / "queries.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with (folder / "qrels.tsv").open("a") as qrels:
        qrels.write(f"mine\t{NOTES / 'home' / 'sauna.md'}\t1\n")
    made = make_set(sample, folder, SetOptions(500, update=True))
    after = {row["_id"]: row["text"] for row in rows(folder)}
    assert first["_id"] not in after
    assert after[second["_id"]] == "in words of my own"
    assert after["mine"] == "what nobody made"
    assert made["kinds"]["own"] == 1
    assert made["added"] == len(after) - 40
    assert len(after) > 100
    assert judged(folder)["mine"] == {str(NOTES / "home" / "sauna.md"): 1}


def test_update_reports_missing_targets(memory, notes, tmp_path):
    """Questions about a removed file stay, with a report."""
    memory.index(notes)
    make_set(memory, tmp_path / "set", SetOptions())
    (notes / "rain" / "barrel.md").unlink()
    memory.index(notes, confirm=True)
    made = make_set(memory, tmp_path / "set", SetOptions(update=True))
    assert any("gone or not visible" in warning for warning in made["warnings"])


def test_set_contains_no_other_scope(memory, notes, tmp_path):
    """It equals that of a store with only the visible records."""
    memory.index(notes, user="ada")
    make_set(memory, tmp_path / "alone", SetOptions(filters={"user": "ada"}))
    memory.index(NOTES, user="bob")
    make_set(memory, tmp_path / "shared", SetOptions(filters={"user": "ada"}))
    assert files(tmp_path / "alone") == files(tmp_path / "shared")
    with pytest.raises(UsageError, match="nothing in the store to ask about"):
        make_set(memory, tmp_path / "global", SetOptions())


def test_filters_narrow_the_questions(sample, tmp_path):
    tmp_path /= "set"
    make_set(sample, tmp_path, SetOptions(filters={"path": str(NOTES / "home")}))
    assert {Path(target).parent.name for grades in judged(tmp_path).values() for target in grades} == {"home"}


@pytest.mark.ci
def test_masked_set_lacks_the_words_of_its_questions(sample, tmp_path):
    """The copy lacks the sentence of each question, judgments are by record, and leakage is small."""
    made = make_set(sample, tmp_path / "masked", SetOptions(masked=True))
    (dataset,) = read_dataset(tmp_path / "masked")
    texts = {row["_id"]: f"{row['title']}\n{row['text']}" for row in dataset.corpus}
    assert len(texts) == sample.status()["records"]["total"]
    for key, text in dataset.queries.items():
        (target,) = dataset.qrels[key]
        assert text not in texts[target]
    assert made["leakage"][-1]["shared"] < 0.4
    assert make_set(sample, tmp_path / "open", SetOptions())["leakage"][-1]["shared"] > 0.9
    assert made["leakage"][-1]["first"] < 0.5
    assert not any("share most of their words" in warning for warning in made["warnings"])
    with pytest.raises(UsageError, match="masked set, which cannot be updated"):
        make_set(sample, tmp_path / "masked", SetOptions(update=True))


def test_masked_note_lacks_its_aliases_and_properties_make_no_sentences(memory, notes):
    """The other properties stay."""
    top = "---\naliases: [The black heap]\nremark: It was built by my uncle in one summer\n---\n"
    (notes / "compost.md").write_text(f"{top}{COMPOST}", encoding="utf-8")
    memory.index(notes)
    visible = VisibleRecords(memory, {})
    made = QuestionMaker(visible.vocabulary)(visible.listed, visible.aliases)
    (alias,) = [question for question in made if question.text == "The black heap"]
    assert not any("uncle" in question.text for question in made)
    (record,) = MaskedRecords(visible.listed).without(alias)
    assert "black heap" not in record.text
    assert record.text.startswith("remark: It was built")


def test_masking_leaves_enough_text(memory):
    """A fact of one sentence cannot lose it."""
    fact = memory.add("Doctor Brandt moved her practice to Linden street.")
    visible = VisibleRecords(memory, {})
    question = SetQuestion("Doctor Brandt moved", "fact", fact.id, fact.id, removes=fact.text)
    assert MaskedRecords(visible.listed).without(question) is None


def test_vocabulary_of_an_empty_store():
    """No record, no word, no share."""
    vocabulary = Vocabulary([], Analyzer())
    assert vocabulary.share("a question", "x") == 0.0
    assert not vocabulary.gives_away("a question", "x")


@pytest.mark.parametrize("text", ["*a " * 60_000, "[" * 100_000, "[[a|" * 40_000, "`" * 100_000, "a. B" * 40_000])
def test_any_long_fact_is_read_in_time(text):
    """No pattern backtracks over it."""
    records = [Record("one", text), Record("two", "A harbour.")]
    QuestionMaker(Vocabulary(records, Analyzer()))(records, {})
