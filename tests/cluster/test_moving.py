"""Copies and notifications: the tests of other stores, with a distributed one in their place."""

# ruff: noqa: F401
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
from stores.test_changes import (
    memory,
    test_many_listeners_and_writers,
    test_memory_is_notified_of_another_processs_changes,
    test_scoped_caller_is_notified_only_of_visible_changes,
)
