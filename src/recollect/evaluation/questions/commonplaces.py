"""Words that stand above or behind too many things to ask for one of them."""

from __future__ import annotations

from recollect.ranking import fold

_HEADINGS = """
    notes, note, summary, todo, to do, overview, introduction, intro, conclusion, conclusions, references, links,
    see also, example, examples, usage, install, installation, changelog, license, contents, table of contents,
    background, details, misc, miscellaneous, faq, questions, open questions, next steps, action items, agenda,
    attendees, tasks, log, ideas, resources, sources, further reading, why, what, how, when, who, where, result,
    results, reason, reasons, context, decision, status, consequences, options, settings, configuration, requirements,
    features, getting started, quick start, appendix, untitled, about, description, discussion, motivation, problem,
    solution, setup, tests, testing, limitations, history, credits, readme, index, commands, errors, other, general,
    notizen, zusammenfassung, einleitung, fazit, quellen, übersicht, beispiel, beispiele, inhalt, aufgaben, offen,
    ergebnis, résumé, sommaire, résumen, índice
"""
_LINKS = """
    here, this, link, this page, docs, documentation, more, read more, page, source, click here, the docs, website,
    home, next, previous, back, hier, mehr, siehe, ici, aquí
"""

COMMONPLACES = frozenset(fold(words) for words in f"{_HEADINGS},{_LINKS}".split(","))
"""Headings and link texts that are about nothing, folded."""

LEADING = frozenset(("see", "sieh", "also", "cf", "read", "compar", "vgl"))
"""Terms of words before a link that only lead to it."""
