"""The setup that is checked, and the checks of this machine: settings, packages, the store, its files and its disk."""

import contextlib
import difflib
import os
import platform
import re
import shlex
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from importlib.metadata import distribution, requires
from pathlib import Path
from typing import Self

from recollect import __version__, config
from recollect.config import has_secret, misspelt, unknown_variables, user_file
from recollect.config.settings import OTHER_VARIABLES, Settings, variables
from recollect.config.trust import PROJECT_FILE
from recollect.config.values import shown_place
from recollect.errors import DISTRIBUTION, ConfigError, RecollectError, TimedOut
from recollect.ingest.recutting import outdated
from recollect.memory import Memory, default_store
from recollect.memory.filling import filling
from recollect.models.catalogue import MODELS
from recollect.models.embedders import EMBEDDERS, SERVICES, open_embedder
from recollect.moving.archive import Backup, unpack
from recollect.moving.backups import BackupSchedule
from recollect.stages import freshness
from recollect.stores import STORES, StoreKind, kind_of, scheme_of
from recollect.stores.health import (
    LONGEST_S,
    Examination,
    Finding,
    NotExamined,
    Reporter,
    State,
    is_file,
    readable_by_others,
    restrict,
)
from recollect.types import EVERYTHING, Store, Work

NOWHERE = Path(os.devnull)  # a folder that holds no project's file
NAMED = 3  # folders that are named one by one


@dataclass(frozen=True, slots=True)
class Setup:
    """One user's setup. `wrong` says why a settings file cannot be read; that file and later ones are left out.

    `notes` says why a project's file was not used. `flags` are the command-line flags that make a suggested command act
    on the same store.
    """

    settings: Settings = field(default_factory=Settings)
    read: tuple[Path, ...] = ()
    wrong: tuple[Finding, ...] = ()
    flags: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def load(cls, *, named: Path | None = None, flags: Mapping[str, object] | None = None) -> Self:
        """The settings from all sources; errors in them become findings."""
        flags = flags or {}
        chosen = named or (Path(file) if (file := os.environ.get("RECOLLECT_CONFIG")) else None)
        files = (chosen,) if chosen else (config.user_file(), Path.cwd() / PROJECT_FILE)
        place = flags.get("store") or os.environ.get("RECOLLECT_STORE")
        loaded = config.Loaded(replace(Settings(), store=str(place) if place else None), {})
        wrong, effect = tuple[Finding, ...](), "until then the defaults are checked"
        try:
            loaded = config.load(config=chosen, flags=flags, folder=NOWHERE)
            if chosen is None:
                effect = "no command works in this folder until then"
                loaded = config.load(flags=flags)
        except ConfigError as error:
            wrong = (Finding("settings", "failure", f"{error.message} ({effect})", error.hint),)
        except OSError as error:
            message = f"{error.filename} cannot be read: {error.strerror} ({effect})"
            mend = "give yourself permission to read it, or name another with --config"
            wrong = (Finding("settings", "failure", message, mend),)
        if loaded.notes:
            files = (config.user_file(),)
        places = [("--store", flags.get("store")), ("--config", named)]
        words = "".join(f" {flag} {shlex.quote(shown_place(str(value)))}" for flag, value in places if value)
        return cls(loaded.settings, tuple(filter(is_file, files)), wrong, words, loaded.notes)

    @property
    def place(self) -> str:
        """The path or URL of the store, as the user wrote it."""
        return self.settings.place

    @property
    def kind(self) -> StoreKind:
        """The kind of the store. Raises UsageError where nothing has it, or a package that it needs is missing."""
        return kind_of(self.place)

    @property
    def examination(self) -> Examination:
        """The part of the setup that the checks of a store need."""
        language, embedder = self.settings.language, self.settings.embedder
        # A fix sends no texts to a service, which may charge for them; a person can run the command.
        embed = None if embedder.partition(":")[0] in (*SERVICES, "none") else self._embed
        return Examination(self.place, self.flags, language, embedder, self._fingerprint, embed)

    def _fingerprint(self) -> str:
        """The fingerprint of the embedder in the settings; "" where only loading a model would tell it."""
        spec = self.settings.embedder
        name = spec.partition(":")[0]
        with contextlib.suppress(RecollectError):  # the check of the model reports what is wrong with it
            if name in MODELS:
                return EMBEDDERS.load(name)(spec).fingerprint
            if name in ("hashing", *SERVICES):
                return open_embedder(spec, settings=self.settings).fingerprint
        return ""

    def _embed(self, reporter: Reporter) -> None:
        reporter.announce(f"computing the missing vectors of {self.settings.embedder}")
        fetching = reporter.progress("fetching")
        with Memory.open(self.place, settings=self.settings, announce=reporter.announce, fetching=fetching) as memory:
            memory.embed(progress=reporter.progress("embedding"))


