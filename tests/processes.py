"""Processes that tests start: forked from one that has imported JAX and coadjoint, which takes a second.

That one has a single thread and computes nothing, so that it may fork; a process of it reads XLA_FLAGS, and makes XLA's
threads, when it first computes. JAX reads its own variables (JAX_...) when it is imported: they are set anew.
"""

import atexit
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import weakref
from functools import cache
from pathlib import Path

ENVIRONMENT = dict(os.environ)  # of the server, whatever a test changes
IMPORTED = "import coadjoint, coadjoint.command.progress, coadjoint.store.reading, coadjoint.store.store_sink"


class Process:
    """As subprocess.Popen([sys.executable, "-c", code, *arguments], env=env), its output in files."""

    def __init__(self, code: str, *arguments: str, env: dict[str, str] | None = None):
        self.folder = tempfile.mkdtemp()
        weakref.finalize(self, shutil.rmtree, self.folder, ignore_errors=True)
        self.returncode: int | None = None
        for name in ("out", "err"):
            (Path(self.folder) / name).touch()
        given = dict(os.environ if env is None else env)
        self.server = _server(os.getpid())
        self.pid = _asked(self.server, ["start", code, arguments, given, os.getcwd(), self.folder])

    def said(self, name: str = "out") -> str:
        """All that it has written by now, to `out` or to `err`."""
        return (Path(self.folder) / name).read_text()

    def poll(self) -> int | None:
        """How it ended, if it has: its status, or a signal's number with a minus."""
        if self.returncode is None:
            self.returncode = _asked(self.server, ["poll", self.pid])
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Its end."""
        until = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > until:
                raise subprocess.TimeoutExpired("a test's process", timeout)
            time.sleep(0.01)
        return code

    def communicate(self, timeout: float = 600) -> tuple[str, str]:
        """Its output, when it has ended."""
        self.wait(timeout)
        return self.said("out"), self.said("err")

    def kill(self) -> None:
        """SIGKILL."""
        if self.poll() is None:
            os.kill(self.pid, signal.SIGKILL)


@cache
def _server(owner: int) -> subprocess.Popen:
    """One for each process that runs tests; it ends with that one."""
    code = f"import sys; sys.path[:] = {sys.path!r}; import processes; processes.serve()"
    command = [sys.executable, "-c", code]
    server = subprocess.Popen(command, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    atexit.register(server.communicate)
    return server


def _asked(server: subprocess.Popen, request: list) -> int | None:
    assert server.stdin is not None and server.stdout is not None
    server.stdin.write(json.dumps(request) + "\n")
    server.stdin.flush()
    return json.loads(server.stdout.readline())


def serve() -> None:
    """Start processes and report their exit status, until the parent closes the connection."""
    import gc

    gc.disable()
    exec(IMPORTED, {})
    gc.freeze()
    gc.enable()
    running: set[int] = set()
    for line in sys.stdin:
        what, *about = json.loads(line)
        if what == "start":
            pid = os.fork()
            if pid == 0:
                _become(*about)
            running.add(pid)
            answer = pid
        else:
            done, status = os.waitpid(about[0], os.WNOHANG)
            answer = os.waitstatus_to_exitcode(status) if done else None
            running -= {done}
        print(json.dumps(answer), flush=True)
    for pid in running:
        os.kill(pid, signal.SIGKILL)


def _become(code: str, arguments: list[str], environment: dict[str, str], cwd: str, folder: str) -> None:
    """What `python -c code` is, in this process, which ends as Python does."""
    for number, name in ((0, os.devnull), (1, f"{folder}/out"), (2, f"{folder}/err")):
        file = os.open(name, os.O_RDONLY if number == 0 else os.O_WRONLY)
        os.dup2(file, number)
        os.close(file)
    os.chdir(cwd)
    _settings(environment)
    os.environ.clear()
    os.environ.update(environment)
    sys.argv = ["-c", *arguments]
    main = sys.modules["__main__"] = type(sys)("__main__")
    exec(compile(code, "<string>", "exec"), vars(main))
    sys.exit(0)


def _settings(environment: dict[str, str]) -> None:
    """JAX's, where they are not those of the server."""
    import jax

    # `import coadjoint` sets JAX_ENABLE_X64 in the server; a process without it sets it again by its own import.
    names = {name for name in environment.keys() | os.environ.keys() if name.startswith("JAX_")}
    for name in names - ({"JAX_ENABLE_X64"} - environment.keys()):
        if environment.get(name) != os.environ.get(name):
            kind = type(getattr(jax.config, name.lower()))
            jax.config.update(name.lower(), kind(environment[name]) if kind in (int, float) else environment[name])
