"""The steps that `deploy/` and `docs/postgresql.md` give an operator, run here without containers."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx2
import psycopg
import pytest
import yaml
from support import ROOT
from support import postgres as server_kit
from support.forking import recollect_words

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.web.access import Caller, Tokens

DEPLOY = ROOT / "deploy"
CLUSTER = DEPLOY / "cluster"
SCRIPTS = {
    "coordinator": {"citus.sh", "main.sh"},
    "worker1": {"citus.sh"},
    "worker2": {"citus.sh"},
    "join": {"join.sh"},
}
SECRETS = ("admin", "owner", "service", "replica")
RULES = "local all all trust\nhost all all all scram-sha-256\n"
"""What the image of PostgreSQL lets in."""

pytestmark = pytest.mark.xdist_group("postgres deploy")


def free_port() -> str:
    """A port where nobody listens."""
    with socket.socket() as door:
        door.bind(("127.0.0.1", 0))
        return str(door.getsockname()[1])


class Site:
    """A main server, its replica and the secrets, made by the scripts that the containers run."""

    def __init__(self, programs: Path | None = None, **settings: str) -> None:
        self.port, self.replica_port = free_port(), free_port()
        self.server = server_kit.Server.make(
            programs, fsync="off", listen_addresses="127.0.0.1", port=self.port, **settings
        )
        self.secrets = self.server.folder / "secrets"
        self.secrets.mkdir()
        for name in SECRETS:
            (self.secrets / name).write_text(f"the {name}'s\n")
        (self.server.data / "pg_hba.conf").write_text(RULES)

    def environment(self, **more: str) -> dict[str, str]:
        """What a script finds around it."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith(("PG", "RECOLLECT_"))}
        path = os.pathsep.join([str(Path(sys.executable).parent), str(self.server.bin), kept["PATH"]])
        return {**kept, "PATH": path, "SECRETS": str(self.secrets), "RECOLLECT_EMBEDDER": "hashing:64", **more}

    def run(self, script: str, *words: str, **more: str) -> None:
        """Run one of the scripts to its end."""
        command = [str(DEPLOY / script), *words]
        ran = subprocess.run(command, env=self.environment(**more), capture_output=True, text=True, check=False)
        assert ran.returncode == 0, ran.stderr

    def make(self, script: str, **more: str) -> None:
        """Run a script that a container runs when the folder of its server is made."""
        self.run(script, PGDATA=str(self.server.data), PGHOST=str(self.server.folder), PGPORT=self.port, **more)
        with psycopg.connect(self.server.url(port=self.port), autocommit=True) as admin:
            admin.execute("SELECT pg_reload_conf()")

    @contextlib.contextmanager
    def replica(self) -> Iterator[None]:
        """The replica runs."""
        folder = self.server.folder / "replica"
        broken = folder / "18" / "docker.new" / "of a copy that was interrupted"
        broken.mkdir(parents=True)
        if self.server.user:
            for part in (folder, *folder.rglob("*")):
                shutil.chown(part, self.server.user)
        more = {"PGDATA": str(folder / "18" / "docker"), "PGPASSFILE": str(folder / "pgpass"), "MAIN": "127.0.0.1"}
        settings = (f"port={self.replica_port}", f"unix_socket_directories={folder}")
        command = [str(DEPLOY / "replica.sh"), *(word for setting in settings for word in ("-c", setting))]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                command, env=self.environment(PGPORT=self.port, **more), stdout=log, stderr=log, user=self.server.user
            )
        try:
            yield
        finally:
            process.send_signal(signal.SIGINT)  # does not wait for those who are connected
            process.wait(30)

    def url(self, role: str, password: str, *, replica: bool = False) -> str:
        """Where a role finds the database."""
        port = self.replica_port if replica else self.port
        return f"postgresql://{role}:{quote(password)}@127.0.0.1:{port}/recollect"


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    """A site with its tables."""
    site = Site(wal_keep_size="1GB")
    try:
        site.make("main.sh")
        place = f"postgresql://recollect_owner@127.0.0.1:{site.port}/recollect"
        site.run("prepare.sh", RECOLLECT_STORE=place, PASSWORD_FILE=str(site.secrets / "owner"))
        yield site
    finally:
        site.server.remove()


