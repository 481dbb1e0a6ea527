"""What the README and docs/python.md show is run, as it stands, on the tests' cluster."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def readme():
    """The indented lines after the README's "From Python"."""
    after = (ROOT / "README.md").read_text().split("From Python", 1)[1]
    lines = after.split("\n\n", 1)[1].split("\n\n", 1)[0].splitlines()
    assert all(line.startswith("    ") for line in lines)
    return "\n".join(line[4:] for line in lines)


def run(code, cluster):
    assert "/srv/braid" in code
    exec(compile(code.replace("/srv/braid", cluster), "document", "exec"), {"__name__": "document"})


def test_the_readme(cluster, capsys):
    run(readme(), cluster)
    assert capsys.readouterr().out == "b'hello'\n"


def test_the_document(cluster):
    pytest.importorskip("fsspec")
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / "docs" / "python.md").read_text(), re.S)
    assert len(blocks) == 8
    for block in blocks:
        run(block, cluster)
