"""Dates in words, in English and German: "last week", "on 3 March", "vor zwei Wochen". All times are UTC.

A word that can mean something else ("may", "march", "second") is a date only beside another part of one.
"""

import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, time, timedelta
from functools import cache
from typing import NamedTuple

from recollect.stopwords import stopwords

DAY = timedelta(days=1)

MONTHS = {
    name: number
    for number, names in enumerate(
        (
            "january januar jänner jan", "february februar feb", "march märz maerz mar mär", "april apr", "may mai",
            "june juni jun", "july juli jul", "august aug", "september sept sep", "october oktober oct okt",
            "november nov", "december dezember dec dez",
        ),
        1,
    )
    for name in names.split()
}  # fmt: skip
AMBIGUOUS = ("may", "march", "mar", "jan", "august")  # also words or names: never alone with a day
WEEKDAYS = {
    name: number
    for number, names in enumerate((
        "monday montag", "tuesday dienstag", "wednesday mittwoch", "thursday donnerstag", "friday freitag",
        "saturday samstag sonnabend", "sunday sonntag",
    ))
    for name in names.split()
}  # fmt: skip
NUMBERS = {
    name: number
    for number, names in enumerate((
        "a an one ein eine einem einer einen", "two couple zwei", "three drei", "four vier", "five fünf", "six sechs",
        "seven sieben", "eight acht", "nine neun", "ten zehn", "eleven elf", "twelve zwölf",
    ), 1)
    for name in names.split()
}  # fmt: skip
UNITS = {
    name: unit
    for unit, names in {
        "day": "day days tag tage tagen", "week": "week weeks woche wochen",
        "month": "month months monat monate monaten monats", "year": "year years jahr jahre jahren jahres",
    }.items()
    for name in names.split()
}  # fmt: skip


class Period(NamedTuple):
    """A stretch of time, without its end, and the words that name it."""

    start: datetime
    end: datetime
    words: str

    def __str__(self) -> str:
        first, last = self.start.date(), (self.end - timedelta(microseconds=1)).date()
        days = f"{first}" if first == last else f"{first} to {last}"
        return days if self.words == days else f"{days} ({self.words})"

    def rest_of(self, text: str) -> str:
        """The text of a question without the words that name the period."""
        words = r"\s+".join(map(re.escape, self.words.split()))
        return " ".join(re.sub(rf"(?<!\w){words}(?!\w)", " ", text, count=1).split())

    @property
    def is_relative(self) -> bool:
        """Whether the words name no month and no year, which the text of a record could contain: "last week"."""
        words = re.findall(r"\w+", self.words.lower())
        return not any(word in MONTHS or re.fullmatch(r"(?:19|20)\d\d", word) for word in words)


def _any(names: dict[str, int] | dict[str, str]) -> str:
    return "|".join(sorted(names, key=len, reverse=True))


_NUMBER = rf"(?P<number>\d{{1,3}}|(?:a\s+)?couple(?:\s+of)?|{_any(NUMBERS)})"
_UNIT = rf"(?P<unit>{_any(UNITS)})"
_ONE_UNIT = r"(?P<unit>day|week|month|year|tag|woche|monats?|jahr(?:es)?)"
_MONTH, _WEEKDAY = rf"(?P<month>{_any(MONTHS)})\.?", rf"(?P<weekday>{_any(WEEKDAYS)})"
_YEAR = r"(?P<year>(?:19|20)\d\d)"
_DAY = r"(?P<day>3[01]|[12]\d|0?[1-9])(?P<ordinal>st|nd|rd|th|\.)?"
_LAST = r"(?P<last>last|past|previous|letzte[nmrs]?|vorige[nmrs]?|vergangene[nmrs]?)"
_THIS = r"(?P<this>this|diese[nmrs]?)"
_NEXT = r"(?P<next>next|coming|nächste[nmrs]?|kommende[nmrs]?)"


def _shifted(day: date, months: int) -> date:
    """The same day some months later, or the last of that month."""
    from calendar import monthrange

    years, month = divmod(day.year * 12 + day.month - 1 + months, 12)
    return date(years, month + 1, min(day.day, monthrange(years, month + 1)[1]))


