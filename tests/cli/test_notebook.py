"""A release in a real notebook kernel, as a data scientist runs it, without ipywidgets."""

import subprocess
import sys

CODE = """
import sys
sys.modules["ipywidgets"] = None
import dpsieve as ds, pyarrow as pa
table = pa.table({"user": list(range(500)), "query": ["tea"] * 500})
shares = []
for more in ({}, {"progress": shares.append}):
    made = ds.release(table, key="query", privacy_unit="user", epsilon=1.0, delta=1e-6, **more)
    print(made.table["query"].to_pylist())
print(shares[-1])
"""
CLIENT = """
import sys
from jupyter_client.manager import start_new_kernel
manager, client = start_new_kernel()
try:
    reply = client.execute_interactive(sys.argv[1], timeout=120)["content"]
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
sys.exit("".join(reply.get("traceback", [])) or None)
"""


def test_a_release_in_a_notebook():
    done = subprocess.run([sys.executable, "-c", CLIENT, CODE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "['tea']\n['tea']\n1.0\n"
