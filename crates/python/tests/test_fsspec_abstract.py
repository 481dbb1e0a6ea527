"""fsspec's own tests of a file system."""

import pytest

pytest.importorskip("fsspec")
abstract = pytest.importorskip("fsspec.tests.abstract")


class Fixtures(abstract.AbstractFixtures):
    @pytest.fixture
    def fs(self, cluster):
        import fsspec

        return fsspec.filesystem("braid", cluster=cluster)

    @pytest.fixture
    def fs_path(self):
        return "main"

    @pytest.fixture
    def fs_join(self):
        return lambda *parts: "/".join(parts)


class TestCopy(abstract.AbstractCopyTests, Fixtures):
    pass


class TestGet(abstract.AbstractGetTests, Fixtures):
    pass


class TestOpen(abstract.AbstractOpenTests, Fixtures):
    pass


class TestPipe(abstract.AbstractPipeTests, Fixtures):
    pass


class TestPut(abstract.AbstractPutTests, Fixtures):
    pass