def _around(day: date, unit: str) -> tuple[date, date]:
    """The day, week (from Monday), month or year that a day is in: its first day, and the first one after it."""
    match unit:
        case "week":
            first = day - day.weekday() * DAY
            return first, first + 7 * DAY
        case "month":
            return day.replace(day=1), _shifted(day.replace(day=1), 1)
        case "year":
            return date(day.year, 1, 1), date(day.year + 1, 1, 1)
    return day, day + DAY


def _moved(day: date, unit: str, count: int) -> date:
    if unit in ("month", "year"):
        return _shifted(day, count * (12 if unit == "year" else 1))
    return day + count * (7 if unit == "week" else 1) * DAY


def _relative(match: re.Match[str], today: date) -> tuple[date, date]:
    """Last week, this month, next year; last Monday, this Friday."""
    parts = match.groupdict()
    step = -1 if parts.get("last") else 1 if parts.get("next") else 0
    if parts.get("weekday"):
        return _weekday(match, today)
    unit = UNITS[parts["unit"].lower()]
    if unit == "day":
        raise ValueError("the last day is not yesterday")
    return _around(_moved(today, unit, step), unit)


def _weekday(match: re.Match[str], today: date) -> tuple[date, date]:
    """The last day with this name before today, or the next one; "this Friday" is today or later."""
    parts = match.groupdict()
    ahead = (WEEKDAYS[parts["weekday"].lower()] - today.weekday()) % 7
    if parts.get("next"):
        return _around(today + (ahead or 7) * DAY, "day")
    is_ahead = parts.get("this") or (not ahead and not parts.get("last"))
    return _around(today + (ahead if is_ahead else ahead - 7) * DAY, "day")


def _count(match: re.Match[str]) -> int:
    number = (match.groupdict().get("number") or "one").lower()
    return int(number) if number.isdecimal() else NUMBERS["couple" if "couple" in number else number]


def _ago(match: re.Match[str], today: date) -> tuple[date, date]:
    unit = UNITS[match["unit"].lower()]
    return _around(_moved(today, unit, -_count(match)), unit)


def _next_period(match: re.Match[str], today: date) -> tuple[date, date]:
    return _around(_moved(today, UNITS[match["unit"].lower()], _count(match)), "day")


def _back(match: re.Match[str], today: date) -> tuple[date, date]:
    """The day "two weeks ago today". In a field, "2 days" is the day two days ago, as `2d` is."""
    return _around(_moved(today, UNITS[match["unit"].lower()], -_count(match)), "day")


def _recent(match: re.Match[str], today: date) -> tuple[date, date]:
    """The last three days, the past week: until today, which belongs to it."""
    return _moved(today, UNITS[match["unit"].lower()], -_count(match)), today + DAY


def _check_month(match: re.Match[str], sure: Sequence[str]) -> None:
    """Refuse the name of a month that may be another word: "which of the 3 may", "from march to april"."""
    name, year = match["month"], match.groupdict().get("year")
    begins = match.group().split()[0].lower()
    if name.lower() in AMBIGUOUS and not year and begins not in sure and (name.islower() or not match.start()):
        raise ValueError(f"{name} may be another word")


def _month(match: re.Match[str], today: date) -> tuple[date, date]:
    """A month, of a year or the last one of this name."""
    month = MONTHS.get(match["month"].lower()) or int(match["month"])
    _check_month(match, sure=["in", "during", "since", "last", "this", "im", "seit"])
    year, last = (match.groupdict().get(name) for name in ("year", "last"))
    first = date(int(year) if year else today.year - (month > today.month - bool(last)), month, 1)
    return _around(first, "month")


def _date(match: re.Match[str], today: date) -> tuple[date, date]:
    """A day, of a year or the last one before today."""
    parts = match.groupdict()
    month, day = parts["month"].lower(), int(parts["day"])
    if not parts.get("ordinal"):
        _check_month(match, sure=())
    number = MONTHS.get(month) or int(month)
    year = int(parts["year"]) if parts.get("year") else today.year - ((number, day) > (today.month, today.day))
    return _around(date(year, number, day), "day")