@pytest.fixture
def service(site: Site) -> Callable[..., Any]:
    """Opens the memory as the service does."""
    return lambda more="": Memory.open(
        site.url("recollect", "the service's") + more, embedder="hashing:64", settings=Settings()
    )


@pytest.mark.ci
def test_service_sees_only_its_callers_scope(site: Site, service: Callable[..., Any]) -> None:
    """It finds and writes its caller's records, and without a caller it sees nothing."""
    with service() as memory:
        memory.within(Scope("eve")).add("an egret of eve's", id="eve")
        memory.within(Scope("dan")).add("an egret of dan's", id="dan")
        assert [result.record.id for result in memory.within(Scope("eve")).search("egret").results] == ["eve"]
    with psycopg.connect(site.url("recollect", "the service's")) as raw:
        assert raw.execute("SELECT count(*) FROM recollect.records WHERE text LIKE '%egret%'").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            raw.execute("DELETE FROM recollect.migrations")


@contextlib.contextmanager
def serving(site: Site, folder: Path, callers: Sequence[Caller]) -> Iterator[Callable[[str], httpx2.Client]]:
    """A `recollect serve` under the service's role with the tokens in a folder, and clients of its callers."""
    tokens = Tokens(folder / "tokens.json")
    made = {caller.name: tokens.add(caller) for caller in callers}
    place = site.url("recollect", "the service's")
    command = recollect_words("serve", "--port", "0", "--store", place, "--tokens", folder / "tokens.json")
    around = site.environment(HOME=str(folder), XDG_CONFIG_HOME=str(folder), RECOLLECT_OFFLINE="1")
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(subprocess.Popen(command, env=around, stderr=subprocess.PIPE, text=True))
        stack.callback(server.terminate)
        url = next(line.split()[2] for line in server.stderr if line.startswith("serving at "))
        yield lambda name: stack.enter_context(
            httpx2.Client(base_url=url, headers={"Authorization": f"Bearer {made[name]}"}, timeout=60, trust_env=False)
        )


@pytest.fixture
def clients(site: Site, tmp_path: Path) -> Iterator[Callable[[str], httpx2.Client]]:
    """A `recollect serve`, and clients of the owner and Bob."""
    with serving(site, tmp_path, [Caller("owner", owner=True), Caller("bob", Scope("bob"))]) as client:
        yield client


BOBS = {"user": "bob"}


@pytest.mark.ci
def test_owner_can_write_for_a_scope(clients: Callable[[str], httpx2.Client]) -> None:
    """Also with row-level security: 201 with the record and its history entry, and Bob finds it."""
    owner, bob = clients("owner"), clients("bob")
    told = owner.post("/v1/records", json={"text": "A plover for bob.", "scope": BOBS})
    assert told.status_code == 201, told.text
    record = told.json()
    assert (record["text"], record["scope"], record["change"]["action"]) == ("A plover for bob.", BOBS, "add")
    assert bob.get(f"/v1/records/{record['id']}").json()["text"] == "A plover for bob."


@pytest.mark.ci
def test_owner_reaches_a_record_by_naming_its_scope(clients: Callable[[str], httpx2.Client]) -> None:
    """Read, history, edit, supersede, forget and undo, with the scope in the URL or the body."""
    owner, bob = clients("owner"), clients("bob")
    key = bob.post("/v1/records", json={"text": "A dunlin of bob's."}).json()["id"]
    address, named = f"/v1/records/{key}", {"params": BOBS}
    assert owner.get(address, **named).json()["text"] == "A dunlin of bob's."
    changed = owner.patch(address, json={"title": "Dunlin"}, **named)
    assert (changed.status_code, changed.json()["change"]["action"]) == (200, "update")
    events = owner.get(f"/v1/history/{key}", **named).json()["events"]
    assert [event["action"] for event in events] == ["add", "update"]
    undone = owner.post("/v1/undo", json={"id": key, "seq": events[-1]["seq"], "scope": BOBS})
    assert undone.json()["undone"] == "update"
    newer = owner.post("/v1/supersede", json={"id": key, "text": "The dunlin has flown.", "scope": BOBS})
    assert (newer.status_code, newer.json()["scope"]) == (200, BOBS)
    gone = owner.delete(f"/v1/records/{newer.json()['id']}", **named)
    assert (gone.status_code, gone.json()["changes"][0]["action"]) == (200, "forget")
    assert owner.post("/v1/undo", json={"id": newer.json()["id"], "scope": BOBS}).json()["undone"] == "forget"
    assert owner.post("/v1/forget", json={"ids": [key], "scope": BOBS}).status_code == 200
    assert bob.get(address).status_code == 404


