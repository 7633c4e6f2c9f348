"""The web UI answers its own pages only: other websites, names that resolve to this machine, and proxies."""

import json
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path

import dagster as dg
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from starlette.testclient import TestClient
from starlette.websockets import WebSocket, WebSocketDisconnect

from dagster_project.command.webserver import build_routes, guard_requests
from dagster_project.definitions import defs
from dagster_project.records.registration import PARTITION_TAG
from dagster_project.study.home import HOME_VARIABLE
from tests.dagster_project.driver import PROGRAM, attention_geometry, environment, instance_of

PROXY = "https://geometry.example.org"
LAUNCH = """mutation { launchRun(executionParams: {
  selector: {repositoryLocationName: "dagster_project.definitions", repositoryName: "__repository__",
             jobName: "study", assetSelection: [{path: ["tensors"]}]}
  runConfigData: "{}", mode: "default",
  executionMetadata: {tags: [{key: "dagster/partition", value: "lost"}]}
}) { __typename ... on LaunchRunSuccess { run { id } } ... on PythonError { message } } }"""
"""A run of a study that does not exist, so that the control which is allowed to start it takes no time."""


def open_app(port: int = 3000) -> TestClient:
    """A client of an application that answers everything, behind the guard, from a process that is not a browser."""

    async def answer(request: Request) -> PlainTextResponse:  # noqa: ARG001
        return PlainTextResponse("reached")

    async def talk(websocket: WebSocket) -> None:
        await websocket.accept()
        await websocket.send_text("reached")
        await websocket.close()

    methods = ["GET", "POST", "PUT", "DELETE", "OPTIONS"]
    routes = [WebSocketRoute("/graphql", talk), Route("/{path:path}", answer, methods=methods)]
    return TestClient(guard_requests(Starlette(routes=routes), port, [PROXY]), base_url="http://127.0.0.1:3000")


OWN, TALK = "http://127.0.0.1:3000", "ws://127.0.0.1:3000/graphql"
JSON = {"content-type": "application/json; charset=utf-8"}


@pytest.mark.parametrize(
    ("method", "path", "headers", "code"),
    [
        ("GET", "/", {}, 200),
        ("GET", "/", {"host": "geometry.example.org"}, 200),
        ("GET", "/", {"host": "evil.example"}, 400),  # a name that was made to resolve to this machine
        ("GET", "/runs", {"origin": "http://evil.example"}, 403),
        ("POST", "/graphql", JSON, 200),  # no browser
        ("POST", "/graphql", {**JSON, "origin": "http://localhost:3000"}, 200),
        ("POST", "/graphql", {**JSON, "origin": PROXY}, 200),
        ("POST", "/graphql", {**JSON, "origin": "http://127.0.0.1:3001"}, 403),  # another server of this machine
        ("POST", "/graphql", {**JSON, "origin": "null"}, 403),  # a sandboxed frame, or a file
        ("POST", "/graphql", {"content-type": "text/plain", "origin": OWN}, 403),
        ("POST", "/graphql?query=x", {}, 403),
        ("POST", "/report_asset_materialization/tensors", {"content-type": "text/plain"}, 403),
        ("GET", "/graphql/?query=mutation", {"accept": "text/html"}, 403),
        ("HEAD", "/graphql?query=mutation", {}, 403),
        ("OPTIONS", "/graphql", {"origin": "http://evil.example"}, 403),
    ],
)
def test_only_requests_of_own_pages_are_passed_on(method: str, path: str, headers: dict[str, str], code: int) -> None:
    answer = open_app().request(method, path, headers=headers)
    assert answer.status_code == code
    assert (answer.text == "reached") == (code == 200)
    assert code != 200 or answer.headers["x-frame-options"] == "DENY"


def test_pages_of_studies_are_shown_each_by_itself(tmp_path: Path) -> None:
    """The page of a study, and no other file; what runs in it is of no origin, and is refused by the guard."""
    (tmp_path / "reports").mkdir()
    for name in ("reports/mine.html", "reports/mine.json", "secret.html"):
        (tmp_path / name).write_text("<p>shown</p>")
    app = guard_requests(Starlette(routes=build_routes(tmp_path / "reports")), 3000)
    client = TestClient(app, base_url=OWN)
    shown = client.get("/pages/mine.html")
    assert (shown.status_code, shown.text) == (200, "<p>shown</p>")
    assert shown.headers["content-security-policy"] == "sandbox allow-scripts allow-popups"
    for path in ("/pages/nosuch.html", "/pages/mine.json", "/pages/..%2Fsecret.html", "/pages/../secret.html"):
        assert client.get(path).status_code == 404, path


def test_websockets_are_passed_on_likewise() -> None:
    client = open_app()
    with client.websocket_connect(TALK, headers={"origin": OWN}) as connection:
        assert connection.receive_text() == "reached"
    for foreign in ({"origin": "http://evil.example"}, {"host": "evil.example"}):
        with pytest.raises(WebSocketDisconnect), client.websocket_connect(TALK, headers=foreign):
            pass


@pytest.mark.filterwarnings("ignore::pydantic.PydanticDeprecatedSince20")  # Dagster's, where it words the refusal
@pytest.mark.parametrize(("resource", "field"), [("data_root", "path"), ("io_manager", "base_dir")])
def test_no_run_configuration_names_another_folder(resource: str, field: str, tmp_path: Path) -> None:
    forged = {"resources": {resource: {"config": {field: str(tmp_path / "forged")}}}}
    with dg.DagsterInstance.ephemeral() as instance, pytest.raises(dg.DagsterInvalidConfigError):
        launch("study", "embedded", instance, run_config=forged)
    assert not (tmp_path / "forged").exists()