def _year(match: re.Match[str], today: date) -> tuple[date, date]:  # noqa: ARG001  (one signature for all)
    return _around(date(int(match["year"]), 1, 1), "year")


def _days_from_today(days: int) -> Callable[[re.Match[str], date], tuple[date, date]]:
    return lambda _, today: _around(today + days * DAY, "day")


_IN = r"(?:in|during|since|of|from|im|seit|vom|ab)"
_ON = r"(?:on|since|from|am|seit|vom|ab)(?:\s+the|\s+dem)?"
_SINCE = ("since", "seit", "ab")
_SINCE_THEN = rf"(?<!\w)(?:{'|'.join(_SINCE)})(?:\s+(?:the|dem|der))?\s+$"
_OTHER_SIDE = (  # of the time that is named: "before March 2026", "until the end of May", "between March and May"
    r"(?<!\w)(?:before|until|till|prior\s+to|after|vor|bis|nach)(?:\s+(?:the|dem|der|den|zum|zur))?"
    r"(?:\s+(?:end|start|beginning|ende|anfang))?\s+$"
    r"|(?<!\w)(?:except|excluding|other\s+than|außer)\s+$|\w:[\"“„]?$"  # `until:today` that was not read as a field
    r"|(?<!\w)(?:between|zwischen)\s+(?:[^.?!]*\s(?:and|und)\s+)?$"
)
_NOT_OF = rf"(?!\s+(?:of|des|(?:in|im|vom)\s+(?:{_any(MONTHS)}))\b)"  # "the last week of May" is not last week
_RULES: tuple[tuple[str, Callable[[re.Match[str], date], tuple[date, date]]], ...] = (
    (r"(?:the\s+)?day\s+before\s+yesterday|vorgestern", _days_from_today(-2)),
    (r"yesterday|gestern", _days_from_today(-1)),
    (rf"{_NUMBER}\s+{_UNIT}\s+ago\s+today", _back),
    (rf"heute\s+vor\s+{_NUMBER}\s+{_UNIT}", _back),
    (r"today|heute", _days_from_today(0)),
    (rf"(?:in|over|within|during)\s+the\s+(?:last|past)\s+{_NUMBER}\s+{_UNIT}{_NOT_OF}", _recent),
    (rf"(?:in|over|within|during)\s+the\s+(?:last|past)\s+{_ONE_UNIT}{_NOT_OF}", _recent),
    (rf"(?:last|past)\s+{_NUMBER}\s+{_UNIT}{_NOT_OF}", _recent),
    (rf"(?:the\s+)?past\s+{_ONE_UNIT}{_NOT_OF}", _recent),
    (rf"in\s+den\s+letzten\s+{_NUMBER}\s+{_UNIT}{_NOT_OF}", _recent),
    (rf"(?<!half\s){_NUMBER}\s+{_UNIT}\s+ago", _ago),
    (rf"vor\s+{_NUMBER}\s+{_UNIT}", _ago),
    (rf"(?:the\s+)?(?:{_LAST}|{_THIS}|{_NEXT})\s+(?:{_ONE_UNIT}|{_WEEKDAY}){_NOT_OF}", _relative),
    (r"(?P<year>(?:19|20)\d\d)-(?P<month>1[0-2]|0[1-9])-(?P<day>3[01]|[12]\d|0[1-9])", _date),
    (r"(?P<day>3[01]|[12]\d|0?[1-9])\.(?P<month>1[0-2]|0?[1-9])\.(?P<year>(?:19|20)\d\d)", _date),
    (rf"{_ON}\s+{_WEEKDAY}", _weekday),
    (rf"(?:{_ON}\s+)?{_DAY}\s+(?:of\s+)?{_MONTH},?\s+{_YEAR}", _date),
    (rf"(?:{_ON}\s+)?{_MONTH}\s+{_DAY},?\s+{_YEAR}", _date),
    (rf"{_ON}\s+{_DAY}\s+(?:of\s+)?{_MONTH}", _date),
    (rf"{_ON}\s+{_MONTH}\s+{_DAY}", _date),
    (rf"{_DAY}\s+(?:of\s+)?{_MONTH}", _date),
    (rf"{_MONTH}\s+{_DAY}", _date),
    (rf"(?:{_IN}\s+)?{_MONTH},?\s+{_YEAR}", _month),
    (rf"{_IN}\s+(?:{_LAST}\s+)?{_MONTH}", _month),
    (rf"(?:{_LAST}|{_THIS})\s+{_MONTH}", _month),
    (rf"{_IN}\s+(?:(?:the\s+year|(?:dem\s+)?jahre?)\s+)?{_YEAR}(?!\s+\w+s\b)", _year),  # not "in 2000 files"
)
_AHEAD = (
    (r"tomorrow|morgen", _days_from_today(1)),
    (r"the\s+day\s+after\s+tomorrow|übermorgen", _days_from_today(2)),
    (rf"in\s+{_NUMBER}\s+{_UNIT}", _next_period),
)
_ALONE = (  # in a field, nothing else can be meant
    (_MONTH, _month), (_WEEKDAY, _weekday), (_YEAR, _year), (rf"{_NUMBER}\s+{_UNIT}", _back),
    (r"(?P<year>(?:19|20)\d\d)-(?P<month>1[0-2]|0[1-9])", _month),
)  # fmt: skip