@pytest.mark.ci
def test_rollback_behind_row_level_security(clients: Callable[[str], httpx2.Client]) -> None:
    """Bob rolls back his own, and the owner those of the scope that it names; superseded facts are current again."""
    owner, bob = clients("owner"), clients("bob")
    good = bob.post("/v1/records", json={"text": "A godwit of bob's."}).json()["id"]
    wanted = {"author": ["mallory of the godwits"]}
    bad = {"author": wanted["author"][0], "origin": "agent"}
    for caller, scope in ((bob, {}), (owner, {"scope": BOBS})):
        bob.post("/v1/records", json={"text": "No godwit at all.", "supersedes": good, **bad})
        bob.post("/v1/records", json={"text": "Godwits are green.", **bad, "origin": "web"})
        shown = caller.post("/v1/rollback", json={**wanted, **scope}).json()
        assert (shown["done"], shown["counts"]) == (False, {"forgotten": 2, "reverted": 0, "restored": 1})
        assert bob.get(f"/v1/records/{good}").json()["superseded_by"]
        done = caller.post("/v1/rollback", json={**wanted, **scope, "confirm": True}).json()
        assert (done["done"], done["counts"]) == (True, shown["counts"])
        assert "superseded_by" not in bob.get(f"/v1/records/{good}").json()


@pytest.mark.ci
def test_owner_without_a_scope_sees_global_records(clients: Callable[[str], httpx2.Client]) -> None:
    """Row-level security shows a service no scope that was not named; a scoped caller can name no other."""
    owner, bob = clients("owner"), clients("bob")
    key = bob.post("/v1/records", json={"text": "A whimbrel of bob's."}).json()["id"]
    shared = owner.post("/v1/records", json={"text": "A whimbrel of everybody's."}).json()["id"]
    assert owner.get(f"/v1/records/{key}").status_code == 404
    assert owner.delete(f"/v1/records/{key}").status_code == 404
    assert owner.get(f"/v1/records/{key}", params={"user": "eve"}).status_code == 404
    listed = owner.get("/v1/records", params={"any_scope": True, "limit": 1000}).json()["records"]
    assert {record["id"] for record in listed} & {key, shared} == {shared}
    assert bob.get(f"/v1/records/{key}", params={"user": "eve"}).status_code == 403
    assert bob.post("/v1/undo", json={"id": key, "scope": {"user": "eve"}}).status_code == 403
    assert bob.delete(f"/v1/records/{key}", params=BOBS).status_code == 200
    assert owner.delete(f"/v1/records/{shared}", params=BOBS).status_code == 200


@pytest.mark.torture
def test_replica_answers_searches(site: Site, service: Callable[..., Any]) -> None:
    """A main server and a replica that follows it, both made by the scripts."""
    beside = site.url("recollect", "the service's", replica=True)
    with site.replica():
        wait_for(beside)
        with service(f"?read={quote(beside)}") as memory:
            memory.within(Scope("ada")).add("a heron of ada's", id="ada")
            memory.within(Scope("bob")).add("a heron of bob's", id="bob")
            follow(site, beside)
            answer = memory.within(Scope("ada")).search("heron")
            assert [result.record.id for result in answer.results] == ["ada"]
            assert {trace.status for trace in answer.trace.sources} == {"ok"}
            with psycopg.connect(beside) as replica:
                asked = "SELECT count(*) > 0 FROM pg_stat_activity WHERE application_name = 'recollect'"
                assert replica.execute(asked).fetchone() == (True,)


