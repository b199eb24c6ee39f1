"""A PostgreSQL server for tests: a cluster of its own in a temporary folder, which listens on a socket in it alone."""

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from pathlib import Path
from types import MappingProxyType
from urllib.parse import quote

PASSWORD = "not in any message"


def binaries():
    """Return the folder of initdb and postgres, of the newest version there is; None where it is not installed."""
    found = shutil.which("postgres")
    folders = [Path(found).parent] if found else []
    folders += sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda path: float(path.parent.name))
    return next((folder for folder in reversed(folders) if (folder / "initdb").exists()), None)


@contextlib.contextmanager
def running_postgres(settings=MappingProxyType({})):
    """Start a server, yield its URL, and stop it. It refuses to run as root, so root runs it as another user."""
    folder, tools = Path(tempfile.mkdtemp(prefix="dpsieve-postgres-")), binaries()
    how = {"cwd": "/", "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    if os.getuid() == 0:
        other = next(pwd.getpwnam(name) for name in ("postgres", "nobody") if _exists(name))
        how |= {"user": other.pw_uid, "group": other.pw_gid, "extra_groups": []}
        os.chown(folder, other.pw_uid, other.pw_gid)
    (folder / "password").write_text(PASSWORD)
    (folder / "password").chmod(0o644)
    server = None
    try:
        make = [tools / "initdb", "-D", folder / "data", "-U", "tester", "-A", "scram-sha-256", "-E", "UTF8"]
        make += ["--locale=C.UTF-8", "--no-sync", "--pwfile", folder / "password"]
        subprocess.run(list(map(str, make)), check=True, **how)
        run = [tools / "postgres", "-D", folder / "data", "-k", folder, "-h", "", "-c", "fsync=off"]
        for name, value in ({"max_wal_size": "64MB", "shared_buffers": "32MB"} | dict(settings)).items():
            run += ["-c", f"{name}={value}"]
        server = subprocess.Popen(list(map(str, run)), **how)
        until = time.monotonic() + 60
        while not (folder / ".s.PGSQL.5432").exists() or not _ready(tools, folder, how):
            if server.poll() is not None or time.monotonic() > until:
                raise RuntimeError("PostgreSQL does not start")
            time.sleep(0.02)
        yield f"postgresql://tester:{quote(PASSWORD)}@/postgres?host={quote(str(folder), safe='')}"
    finally:
        if server is not None:
            server.send_signal(signal.SIGQUIT)
            server.wait(20)
        shutil.rmtree(folder, ignore_errors=True)


def _exists(name):
    with contextlib.suppress(KeyError):
        return bool(pwd.getpwnam(name))
    return False


def _ready(tools, folder, how):
    return subprocess.run([str(tools / "pg_isready"), "-q", "-h", str(folder)], check=False, **how).returncode == 0