def settings(setup: Setup) -> list[Finding]:
    """Whether every settings file can be read, and every environment variable is a setting."""
    wrong = [*setup.wrong, *(Finding("settings", "note", note, "recollect trust") for note in setup.notes)]
    known = [*OTHER_VARIABLES, *variables()]
    for variable in unknown_variables(os.environ):
        near = difflib.get_close_matches(variable, known, n=1)
        mend = f"did you mean {near[0]}? else: unset {variable}" if near else f"unset {variable}"
        wrong.append(Finding("settings", "warning", f"{variable} is not a setting and is ignored", mend))
    available = ("keyword", "vector", *(source.name for source in setup.settings.sources))
    for name in setup.settings.search.sources or ():
        if name not in available:
            message = f"search.sources names {name!r}, and there is no such source: every search fails"
            wrong.append(Finding("settings", "failure", message, f"available: {', '.join(available)}"))
    read = ", ".join(map(str, setup.read))
    return wrong or [Finding("settings", "ok", f"read from {read}" if read else "defaults; there is no settings file")]


def versions(setup: Setup) -> Iterator[Finding]:  # noqa: ARG001  (a check's form)
    """Whether the engine of the default store is safe to use."""
    engine = kind_of(str(default_store())).engine()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    yield Finding("versions", "ok", f"recollect {__version__}, {python}, {engine}")


def extras(setup: Setup) -> Iterator[Finding]:
    """Whether the packages that the settings need are installed."""
    scheme = scheme_of(setup.place)
    parts = {
        f"embedder = {setup.settings.embedder!r}": EMBEDDERS.builtin.get(setup.settings.embedder.partition(":")[0]),
        f"a store at {scheme}://…": STORES.builtin.get(scheme),
    }
    needed = {what: entry for what, entry in parts.items() if entry and entry.extra}
    missing = {what: entry.extra for what, entry in needed.items() if not entry.installed}
    for what, extra in missing.items():
        message = f"{what} needs a package that is not installed"
        yield Finding("extras", "failure", message, f"pip install '{DISTRIBUTION}[{extra}]'")
    if not missing:
        names = ", ".join(entry.extra or "" for entry in needed.values())
        present = [name for name, complete in _extras().items() if complete and name != "dev"]
        message = f"the settings need {names or 'none'}; installed: {', '.join(present) or 'none'}"
        yield Finding("extras", "ok", message)


def _extras() -> dict[str, bool]:
    """Every extra of this project, and whether everything it brings is installed."""
    extras: dict[str, bool] = {}
    with contextlib.suppress(ModuleNotFoundError):  # run from its source
        for line in requires(DISTRIBUTION) or []:
            package, extra = re.match(r"[\w.-]+", line), re.search(r"extra == ['\"]([\w-]+)", line)
            if package and extra:
                extras.setdefault(extra[1], True)
                try:
                    distribution(package[0])
                except ModuleNotFoundError:
                    extras[extra[1]] = False
    return extras


def _store_check(name: str) -> Callable[[Setup], list[Finding]]:
    """Make a check by the kind of store, or for `files` by the store. Only `store` reports an unreadable store."""

    def check(setup: Setup) -> list[Finding]:
        try:
            kind = setup.kind
        except RecollectError:
            if name == "store" and not misspelt(setup.place):  # the check of the settings reports a misspelt place
                raise
            return [Finding(name, "note", "not checked: the store cannot be read")]
        try:
            if name != "files":
                background = _background(setup) if name == "vectors" else ()
                return [*kind.examine(name, setup.examination), *background]
            with kind.inspect(setup.place) as opened:
                return list(_files(opened, setup.flags, shared=kind.shared))
        except NotExamined as error:
            return [Finding(name, "note", f"not checked: {error.message}")]

    check.__name__ = name
    return check


store, keywords, vectors, files = map(_store_check, ("store", "keywords", "vectors", "files"))


def _background(setup: Setup) -> Iterator[Finding]:
    """How far the process is that computes vectors in the background, or why it ended."""
    with contextlib.suppress(RecollectError), setup.kind.inspect(setup.place) as opened:  # the check `store` reports it
        if process := filling(opened):
            state: State = "warning" if process.error else "note"
            mend = f"recollect embed{setup.flags}" if process.error else ""
            yield Finding("vectors", state, f"in the background: {process}", mend)


def _files(opened: Store, flags: str, *, shared: bool) -> Iterator[Finding]:
    """Whether the indexed files and their folders are still there, and unchanged."""
    known = {path: state for root in opened.files.roots() for path, state in opened.files.known(root).items()}
    gone = sorted(root for root in {state.root for state in known.values()} if not Path(root).exists())
    near = [state for state in known.values() if state.root not in gone]
    if gone:
        yield _gone_folders(gone, len(known) - len(near), flags, shared=shared)
    if stale := [(mark, state.root) for state in near if (mark := freshness(state.path, state)) != "fresh"]:
        yield _stale_files(opened, stale, len(near), flags)
    elif near:
        indexed = sum(not state.problem for state in near)
        yield Finding("files", "ok", f"all {indexed:,} are unchanged since they were indexed")
    elif not known:
        yield Finding("files", "ok", "no folder is mirrored")
    if older := sum(outdated(opened.files).values()):
        message = f"up to {older:,} were cut into chunks by the rules of an older release"
        yield Finding("files", "note", message, f"recollect migrate --chunks --evaluate{flags}")


