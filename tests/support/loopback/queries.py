"""GraphQL as far as wandb asks for it: each operation is a function of the store and the variables.

Fields are not selected: an answer holds every field that some version of the query asks for.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from loopback.store import StoredArtifact, StoredRun

if TYPE_CHECKING:
    from loopback.server import Loopback

Variables = dict[str, Any]


class Refused(Exception):
    """An answer with a list of errors and an HTTP status."""

    def __init__(self, message: str, status: int = 200) -> None:
        super().__init__(message)
        self.status = status


def answer(server: Loopback, operation: str, variables: Variables) -> Any:
    """The data of one operation.

    Raises
    ------
    Refused
        The operation is unknown or not allowed.
    """
    if operation not in OPERATIONS:
        raise Refused(f"the loopback backend does not know {operation}")
    return OPERATIONS[operation](server, variables)


def _viewer(server: Loopback, _: Variables) -> Any:
    teams = [{"node": {"name": name}} for name in server.entities]
    viewer = {
        "id": "User:1",
        "entity": server.entities[0],
        "username": "tester",
        "email": "t@localhost",
        "flags": "{}",
    }
    viewer |= {
        "name": "tester",
        "admin": False,
        "teams": {"edges": teams},
        "apiKeys": {"edges": []},
        "deletedAt": None,
    }
    return {"viewer": viewer}


def _features(_: Loopback, __: Variables) -> Any:
    return {"serverInfo": {"features": []}}


def _upsert_bucket(server: Loopback, given: Variables) -> Any:
    key = _key(server, given)
    if key in server.store.deleted:
        raise Refused(f"run {key[2]} was previously created and deleted; try a new run name", 409)
    run, inserted = server.store.upsert(key)
    names = {
        "displayName": "display_name",
        "groupName": "group",
        "jobType": "job_type",
        "config": "config",
        "tags": "tags",
        "summaryMetrics": "summary",
        "state": "state",
    }
    for name, attribute in names.items():
        if given.get(name) is not None:
            setattr(run, attribute, given[name])
    if not inserted and given.get("state") is None:
        run.state = "running"
    return {"upsertBucket": {"bucket": _bucket(run), "inserted": inserted}}


def _key(server: Loopback, given: Variables) -> tuple[str, str, str]:
    if run := server.store.by_storage_id(given.get("id") or ""):
        return run.entity, run.project, run.name
    entity, project = given.get("entity") or server.entities[0], given.get("project") or "uncategorized"
    if entity not in server.entities:
        raise Refused(f"entity {entity} not found during upsertBucket", 404)
    if server.projects is not None and project not in server.projects:
        raise Refused(f"permission denied: project {project} not found during upsertBucket", 403)
    return entity, project, given.get("name") or server.store.new_id("run")


def _bucket(run: StoredRun) -> dict[str, Any]:
    return {
        "id": run.storage_id,
        "name": run.name,
        "displayName": run.display_name,
        "description": "",
        "notes": "",
        "config": run.config,
        "sweepName": None,
        "tags": run.tags,
        "summaryMetrics": run.summary,
        "historyLineCount": len(run.history),
        "eventsLineCount": len(run.events),
        "logLineCount": 0,
        "historyTail": json.dumps(run.history[-1:]),
        "eventsTail": json.dumps(run.events[-1:]),
        "wandbConfig": json.dumps(json.loads(run.config).get("_wandb", {}).get("value", {})),
        "project": {"id": "Project:1", "name": run.project, "entity": {"id": "Entity:1", "name": run.entity}},
    }


def _resume_status(server: Loopback, given: Variables) -> Any:
    run = server.store.runs.get((given.get("entity") or server.entities[0], given["project"], given["name"]))
    entity = {"id": "Entity:1", "name": given.get("entity") or server.entities[0]}
    return {
        "model": {
            "id": "Project:1",
            "name": given["project"],
            "entity": entity,
            "bucket": _bucket(run) if run else None,
        }
    }


def _create_run_files(server: Loopback, given: Variables) -> Any:
    path = f"{server.url}/storage/run/{given['entity']}/{given['project']}/{given['run']}"
    files = [{"name": name, "uploadUrl": f"{path}/{name}"} for name in given["files"]]
    return {"createRunFiles": {"runID": given["run"], "uploadHeaders": [], "files": files}}


def _public_run(run: StoredRun) -> dict[str, Any]:
    steps = [row["_step"] for row in run.rows if "_step" in row]
    return {
        **_bucket(run),
        "projectId": 1,
        "state": run.state,
        "group": run.group,
        "jobType": run.job_type,
        "commit": None,
        "readOnly": False,
        "createdAt": "2026-01-01T00:00:00",
        "heartbeatAt": "2026-01-01T00:00:00",
        "systemMetrics": "{}",
        "user": {"name": "tester", "username": "tester"},
        "historyKeys": {"lastStep": max(steps, default=-1), "keys": {}, "sets": []},
    }


def _runs(server: Loopback, given: Variables) -> Any:
    wanted = json.loads(given.get("filters") or "{}")
    own = [
        run
        for (entity, project, _), run in server.store.runs.items()
        if (entity, project) == (given["entity"], given["project"])
    ]
    if not own:
        return {"project": None}
    found = [run for run in own if _matches(run, wanted)]
    start = int(given.get("cursor") or 0)
    page = found[start : start + (given.get("perPage") or 50)]
    end = start + len(page)
    edges = [{"node": _public_run(run), "cursor": str(start + n + 1)} for n, run in enumerate(page)]
    info = {"endCursor": str(end), "hasNextPage": end < len(found)}
    return {
        "project": {
            "internalId": 1,
            "runCount": len(found),
            "readOnly": False,
            "runs": {"edges": edges, "pageInfo": info},
        }
    }


def _matches(run: StoredRun, wanted: dict[str, Any]) -> bool:
    """Equality on fields of the run, and `$and` of such: what publishing filters by."""
    if "$and" in wanted:
        return all(_matches(run, part) for part in wanted["$and"])
    names = {"jobType": "job_type"}
    return all(getattr(run, names.get(name, name)) == value for name, value in wanted.items())


def _run(server: Loopback, given: Variables) -> Any:
    run = server.store.runs.get(
        (given["entity"], given["project"], given.get("name") or given.get("run") or given.get("runName"))
    )
    return {"project": {"internalId": 1, "run": _public_run(run) if run else None}}


def _delete_run(server: Loopback, given: Variables) -> Any:
    if not server.deletions_allowed:
        raise Refused("permission denied: only members may delete runs", 403)
    server.store.delete(given["id"])
    return {"deleteRun": {"clientMutationId": None}}


def _parquet_history(server: Loopback, given: Variables) -> Any:
    run = server.store.runs[given["entity"], given["project"], given["runName"]]
    live = [row for row in run.rows if all(key in row for key in given["liveKeys"])]
    return {"project": {"run": {"parquetHistory": {"parquetUrls": [], "liveData": live}}}}


def _history_page(server: Loopback, given: Variables) -> Any:
    run = server.store.runs[given["entity"], given["project"], given["run"]]
    inside = [
        line
        for line, row in zip(run.history, run.rows, strict=True)
        if given["minStep"] <= row.get("_step", 0) < given["maxStep"]
    ]
    return {"project": {"run": {"history": inside[: given["pageSize"]]}}}


def _sampled_history(server: Loopback, given: Variables) -> Any:
    """Rows that have all keys of the specification; nothing is sampled away."""
    run = server.store.runs[given["entity"], given["project"], given["run"]]
    spec = json.loads(given["spec"])
    keys = spec.get("keys") or []
    inside = [
        row
        for row in run.rows
        if spec.get("minStep", 0) <= row.get("_step", 0) <= spec.get("maxStep", 10**12)
    ]
    rows = [{key: row[key] for key in keys} for row in inside if all(key in row for key in keys)]
    return {"project": {"run": {"sampledHistory": [rows]}}}


def _create_artifact(server: Loopback, given: Variables) -> Any:
    wanted = given["input"]
    name = (wanted.get("artifactCollectionNames") or [wanted.get("artifactCollectionName")])[0]
    for artifact in server.store.artifacts.values():
        if (artifact.collection, artifact.digest) == (
            name,
            wanted["digest"],
        ) and artifact.state == "COMMITTED":
            return _created(artifact)
    made = StoredArtifact(
        server.store.new_id("Artifact"),
        wanted.get("runName") or "",
        wanted["artifactTypeName"],
        name,
        wanted["digest"],
    )
    made.metadata = wanted.get("metadata") or "{}"
    server.store.artifacts[made.id] = made
    return _created(made)


def _created(artifact: StoredArtifact) -> Any:
    sequence = {"id": "Sequence:1", "latestArtifact": None}
    return {
        "createArtifact": {
            "artifact": {"id": artifact.id, "state": artifact.state, "artifactSequence": sequence}
        }
    }


def _create_manifest(server: Loopback, given: Variables) -> Any:
    file = (
        _upload(server, given["artifactID"], given["name"])
        if given.get("includeUpload")
        else {"id": "File:1"}
    )
    return {
        "createArtifactManifest": {
            "artifactManifest": {"id": f"Manifest:{given['artifactID']}", "file": file}
        }
    }


def _update_manifest(server: Loopback, given: Variables) -> Any:
    artifact = given["artifactManifestID"].removeprefix("Manifest:")
    file = _upload(server, artifact, "wandb_manifest.json")
    return {"updateArtifactManifest": {"artifactManifest": {"id": given["artifactManifestID"], "file": file}}}


def _upload(server: Loopback, artifact: str, name: str) -> dict[str, Any]:
    return {
        "id": f"File:{name}",
        "uploadUrl": f"{server.url}/storage/artifact/{artifact}/{name}",
        "uploadHeaders": [],
    }


def _create_artifact_files(server: Loopback, given: Variables) -> Any:
    edges = []
    for wanted in given["input"]["artifactFiles"]:
        upload = _upload(server, wanted["artifactID"], wanted["name"])
        node = {**upload, "name": wanted["name"], "storagePath": wanted["name"], "uploadMultipartUrls": None}
        edges.append({"node": {**node, "artifact": {"id": wanted["artifactID"]}}})
    return {"createArtifactFiles": {"files": {"edges": edges}}}


def _commit_artifact(server: Loopback, given: Variables) -> Any:
    artifact = server.store.artifacts[given["artifactID"]]
    artifact.state = "COMMITTED"
    return {"commitArtifact": {"artifact": {"id": artifact.id, "digest": artifact.digest}}}


def _artifact_by_id(server: Loopback, given: Variables) -> Any:
    return {"artifact": _public_artifact(server, server.store.artifacts[given["id"]])}


def _output_artifacts(server: Loopback, given: Variables) -> Any:
    found = [a for a in server.store.artifacts.values() if a.run == given["run"] and a.state == "COMMITTED"]
    info = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
    edges = [{"node": _public_artifact(server, artifact), "cursor": artifact.id} for artifact in found]
    return {"project": {"run": {"artifacts": {"totalCount": len(found), "pageInfo": info, "edges": edges}}}}


def _public_artifact(server: Loopback, artifact: StoredArtifact) -> dict[str, Any]:
    versions = [
        other.id for other in server.store.artifacts.values() if other.collection == artifact.collection
    ]
    project = {"id": "Project:1", "internalId": "1", "name": "p", "entity": {"name": server.entities[0]}}
    return {
        "__typename": "Artifact",
        "id": artifact.id,
        "artifactSequence": {
            "__typename": "ArtifactSequence",
            "name": artifact.collection,
            "project": project,
        },
        "versionIndex": versions.index(artifact.id),
        "artifactType": {"name": artifact.type},
        "description": None,
        "metadata": artifact.metadata,
        "ttlDurationSeconds": -2,
        "ttlIsInherited": True,
        "tags": [],
        "historyStep": None,
        "state": artifact.state,
        "size": sum(map(len, artifact.files.values())),
        "digest": artifact.digest,
        "digestAlgorithm": "MANIFEST_MD5",
        "commitHash": "0",
        "fileCount": len(artifact.files),
        "createdAt": "2026-01-01T00:00:00",
        "updatedAt": None,
        "aliases": [],
    }


def _upsert_view(server: Loopback, given: Variables) -> Any:
    wanted = given.get("input") or given
    view = wanted.get("id") or server.store.new_id("View")
    if wanted.get("id") and view not in server.store.views:
        raise Refused(f"view {view} not found", 404)
    server.store.views[view] = wanted
    stored = {
        "id": view,
        "type": wanted.get("type"),
        "name": wanted.get("name"),
        "displayName": wanted.get("displayName"),
        "description": wanted.get("description"),
        "project": {
            "id": "Project:1",
            "name": wanted.get("projectName"),
            "entityName": wanted.get("entityName"),
        },
        "updatedAt": "2026-01-01T00:00:00",
    }
    return {"upsertView": {"view": {**stored, "spec": wanted.get("spec")}, "inserted": True}}


def _project(server: Loopback, given: Variables) -> Any:
    """A project that exists, because it has runs or was made."""
    name = given["projectName"]
    exists = any(key[:2] == (given["entityName"], name) for key in server.store.runs)
    return {"project": {"id": "Project:1", "internalId": "1"} if exists else None}


def _projects(server: Loopback, given: Variables) -> Any:
    names = {key[1] for key in server.store.runs if key[0] == given["entity"]}
    fields = {"createdAt": "2026-01-01T00:00:00", "isBenchmark": False, "user": None}
    edges = [
        {"node": {**fields, "id": f"Project:{name}", "name": name, "entityName": given["entity"]}}
        for name in names
    ]
    info = {"__typename": "PageInfo", "endCursor": None, "hasNextPage": False}
    return {"models": {"pageInfo": info, "edges": edges}}


OPERATIONS: dict[str, Callable[[Loopback, Variables], Any]] = {
    "Viewer": _viewer,
    "GetViewer": _viewer,
    "GetDefaultEntity": _viewer,
    "ServerFeaturesQuery": _features,
    "UpsertBucket": _upsert_bucket,
    "RunResumeStatus": _resume_status,
    "CreateRunFiles": _create_run_files,
    "MarkRunFilesUploaded": lambda server, given: {"markRunFilesUploaded": {"success": True}},
    "Runs": _runs,
    "Run": _run,
    "RunHistoryKeys": _run,
    "DeleteRun": _delete_run,
    "RunParquetHistory": _parquet_history,
    "HistoryPage": _history_page,
    "SampledHistoryPage": _sampled_history,
    "CreateArtifact": _create_artifact,
    "CreateArtifactManifest": _create_manifest,
    "UpdateArtifactManifest": _update_manifest,
    "CreateArtifactFiles": _create_artifact_files,
    "CommitArtifact": _commit_artifact,
    "ArtifactByID": _artifact_by_id,
    "RunOutputArtifacts": _output_artifacts,
    "UseArtifact": lambda server, given: {"useArtifact": {"artifact": {"id": "Artifact:0"}}},
    "XXHashDigestsEnabled": lambda server, given: {"entity": {"xxhashDigestsEnabled": False}},
    "FetchArtifactDigestAlgorithm": lambda server, given: {"project": {"artifactType": None}},
    "ProjectInternalId": _project,
    "GetProjects": _projects,
    "UpsertView": _upsert_view,
    "upsertView": _upsert_view,
    "UpsertView2": _upsert_view,
}
