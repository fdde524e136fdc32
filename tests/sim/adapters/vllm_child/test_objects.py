"""What may be left out of a release's objects, what is refused, and what is strange."""

from __future__ import annotations

import dataclasses

import objects
import pytest


@dataclasses.dataclass
class Older:
    """A release's configuration that lacks what came later."""

    block_size: int = 16


def test_what_a_release_lacks_is_left_out_only_where_that_changes_nothing() -> None:
    accepted = objects.accepted
    told = {"block_size": 32, "prefix_cache_retention_interval": None, "num_hash_lookahead_tokens": 3}
    assert accepted("CacheConfig", ["block_size"], told) == {"block_size": 32}
    told |= {"num_prefill_checkpoint_blocks": 1, "disable_eagle_block_drop": True}
    with pytest.raises(objects.Unsupported, match=r"it has no engine\.num_pref.*, no engine\.speculative\.bl"):
        accepted("CacheConfig", ["block_size"], told)
    with pytest.raises(objects.Strange, match=r"its CacheConfig has no watermark; known are vLLM 0\.26\.0 to 0\.33\.0"):
        accepted("CacheConfig", [], {"watermark": 0.0})


def test_a_configuration_is_made_of_its_own_fields() -> None:
    assert objects.bare(Older, block_size=8).block_size == 8
    assert objects.bare(Older).block_size == 16
    with pytest.raises(objects.Strange, match="its Older has no watermark"):
        objects.bare(Older, watermark=0.5)

    @dataclasses.dataclass
    class Broken:
        size: int = dataclasses.field(default_factory=lambda: 1 // 0)

    with pytest.raises(objects.Strange, match=r"the default of its Broken\.size cannot be had \(integer division"):
        objects.bare(Broken)


def test_an_attribute_that_all_releases_have_is_missed_by_name() -> None:
    with pytest.raises(objects.Strange, match="its Older has no watermark_blocks"):
        objects.attribute(Older(), "watermark_blocks")
