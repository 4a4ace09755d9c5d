"""A mini-swe-agent environment that runs commands in radmoe's own confinement (`radmoe_agent.session`).

A command sees a read-only system, the work tree of its own instance at `/testbed`, and an empty `/tmp`. It has no
network, no other process, and limits of time, memory, processes, disk and output. It is never root, and the work tree
lies in memory: the host neither reads nor writes anything in it.
"""

from __future__ import annotations

import platform
from typing import Any

from minisweagent.exceptions import Submitted
from minisweagent.utils.serialize import recursive_merge
from pydantic import BaseModel

from radmoe.errors import EngineError, InputError
from radmoe.sandbox.root import WORKDIR
from radmoe_agent.session import Finished, Session

_FINISHED = "COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT"  # the first line by which mini-swe-agent's agents submit
_ENVIRONMENT = {
    "PAGER": "cat",
    "PYTHONDONTWRITEBYTECODE": "1",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_AUTHOR_NAME": "radmoe",
    "GIT_AUTHOR_EMAIL": "radmoe@localhost",
    "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z",
    "GIT_COMMITTER_NAME": "radmoe",
    "GIT_COMMITTER_EMAIL": "radmoe@localhost",
    "GIT_COMMITTER_DATE": "2026-01-01T00:00:00Z",
}
_UNDER_WAY: set[Session] = set()
_FIRST_COMMIT = "test -e .git || { git init -q -b main . && git add -A && git commit -q --allow-empty -m base; }"


class ConfinedConfig(BaseModel):
    """The section `environment` of mini-swe-agent's configuration.

    The agent works in a copy of the directory `repository`, or in `files`, texts by their paths. What has no history of
    its own gets one commit.
    """

    repository: str = ""
    files: dict[str, str] = {}
    env: dict[str, str] = {}
    cwd: str = WORKDIR
    timeout: int = 60
    memory_mb: int = 1024
    disk_mb: int = 1024
    processes: int = 256
    output_bytes: int = 200_000


class ConfinedEnvironment:
    """A work tree per instance, in which commands run confined. `timeouts` counts the commands that were stopped.

    Raises EngineError where commands cannot be confined, or the repository cannot be copied.
    """

    def __init__(self, **options: Any) -> None:
        self.config, self.timeouts = ConfinedConfig(**options), 0
        self._session: Session | None = None
        try:
            self._session = Session(
                self.config.repository or None,
                self.config.files,
                environment=_ENVIRONMENT | self.config.env,
                memory=self.config.memory_mb << 20,
                disk=self.config.disk_mb << 20,
                processes=self.config.processes,
                keep=self.config.output_bytes,
            )
        except InputError as error:
            more = f": set disk_mb under environment in --config, which is {self.config.disk_mb} here"
            raise EngineError(f"{error}{more if 'No space left' in str(error) else ''}") from None
        made = self.run(_FIRST_COMMIT)
        if made.code != 0 or made.stopped:
            self.cleanup()
            said = made.output.decode(errors="replace").strip() or made.stopped or "no reason given"
            raise EngineError(f"the first commit of a repository failed ({said.splitlines()[0]})")

    def run(self, command: str, *, stdin: bytes = b"", cwd: str = "", timeout: int | None = None) -> Finished:
        """Run a command of bash."""
        session = self._session
        if session is None:
            raise EngineError("this environment is closed: open another one")
        _UNDER_WAY.add(session)
        try:
            words = ["bash", "-c", command]
            return session.run(words, stdin=stdin, cwd=cwd or self.config.cwd, timeout=timeout or self.config.timeout)
        except InputError as error:
            raise EngineError(str(error)) from None
        finally:
            _UNDER_WAY.discard(session)

    def execute(self, action: dict[str, Any], cwd: str = "", *, timeout: int | None = None) -> dict[str, Any]:
        """Run a command; what it printed, its exit code, and in `exception_info` what stopped it."""
        done = self.run(action.get("command", ""), cwd=cwd, timeout=timeout)
        text = done.output.decode(errors="replace")
        if done.left_out:
            text += f"\n[{done.left_out} more bytes were left out]\n"
        self.timeouts += bool(done.stopped)
        output = {
            "output": text,
            "returncode": -1 if done.stopped else done.code,
            "exception_info": f"The command was stopped: {done.stopped}." if done.stopped else "",
        }
        lines = text.lstrip().splitlines(keepends=True)
        if lines and lines[0].strip() == _FINISHED and output["returncode"] == 0:
            submission = "".join(lines[1:])
            extra = {"exit_status": "Submitted", "submission": submission}
            raise Submitted({"role": "exit", "content": submission, "extra": extra})
        return output

    def get_template_vars(self, **options: Any) -> dict[str, Any]:
        variables: dict[str, Any] = recursive_merge(self.config.model_dump(), platform.uname()._asdict(), options)
        return variables

    def serialize(self) -> dict[str, Any]:
        kind = f"{type(self).__module__}.{type(self).__name__}"
        settings = self.config.model_dump(mode="json", exclude={"files"})
        return {"info": {"config": {"environment": settings, "environment_type": kind}, "timeouts": self.timeouts}}

    def cleanup(self) -> None:
        """End whatever runs here. The work tree is gone with it."""
        session, self._session = self._session, None
        if session is not None:
            session.close()

    def __del__(self) -> None:
        if hasattr(self, "_session"):
            self.cleanup()


def stop_commands() -> None:
    """End every command that is under way in this process."""
    for session in list(_UNDER_WAY):
        session.stop()


def check_confinement() -> None:
    """Refuse, with an EngineError, a machine on which commands cannot be confined or git is missing."""
    try:
        ConfinedEnvironment().cleanup()
    except EngineError as error:
        raise EngineError(
            f"an agent's commands cannot be confined here: {error}; this needs Linux on x86_64 or aarch64, git, and root "
            "or user namespaces for everybody (sysctl user.max_user_namespaces)"
        ) from None
