"""How calls of `aipc mcp` end before their time, and the server with them: nothing is left running, nothing is held."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import anyio
import pytest
from mcp import McpError, types

from tests.cells.clients import DEPLOY, Client, ask, begin_deploy, by_hand, data, hear, jobs_of_a_deploy, say, talk
from tests.cells.test_kills import wait_until_gone
from tests.command import Aipc


def assert_nothing_is_held(aipc: Aipc) -> None:
    """A deploy that was ended holds no lock, and left no half result: the next one goes on."""
    assert not list((aipc.store / "tmp").iterdir())
    done = aipc.tiny()
    assert done.code == 0, done.out + done.error
    assert "in the store" in done.out


def test_a_call_that_is_cancelled_ends_its_job_and_lets_go_of_its_lock(aipc: Aipc) -> None:
    async def conversation(client: Client) -> None:
        async with anyio.create_task_group() as tasks:

            async def deploy() -> None:
                with pytest.raises(McpError, match="Request cancelled"):
                    await client.call("deploy", **DEPLOY)

            number = client.session._request_id
            tasks.start_soon(deploy)
            running = await anyio.to_thread.run_sync(jobs_of_a_deploy, aipc)
            cancelled = types.CancelledNotification(params=types.CancelledNotificationParams(requestId=number))
            await client.session.send_notification(types.ClientNotification(cancelled))
        # The server itself goes on.
        assert data(await client.call("skills"))["skills"]
        await anyio.to_thread.run_sync(wait_until_gone, running)

    talk(aipc, conversation)
    assert_nothing_is_held(aipc)


def test_a_client_that_goes_away_leaves_nothing_running(aipc: Aipc) -> None:
    async def conversation(client: Client) -> list[int]:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(partial(client.call, "deploy", **DEPLOY))
            running = await anyio.to_thread.run_sync(jobs_of_a_deploy, aipc)
            tasks.cancel_scope.cancel()
        return running

    wait_until_gone(talk(aipc, conversation))
    assert "Traceback" not in (aipc.folder / "server.log").read_text()
    assert_nothing_is_held(aipc)


def test_what_is_printed_never_reaches_the_client_and_noise_from_it_is_survived(tmp_path: Path) -> None:
    (tmp_path / "noise").mkdir()
    (tmp_path / "noise" / "sitecustomize.py").write_text(
        "import os, threading, time\n"
        "def noise():\n"
        "    while not os.path.exists('now'):\n"
        "        time.sleep(0.01)\n"
        "    print('printed', flush=True)\n"
        "    os.system('echo of a child; cat; touch done')\n"
        "threading.Thread(target=noise, daemon=True).start()\n"
    )
    paths = os.pathsep.join([str(tmp_path / "noise"), *filter(None, [os.environ.get("PYTHONPATH")])])
    with by_hand(Aipc(tmp_path), PYTHONPATH=paths) as process:
        (tmp_path / "now").touch()
        while not (tmp_path / "done").exists():
            time.sleep(0.01)
        assert process.stdin
        process.stdin.write("this is no message\n")
        process.stdin.flush()
        said = [hear(process), ask(process, "ping", {})]
        assert [each.get("method") for each in said] == ["notifications/message", None]
        assert said[1]["result"] == {}
        process.stdin.close()
        process.stdin = None
        out, error = process.communicate(timeout=20)
        assert (process.returncode, out) == (0, "")
        assert "printed\nof a child\n" in error


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_and_what_it_runs(aipc: Aipc, number: int) -> None:
    with by_hand(aipc) as process:
        running = begin_deploy(process, aipc)
        process.send_signal(number)
        wait_until_gone(running)
        _, error = process.communicate(timeout=20)
        assert process.returncode == 0
        assert "Traceback" not in error
    assert_nothing_is_held(aipc)


@pytest.mark.skipif(not shutil.which("setpriv"), reason="setpriv of util-linux is not installed")
def test_a_server_that_is_killed_takes_its_deploy_along(aipc: Aipc) -> None:
    with by_hand(aipc) as process:
        running = begin_deploy(process, aipc)
        process.kill()
        wait_until_gone(running)
    # It did not go on to the end of its job, to find nobody there.
    assert "export" not in aipc.steps_in_store()
    assert aipc.tiny().code == 0


def test_a_client_that_hears_nothing_any_more_is_gone(aipc: Aipc) -> None:
    with by_hand(aipc) as process:
        running = begin_deploy(process, aipc)
        assert process.stdout
        process.stdout.close()
        say(process, {"id": 3, "method": "ping"})
        assert process.wait(timeout=30) == 0
        wait_until_gone(running)
        assert process.stderr
        assert "Traceback" not in process.stderr.read()
        process.stdout = None


def test_a_person_who_starts_it_is_told_what_it_is(tmp_path: Path) -> None:
    leader, follower = os.openpty()
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", "aipc", "mcp"], cwd=tmp_path, stdin=follower, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr
    assert process.stderr.readline().startswith("aipc mcp: this speaks MCP over stdin and stdout; a client starts it")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=20) in {0, 130}
    process.stderr.close()
    os.close(leader)
    os.close(follower)