LONGEST = 1_000  # characters of a question in which a date is looked for
_NAMES = {  # a question names a time only if it has one of these words, or a year
    *MONTHS, *WEEKDAYS, "ago", "last", "past", "previous", "this", "next", "coming", "yesterday", "gestern",
    "vorgestern", "today", "heute", "vor",
}  # fmt: skip
_DECLINED = {"letzte", "vorige", "vergangene", "diese", "nächste"}  # may have one more letter

Rule = tuple[re.Pattern[str], Callable[[re.Match[str], date], tuple[date, date]]]


@cache
def _compiled(field: bool) -> tuple[Rule, ...]:
    """The rules for a question or, with more of them, for a field that can only be a time."""
    rules = (*_AHEAD, *_RULES, *_ALONE) if field else _RULES
    return tuple((re.compile(rf"(?<!\w)(?:{rule})(?!\w)", re.IGNORECASE), period) for rule, period in rules)


def _may_name_a_time(word: str) -> bool:
    is_year = len(word) == 4 and word[:2] in ("19", "20") and word.isdecimal()  # noqa: PLR2004
    return is_year or word in _NAMES or word in _DECLINED or word[:-1] in _DECLINED


def find_period(text: str, now: datetime) -> Period | None:
    """The time that a question asks about, if it names one; None if it asks about the time before or after that."""
    text = text[:LONGEST]
    if not any(map(_may_name_a_time, re.findall(r"\w+", text.lower()))):
        return None
    for pattern, period in _compiled(field=False):
        for match in pattern.finditer(text):
            before = text[: match.start()]
            since = re.search(_SINCE_THEN, before, re.IGNORECASE)
            if named := _period(match, period, now, since=since.group() if since else ""):
                return None if re.search(_OTHER_SIDE, before, re.IGNORECASE) else named
    return None


# Words of a question about a time that nothing is found by: "what happened last week?", "my notes of yesterday"
_CONTENTLESS = """
    happen happens happened happening go goes going gone went say says said saying tell tells told talk talks talked
    talking speak spoke spoken discuss discussed discussing write writes wrote written writing note notes noted entry
    entries record records recorded change changes changed new show list get got everything
    habe haben habt machen mache machte machten gemacht tun tat getan passiert passierte passieren geschah geschehen
    los ging gegangen gab gibt gegeben sagen sagte sagten gesagt sprechen sprach sprachen gesprochen besprochen reden
    geredet erzählt schreiben schrieb geschrieben notiz notizen notiert eintrag einträge geändert neu neues zeig zeige
    alles welche welches worüber wovon meine meiner unsere
"""
# Words that a decision or a plan seldom has itself
_VAGUE = """
    decide decides decided agree agreed plan plans planned learn learned learnt work works worked working
    beschließen beschlossen entscheiden entschieden vereinbart geplant gelernt arbeiten gearbeitet
"""


