"""The code of the guide runs, block after block."""

import re
from pathlib import Path

import pytest

GUIDE = Path(__file__).parents[2] / "docs" / "write_your_own_channel.md"
BLOCKS = re.findall(r"```python\n(.*?)```", GUIDE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("last", range(len(BLOCKS)))
def test_the_blocks_up_to_here_run(last, capsys):
    names = {"__name__": "guide"}
    for block in BLOCKS[: last + 1]:
        exec(compile(block, str(GUIDE), "exec"), names)
    for line in re.findall(r"print\(.*\)  # (.*)", BLOCKS[last]):
        assert line in capsys.readouterr().out
