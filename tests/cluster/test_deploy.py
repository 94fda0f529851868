"""The steps of `deploy/cluster` and the manifests of `docs/kubernetes.md`, as far as they go without containers."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psycopg
import pytest
import yaml
from stores.postgres.test_deploy import DEPLOY, SECRETS, Site, serving
from support import ROOT
from support.cluster import programs

from recollect import Memory, Scope
from recollect.config import Settings
from recollect.web.access import Caller

CLUSTER = DEPLOY / "cluster"
SCRIPTS = {
    "coordinator": {"citus.sh", "main.sh"},
    "worker1": {"citus.sh"},
    "worker2": {"citus.sh"},
    "join": {"join.sh"},
}


@pytest.fixture(scope="module")
def coordinator() -> Iterator[Site]:
    """The coordinator of a cluster with two workers, made by the scripts that the containers run."""
    if (found := programs()) is None:
        pytest.skip("it needs the programs of a server with Citus")
    nodes: list[Site] = []
    try:
        for _ in range(3):
            with (
                pytest.MonkeyPatch.context() as patch
            ):  # servers look for certificates in the home of whoever started them
                patch.setenv("HOME", "/nonexistent")
                nodes.append(node := Site(found, shared_preload_libraries="citus", wal_level="logical"))
            with psycopg.connect(node.server.url(port=node.port), autocommit=True) as admin:
                admin.execute("ALTER ROLE postgres PASSWORD 'the admin''s'")
            node.make("cluster/citus.sh")
        nodes[0].make("main.sh", PGDATABASE="recollect")
        join(nodes)
        prepare(nodes[0])
        yield nodes[0]
    finally:
        for node in nodes:
            node.server.remove()


def join(nodes: list[Site]) -> None:
    """Make the servers one cluster."""
    nodes[0].run("cluster/join.sh", *(f"127.0.0.1:{node.port}" for node in nodes))


def prepare(coordinator: Site) -> None:
    """Make the tables as their owner."""
    place = f"postgresql://recollect_owner@127.0.0.1:{coordinator.port}/recollect"
    secret = str(coordinator.secrets / "owner")
    coordinator.run("prepare.sh", RECOLLECT_STORE=place, PASSWORD_FILE=secret, DISTRIBUTE="yes")


@pytest.mark.timeout(1200)
def test_two_services_in_front_of_one_cluster(coordinator: Site, tmp_path: Path) -> None:
    """What one adds, the other finds; a token sees its own scope and global records alone."""
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        folder.mkdir()
    callers = [Caller("ada", Scope("ada")), Caller("bob", Scope("bob")), Caller("owner", owner=True)]
    with serving(coordinator, folders[0], callers) as first, serving(coordinator, folders[1], callers) as second:
        assert first("ada").get("/healthz").json() == second("ada").get("/healthz").json() == {"status": "ok"}
        added = first("ada").post("/v1/records", json={"text": "An egret of ada's."})
        assert added.status_code == 201, added.text
        assert second("bob").post("/v1/records", json={"text": "An egret of bob's."}).status_code == 201
        assert second("owner").post("/v1/records", json={"text": "An egret of everybody's."}).status_code == 201
        for each in (first, second):
            for name in ("ada", "bob"):
                found = each(name).post("/v1/search", json={"query": "egret"}).json()["results"]
                texts = {result["text"] for result in found}
                assert texts == {f"An egret of {name}'s.", "An egret of everybody's."}
            assert each("bob").get(f"/v1/records/{added.json()['id']}").status_code == 404
            assert each("ada").get(f"/v1/records/{added.json()['id']}").json()["text"] == "An egret of ada's."


@pytest.mark.timeout(1200)
def test_scripts_run_again(coordinator: Site) -> None:
    """At each start, also with records: nothing changes. The role of the service owns nothing and sees no scope."""
    place = coordinator.url("recollect", "the service's")
    with Memory.open(place, settings=Settings(), embedder="hashing:64") as memory:
        memory.add("A plover of cyd's.", user="cyd")
    with psycopg.connect(coordinator.server.url(port=coordinator.port, database="recollect")) as admin:
        workers = admin.execute("SELECT nodeport FROM pg_dist_node WHERE groupid > 0").fetchall()
    coordinator.run(
        "cluster/join.sh", *(f"127.0.0.1:{port}" for port in (coordinator.port, *(port for (port,) in workers)))
    )
    prepare(coordinator)
    with Memory.open(place, settings=Settings(), embedder="hashing:64") as memory:
        assert len(memory.search("plover", user="cyd", sources=["keyword"]).results) == 1
    with psycopg.connect(place) as raw:
        assert raw.execute("SELECT count(*) FROM recollect.records").fetchone() == (0,)
        for forbidden in ("DELETE FROM recollect.migrations", "SELECT * FROM pg_dist_authinfo"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                raw.execute(forbidden)
            raw.rollback()


def test_compose_file_names_existing_things() -> None:
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