def content_of(text: str) -> tuple[bool, bool]:
    """Whether a question has words besides those of a time that a search can look for, and whether all are vague."""
    words = set(re.findall(r"[^\W_]+", text.lower()))
    words -= frozenset(_CONTENTLESS.split()).union(*map(stopwords, ("english", "german", "contracted")))
    return bool(words), words <= set(_VAGUE.split())


def read_period(text: str, now: datetime, *, ahead: bool = False) -> Period | None:
    """The time that a field is, such as "yesterday", "last-week" or "in 2 days"; None if it is none in words.

    A weekday, a month or a day without a year is the last one, or the next one that begins after today if `ahead`.
    """
    text = text.strip()
    text = text if any(map(str.isdecimal, text)) else text.replace("-", " ")
    for pattern, period in _compiled(field=True) if len(text) <= LONGEST else ():
        # In May: then it is no other word. A field that is a number of days looks back, unless it must look ahead.
        for field in (text,) if period is _next_period and not ahead else (text, f"in {text}"):
            if (match := pattern.fullmatch(field)) and (named := _period(match, period, now, ahead=ahead)):
                return named
    return None


def _period(
    match: re.Match[str], period: Callable[[re.Match[str], date], tuple[date, date]], now: datetime, *,
    since: str = "", ahead: bool = False,
) -> Period | None:  # fmt: skip
    words, today = f"{since}{match.group()}".split(), now.astimezone(UTC).date()
    try:
        first, end = period(match, _day_to_look_back_from(match, today) if ahead else today)
        end = max(end, today + DAY) if words[0].lower() in _SINCE else end
    except (ValueError, OverflowError):  # 31 February, or a word that is no date here
        return None
    return Period(datetime.combine(first, time(), UTC), datetime.combine(end, time(), UTC), " ".join(words))


def _day_to_look_back_from(match: re.Match[str], today: date) -> date:
    """A week or a year after today: from there, the next weekday or month of a name is the last one."""
    parts = match.groupdict()
    if parts.get("last") or parts.get("next") or parts.get("year"):
        return today
    if parts.get("weekday"):
        return today if parts.get("this") else today + 7 * DAY
    return _shifted(today, 12) if parts.get("month") else today


_FORMATS = "%d.%m.%Y", "%d.%m.%Y %H:%M", "%Y/%m/%d"


def written_date(text: str) -> date | None:
    """The day or the time that a text is: `2024-05-17`, `2024-05-17 19:30`, `17.05.2024`; a time is a `datetime`."""
    with suppress(ValueError):
        return date.fromisoformat(text.strip())
    with suppress(ValueError):
        return datetime.fromisoformat(text.strip())
    for form in _FORMATS:
        with suppress(ValueError):
            moment = datetime.strptime(text.strip(), form)  # noqa: DTZ007  (the caller adds the time zone)
            return moment if "%H" in form else moment.date()
    return None


def moment_of(value: object, *, end: bool = False) -> datetime | None:
    """A time of the front matter in UTC, if it has none of its own; a day is its beginning, or with `end` its end."""
    if isinstance(value, str):
        value = written_date(value)
    if isinstance(value, datetime):
        return value.replace(tzinfo=value.tzinfo or UTC)
    if isinstance(value, date):
        day = datetime.combine(value, time(), UTC)
        return day + DAY if end and value < date.max else day
    return None


_DATED = r"(?<!\d)(?P<year>(?:19|20)\d\d)[-_.]?(?P<month>1[0-2]|0[1-9])[-_.]?(?P<day>3[01]|[12]\d|0[1-9])(?!\d)"


def date_in_name(name: str) -> datetime | None:
    """The date in the name of a file, such as `2026-03-14-notes.md`."""
    if (match := re.search(_DATED, name)) is None:
        return None
    try:
        return datetime(int(match["year"]), int(match["month"]), int(match["day"]), tzinfo=UTC)
    except ValueError:  # 31 February
        return None