def _gone_folders(gone: Sequence[str], count: int, flags: str, *, shared: bool) -> Finding:
    folders = ", ".join(gone[:NAMED]) + (" …" if len(gone) > NAMED else "")
    if shared:
        return Finding("files", "note", f"{count:,} are in folders that are not on this machine: {folders}")
    folder = shlex.quote(gone[0])
    mend = f"recollect folders rename {folder} NEW{flags}, or recollect folders remove {folder}{flags}"
    return Finding("files", "warning", f"{count:,} are in folders that are gone: {folders}", mend)


def _stale_files(opened: Store, stale: Sequence[tuple[str, str]], among: int, flags: str) -> Finding:
    """The finding for files that are not as they were indexed, each given as its state and its folder."""
    counts = Counter(mark for mark, _ in stale)
    summary = " and ".join(f"{count:,} {mark}" for mark, count in sorted(counts.items()))
    roots = list(dict.fromkeys(root for _, root in stale))
    where = shlex.join(roots[:NAMED]) + (" …" if len(roots) > NAMED else "")
    # Without the flags for their tags and scope the files would be indexed as others.
    facets = opened.facets(replace(EVERYTHING, kinds=("chunk",)))
    same = ", with the flags that it was indexed with" if facets["tags"] or any(facets["scopes"]) else ""
    mend = f"recollect index {where}{flags}{same}"
    if counts.keys() == {"unreadable"}:  # indexing them again would not help
        mend = f"give yourself permission to read the files in {where}"
    return Finding("files", "warning", f"{summary} since they were indexed, of {among:,}", mend)


def disk(setup: Setup) -> Iterator[Finding]:
    """Whether there is room on the disk, whether the store can be written, and who else can read it."""
    with contextlib.suppress(RecollectError):  # the check of the store reports it
        yield from setup.kind.examine("disk", setup.examination)
    file = user_file()
    if readable_by_others(file):
        secret = has_secret(setup.place)
        password = ", with the password of the store" if secret else ""
        message = f"every user of this machine can read {file}{password}"
        yield Finding("disk", "warning" if secret else "note", message, f"chmod 600 {shlex.quote(str(file))}")


def backup(setup: Setup) -> Iterator[Finding]:
    """Whether the last scheduled backup is recent, and whether it is still as it was written."""
    settings = setup.settings.backup
    if settings.folder is None:
        yield Finding("backup", "ok", "no schedule is set; `recollect backup FILE` makes one backup")
        return
    try:
        with setup.kind.inspect(setup.place) as opened:
            schedule = BackupSchedule(settings, opened, {}, lambda _: None)
            last = schedule.last()
    except RecollectError:
        yield Finding("backup", "note", "not checked: the store cannot be read")
        return
    mend = f"recollect backup {shlex.quote(str(schedule.folder))}/ --keep {settings.keep}{setup.flags}"
    if last is None:
        yield Finding("backup", "warning", f"there is no backup of this store in {schedule.folder}", mend)
        return
    made = f"the last backup was made and checked on {last.made_at:%Y-%m-%d at %H:%M} UTC: {last.path}"
    if problem := _damage(last):
        yield Finding("backup", "failure", problem, mend)
    elif datetime.now(UTC) - last.made_at > 2 * schedule.every:
        late = f"{made}; one is due every {settings.every_hours:g} hours"
        service = "`recollect serve`, `watch` or its service make them while they run"
        yield Finding("backup", "warning", late, f"{mend}; {service}")
    else:
        yield Finding("backup", "ok", made)


def _damage(last: Backup) -> str:
    """What is wrong with a backup; "" if nothing is, as far as there is time to read it."""
    work = Work(LONGEST_S)
    try:
        unpack(last, None, lambda *_: work.check())
    except TimedOut:
        return ""
    except (RecollectError, OSError) as error:
        return str(error)
    return ""


def tokens(setup: Setup) -> Iterator[Finding]:  # noqa: ARG001  (a check's form)
    """Whether only the user can read the tokens of `recollect serve`."""
    path = user_file().parent / "tokens.json"
    if not is_file(path):
        yield Finding("tokens", "ok", "there are none")
    elif os.name == "posix" and path.stat().st_mode & 0o077:
        message = f"others can use {path}: its mode is {path.stat().st_mode & 0o777:o}, not 600"
        yield Finding("tokens", "warning", message, f"chmod 600 {shlex.quote(str(path))}", partial(restrict, [path]))
    else:
        yield Finding("tokens", "ok", f"{path} can be read only by you")