def launch(job: str, partition: str, instance: dg.DagsterInstance, **given: object) -> dg.ExecuteInProcessResult:
    """Start a job as the web UI does: Dagster does not check the partition that its tag names."""
    found = defs().resolve_job_def(job)
    return found.execute_in_process(instance=instance, tags={PARTITION_TAG: partition}, raise_on_error=False, **given)


@pytest.mark.parametrize(
    ("job", "partition", "said"),
    [
        ("study", "../../../evil", "cannot be the name of a study"),
        ("families", "embedded\0", r"'embedded\x00' cannot be the name"),
        (
            "study",
            "\x1b[2J\x1b]0;evil\x07\u202eevil\u2028",
            r"'\x1b[2J\x1b]0;evil\x07\u202eevil\u2028' cannot be the name",
        ),
        ("study", "lost", "There is no study 'lost'"),
    ],
)
def test_a_run_of_anything_but_a_study_creates_nothing(
    job: str,
    partition: str,
    said: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """In a data root with a study, so that the folder of its locks exists."""
    root = tmp_path / "a" / "b" / "root"
    monkeypatch.setenv(HOME_VARIABLE, str(root))
    (root / "locks" / "studies").mkdir(parents=True)
    before = sorted(tmp_path.rglob("*"))
    with dg.DagsterInstance.ephemeral() as instance:
        result = launch(job, partition, instance)
    assert not result.success
    assert sorted(tmp_path.rglob("*")) == before
    (failure,) = (event for event in result.all_events if event.event_type is dg.DagsterEventType.RUN_FAILURE)
    told = str(failure.event_specific_data)
    assert said in told.replace("\\\\", "\\")
    shown = "".join(capfd.readouterr())
    assert said in shown
    assert not {character for character in shown + told if not character.isprintable()} - {"\n"}


def test_an_address_or_port_that_cannot_be_served_is_refused_before_anything_is_announced(tmp_path: Path) -> None:
    for origin in ("geometry.example.org", "https://geometry.example.org/path", "javascript://x"):
        complaint = attention_geometry("ui", "--origin", origin, home=tmp_path / "root").complaint
        assert "is not the address of a host as browsers show it" in complaint
    refused = attention_geometry("ui", "--port", 99999, home=tmp_path / "root")
    assert (refused.code, "Starting" in refused.errors) == (2, False)
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        refused = attention_geometry("ui", "--port", port, home=tmp_path / "root")
    assert refused.complaint == f"Port {port} cannot be used (Address already in use); choose another with --port"
    assert refused.errors.count("\n") == 1
    assert not (tmp_path / "root").exists()


# --- the real one ---


@contextmanager
def running_ui(home: Path, *options: str) -> "Iterator[tuple[int, subprocess.Popen[bytes]]]":
    """The web UI of a data root: its port and process, once it answers.

    It is started in a folder with a file that is named as a module is, and must not import it.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = int(probe.getsockname()[1])
    folder = home.parent / f"started in {home.name}"
    folder.mkdir()
    (folder / "geometry.py").write_text("from pathlib import Path\nPath('imported').touch()\n")
    command = [PROGRAM, "ui", "--home", home, "--port", port, *options]
    with subprocess.Popen([*map(str, command)], cwd=folder, env=environment(), stderr=subprocess.PIPE) as process:
        assert process.stderr is not None
        lines = []
        try:
            for line in process.stderr:
                lines.append(line.decode())
                if f"http://127.0.0.1:{port}" in lines[-1]:
                    break
            else:
                pytest.fail(f"the web UI has ended: {lines}")
            yield port, process
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(30)
    assert not (folder / "imported").exists()


def launch_by_http(port: int, **headers: str) -> tuple[int, bytes]:
    """Ask the web UI to start a run; its status and answer."""
    asked = json.dumps({"query": LAUNCH})
    with closing(HTTPConnection("127.0.0.1", port, timeout=60)) as connection:
        connection.request("POST", "/graphql", asked, {"Content-Type": "application/json", **headers})
        answer = connection.getresponse()
        return answer.status, answer.read()


@pytest.mark.slow
def test_another_origin_starts_no_run_and_all_servers_end_if_the_command_is_killed(copied: Path) -> None:
    """Its own page does, which is the control."""
    with running_ui(copied) as (port, process), instance_of(copied) as instance:
        before = instance.get_runs_count()
        assert before
        assert launch_by_http(port, Origin="http://evil.example")[0] == 403
        assert instance.get_runs_count() == before
        status, answer = launch_by_http(port, Origin=f"http://127.0.0.1:{port}")
        assert (status, b"LaunchRunSuccess" in answer) == (200, True), answer
        assert instance.get_runs_count() == before + 1
        (child,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        assert len(find_group(int(child))) >= 3
        process.kill()
        deadline = time.monotonic() + 60
        while find_group(int(child)):
            assert time.monotonic() < deadline, find_group(int(child))
            time.sleep(0.05)


@pytest.mark.slow
def test_ctrl_c_ends_all_servers_without_a_word(tmp_path: Path) -> None:
    with running_ui(tmp_path / "root") as (_, process):
        process.send_signal(signal.SIGINT)
        assert process.stderr is not None
        assert process.stderr.read() == b""
        assert process.wait(30) == 128 + signal.SIGINT


def find_group(group: int) -> list[int]:
    """The living processes of a group."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, member = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(member) == group and state != "Z":
            found.append(int(stat.parent.name))
    return found
