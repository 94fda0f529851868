"""The contract that every store keeps, for whoever writes one (needs pytest).

from recollect.testing import StoreContract

class TestMyStore(StoreContract):
opener = "my_package.store:open_store"

@pytest.fixture
def new_place(self, tmp_path):
numbers = itertools.count()
return lambda: f"mystore://{tmp_path}/{next(numbers)}"
"""

import pytest

pytest.register_assert_rewrite(
    *(
        f"recollect.testing.{name}"
        for name in (
            "asking", "changes", "contract", "crowds", "files", "forgetting", "hostile", "ranking", "records",
            "spaces", "supersession", "visibility",
        )
    )
)  # fmt: skip

from recollect.testing.contract import StoreContract  # noqa: E402  (after its assertions are told to explain themselves)

__all__ = ["StoreContract"]