def wait_for(url: str) -> None:
    """Until a server answers."""
    end = time.monotonic() + 30
    while True:
        try:
            psycopg.connect(url).close()
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


def follow(site: Site, beside: str) -> None:
    """Until the replica has what the main server has."""
    with psycopg.connect(site.server.url(port=site.port)) as admin, psycopg.connect(beside, autocommit=True) as replica:
        there = admin.execute("SELECT pg_current_wal_flush_lsn()").fetchone()
        while replica.execute("SELECT pg_last_wal_replay_lsn() >= %s", there).fetchone() != (True,):
            time.sleep(0.02)


@pytest.mark.ci  # it needs the records of the tests before it
def test_new_model_is_made_by_the_owner_and_used_by_the_service(site: Site) -> None:
    """Until its table exists the service uses the old model; then it has the grants."""
    place, owner = site.url("recollect", "the service's"), site.url("recollect_owner", "the owner's")
    with Memory.open(place, embedder="hashing:32", settings=Settings()) as memory:
        memory.add("a crane before it", id="before")
        assert memory.store.spaces.active.dimension != 32
    with Memory.open(owner, embedder="hashing:32", settings=Settings()) as memory:
        memory.embed()
    with Memory.open(place, embedder="hashing:32", settings=Settings()) as memory:
        memory.add("a crane", id="crane")
        assert memory.store.spaces.active.dimension == 32
        found = memory.search("crane", sources=["vector"]).results
        assert {"crane", "before"} <= {result.record.id for result in found}


def test_guide_has_the_statements_of_the_script() -> None:
    """The same roles and grants in `docs/postgresql.md`, and the same final line."""
    guide = (ROOT / "docs" / "postgresql.md").read_text(encoding="utf-8")
    first, last = re.findall(r"```sql\n(.*?)```", guide, re.DOTALL)
    script = (DEPLOY / "main.sh").read_text(encoding="utf-8")
    ran = script[script.index("CREATE ROLE recollect_owner") : script.index("SQL\necho")]
    ran = re.sub(r"^SELECT.*?\\else\n|\\endif\n", "", ran, flags=re.DOTALL | re.MULTILINE)
    assert re.sub(r":'\w+'", "'…'", ran) == first
    assert " ".join(last.split()).rstrip(";") in (DEPLOY / "prepare.sh").read_text(encoding="utf-8")


def test_compose_file_names_existing_things() -> None:
    """Each file, secret, volume and service exists, and no secret is in the image."""
    said = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
    services = said["services"]
    assert set(services) == {"main", "replica", "prepare", "recollect"}
    assert set(said["secrets"]) == set(SECRETS)
    for service in services.values():
        assert set(service["secrets"]) <= set(said["secrets"])
        assert set(service.get("depends_on", ())) <= set(services)
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert os.access(DEPLOY / source, os.X_OK) if source.startswith("./") else source in said["volumes"]
        for name, value in service.get("environment", {}).items():
            assert not name.endswith("_FILE") or Path(value).name in service["secrets"]
    recipe = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
    copied = (DEPLOY / "Dockerfile.dockerignore").read_text(encoding="utf-8")
    for name in re.findall(r"/src/(deploy/\S+)", recipe):
        assert f"!{name}\n" in copied
        assert os.access(ROOT / name, os.X_OK)
    assert "secrets/\n" in (DEPLOY / ".gitignore").read_text(encoding="utf-8")


def test_compose_file_of_a_cluster_names_existing_things() -> None:
    """Each file, secret, volume and service exists, and every script is one that the tests run."""
    compose = yaml.safe_load((CLUSTER / "compose.yaml").read_text(encoding="utf-8"))
    services = compose["services"]
    nodes = {"coordinator", "worker1", "worker2"}
    assert set(services) == {*nodes, "join", "prepare", "recollect", "recollect2"}
    assert set(compose["secrets"]) == set(SECRETS)
    for name, service in services.items():
        assert set(service["secrets"]) <= set(compose["secrets"])
        assert set(service.get("depends_on", ())) <= set(services)
        scripts = {Path(volume.partition(":")[0]).name for volume in service.get("volumes", ()) if volume[0] == "."}
        assert scripts == SCRIPTS.get(name, set())
        for volume in service.get("volumes", ()):
            source = volume.partition(":")[0]
            assert os.access(CLUSTER / source, os.X_OK) if source[0] == "." else source in compose["volumes"]
        for variable, value in service.get("environment", {}).items():
            assert not variable.endswith("_FILE") or Path(value).name in service["secrets"]
        folder, recipe = _build(service)
        assert (folder / recipe).is_file()
    assert {word.partition(":")[0] for word in services["join"]["entrypoint"][1:]} == nodes
    assert services["recollect"]["ports"] != services["recollect2"]["ports"]
    assert {
        each["environment"]["RECOLLECT_STORE"].partition("@")[2]
        for each in services.values()
        if "RECOLLECT_STORE" in each.get("environment", {})
    } == {"coordinator/recollect"}


