"""A project with its engine and gateway for each module, with the module's `FILES`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.features.gateway.live_served import SETTINGS, Garden, garden


@pytest.fixture(scope="module")
def module_garden(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[Garden]:
    with garden(tmp_path_factory.mktemp("garden"), SETTINGS, request.module.FILES) as there:
        yield there


@pytest.fixture
def there(module_garden: Garden) -> Iterator[Garden]:
    yield module_garden
    module_garden.rest()
    module_garden.end_clients()
