"""Copies and notifications: the tests of other stores, with a distributed one in their place."""

# ruff: noqa: F401
from collections.abc import Callable
from pathlib import Path

import pytest
from moving.test_copy import (
    test_copy_answers_like_its_source,
    test_copy_can_be_changed_further,
    test_copy_exports_the_same_bytes,
    test_killed_copy_continues,
    test_killed_merge_continues,
    test_merge_adds_what_is_missing_and_overwrites_nothing,
    test_purged_records_do_not_come_back,
    test_source_may_be_written_during_a_copy,
    test_target_may_be_searched_during_a_copy,
)
from moving.test_following import (
    follow_random_histories,
    test_change_of_the_target_during_a_copy_is_not_overwritten,
    test_change_of_the_target_is_named_and_stays,
    test_every_batch_may_be_the_last,
    test_files_that_were_indexed_again_are_followed,
    test_id_of_a_purged_record_moves_to_another_scope,
    test_killed_copy_that_follows_continues,
    test_model_of_the_target_stays_in_use,
    test_purge_is_followed,
    test_vectors_that_were_deleted_are_followed,
)
from stores.test_changes import (
    memory,
    test_many_listeners_and_writers,
    test_memory_is_notified_of_another_processs_changes,
    test_scoped_caller_is_notified_only_of_visible_changes,
)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("way", ["to", "from", "within"])
def test_random_changes_are_followed(
    way: str, new_file: Callable[[], str], new_cluster_place: Callable[[], str], tmp_path: Path
) -> None:
    """Between a file and a cluster, and between two stores of it."""
    both = {
        "to": (new_file, new_cluster_place),
        "from": (new_cluster_place, new_file),
        "within": (new_cluster_place, new_cluster_place),
    }
    follow_random_histories(range(600, 604), *both[way], tmp_path)