def _build(service: dict[str, Any]) -> tuple[Path, str]:
    """The folder and the recipe of a service's image."""
    build = service["build"]
    if isinstance(build, str):
        return CLUSTER / build, "Dockerfile"
    return CLUSTER / build["context"], build["dockerfile"]


def test_manifests_refer_to_one_another() -> None:
    """Every name that a manifest of `docs/kubernetes.md` uses is there."""
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    parsed = [each for block in re.findall(r"```yaml\n(.*?)```", page, re.DOTALL) for each in yaml.safe_load_all(block)]
    manifests = {(each["kind"], each["metadata"]["name"]): each["spec"] for each in parsed}
    assert len(manifests) == len(parsed)
    secrets = set(re.findall(r"kubectl create secret generic (\S+)", page)) | {"recollect-storage"}
    cluster = manifests["SGShardedCluster", "memory"]
    for each in cluster["configurations"]["backups"]:
        assert ("SGObjectStorage", each["sgObjectStorage"]) in manifests
    for part in (cluster["coordinator"], cluster["shards"]):
        assert ("SGPostgresConfig", part["configurations"]["sgPostgresConfig"]) in manifests
    for each in cluster["coordinator"]["managedSql"]["scripts"]:
        for script in manifests["SGScript", each["sgScript"]]["scripts"]:
            assert script["database"] == cluster["database"] == "recollect"
            assert script["scriptFrom"]["secretKeyRef"]["name"] in secrets
    assert manifests["SGShardedBackup", "before-upgrade"]["sgShardedCluster"] == "memory"
    deployment, service = manifests["Deployment", "recollect"], manifests["Service", "recollect"]
    assert service["selector"] == deployment["selector"]["matchLabels"] == deployment["template"]["metadata"]["labels"]
    for workload in (manifests["Job", "recollect-prepare"], deployment):
        pod = workload["template"]["spec"]
        (container,) = pod["containers"]
        assert {each["secret"]["secretName"] for each in pod["volumes"]} <= secrets
        assert {each["name"] for each in pod["volumes"]} == {each["name"] for each in container["volumeMounts"]}
        named = {each["name"]: each["value"] for each in container["env"]}
        assert named["RECOLLECT_STORE"].endswith("@memory:5433/recollect")
        (password,) = (each["secret"]["items"][0]["path"] for each in pod["volumes"] if each["name"] == "passwords")
        assert named["PASSWORD_FILE"] == f"/run/passwords/{password}"
    (container,) = deployment["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert {each["targetPort"] for each in service["ports"]} <= ports.keys()
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] == "/healthz"
        assert container[probe]["httpGet"]["port"] in ports


def test_page_has_the_statements_of_the_script() -> None:
    """The roles and grants of `docs/kubernetes.md` are those that `main.sh` makes."""
    page = (ROOT / "docs" / "kubernetes.md").read_text(encoding="utf-8")
    (statements,) = re.findall(r"```sql\n(.*?)```", page, re.DOTALL)
    script = (DEPLOY / "main.sh").read_text(encoding="utf-8")
    assert script[script.index("CREATE EXTENSION vector") : script.index("SQL\necho")] in statements
    made = {"CREATE ROLE recollect_owner LOGIN", "CREATE ROLE recollect LOGIN", "ALTER DATABASE recollect OWNER TO"}
    assert all(each in script and each in statements for each in made)
