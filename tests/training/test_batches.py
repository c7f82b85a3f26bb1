"""Batches of demonstrated frames: split, order, mirror, jitter."""

import time
from contextlib import closing

import numpy as np
import pytest
from toy_frames import ToyFrames

from robopolicy.envs.sweep import mirror as sweep_mirror
from robopolicy.training.batches import (
    Batch,
    Batches,
    Mirror,
    Prefetcher,
    Reach,
    moving,
    split_by_episode,
    statistics,
)

MIRROR = Mirror(sweep_mirror.mirrored_images, sweep_mirror.mirrored_poses, sweep_mirror.mirrored_actions)


def test_training_and_validation_have_different_episodes():
    episode = np.repeat(np.arange(10), [3, 5, 2, 7, 1, 4, 6, 2, 3, 9])
    split = split_by_episode(episode, 0.25, seed=3)
    assert sorted([*split.train, *split.validation]) == list(range(len(episode)))
    assert len(set(episode[split.validation])) == 3
    assert not set(episode[split.train]) & set(episode[split.validation])
    with pytest.raises(ValueError, match=r"validation is 0.9: of 1 episodes none would be left"):
        split_by_episode(np.zeros(4), 0.9, 0)


@pytest.mark.parametrize(
    ("share", "episodes", "count"), [(0.07, 100, 7), (0.05, 140, 7), (0.05, 141, 8), (1e-12, 3, 1), (0, 3, 0)]
)
def test_a_share_of_the_episodes_is_rounded_up_once(share, episodes, count):
    assert len(split_by_episode(np.arange(episodes), share, 0).validation) == count


def test_frames_with_small_actions_are_left_out_of_training_alone():
    frames = ToyFrames()
    small, large = frames.action[::7], frames.action[3::7]
    small[:], large[:] = 0.2, 0.0
    large[:, 11] = -0.4  # one number is enough
    split = split_by_episode(frames.episode, 0.25, seed=3)
    np.testing.assert_array_equal(moving(frames, split, 0.0).train, split.train)
    least = moving(frames, split, 0.3)
    np.testing.assert_array_equal(least.train, [n for n in split.train if n % 7])
    np.testing.assert_array_equal(least.validation, split.validation)


def test_an_epoch_has_every_frame_once_in_a_new_order():
    batches = Batches(ToyFrames(), np.arange(5, 25), 8, 0, None, 0.0)
    seen = np.concatenate([batches.indices(step) for step in range(5)])
    assert sorted(seen[:20]) == sorted(seen[20:]) == list(range(5, 25))
    assert list(seen[:20]) != list(seen[20:])
    again = Batches(ToyFrames(), np.arange(5, 25), 8, 0, None, 0.0)
    np.testing.assert_array_equal(again.indices(4), batches.indices(4))  # whatever was read before


def test_images_vectors_and_actions_of_a_frame_are_mirrored_together():
    frames = ToyFrames()
    plain = Batches(frames, np.arange(120), 64, 0, None, 0.0).at(0)
    mirrored = Batches(frames, np.arange(120), 64, 0, MIRROR, 0.0).at(0)
    images, seen = mirrored.images["image"], plain.images["image"]
    flipped = (images != seen).any(axis=(1, 2, 3))
    assert 16 < flipped.sum() < 48
    np.testing.assert_array_equal(images[flipped], seen[flipped][:, :, ::-1])
    moved = sweep_mirror.mirrored_poses(plain.vectors["poses"][flipped])
    np.testing.assert_array_equal(mirrored.vectors["poses"][flipped], moved)
    np.testing.assert_array_equal(mirrored.action[flipped], MIRROR.action(plain.action[flipped]))
    np.testing.assert_array_equal(mirrored.action[~flipped], plain.action[~flipped])


def test_jitter_changes_colours_alone():
    frames = ToyFrames()
    plain = Batches(frames, np.arange(120), 8, 0, None, 0.0).at(0)
    jittered = Batches(frames, np.arange(120), 8, 0, None, 0.1).at(0)
    images, seen = jittered.images["image"], plain.images["image"]
    gains = images[:, 0, 0].astype(float) / seen[:, 0, 0]
    assert gains.min() > 0.87
    assert gains.max() < 1.13
    assert len(np.unique(gains.round(3))) > 5
    wanted = np.clip(gains[:, None, None] * seen, 0, 255)
    assert np.abs(images - wanted).max() <= 200 / 40 + 1  # rounding of 40 * gain, scaled up
    np.testing.assert_array_equal(jittered.action, plain.action)


class Coloured(ToyFrames):
    def images(self, indices):
        ramp = np.arange(256, dtype=np.uint8)
        image = np.stack([ramp, ramp[::-1], np.roll(ramp, 90)], axis=-1)[None]
        return {"image": np.stack([image] * len(indices))}


def test_jitter_multiplies_each_channel_and_stops_at_white():
    plain = Coloured().images(range(8))["image"].astype(float)
    found = Batches(Coloured(), np.arange(120), 8, 0, None, 0.5).at(0).images["image"]
    gains = np.random.default_rng([0, 3, 0]).uniform(0.5, 1.5, (8, 3))[:, None, None]
    assert np.abs(found - np.clip(plain * gains, 0, 255)).max() <= 0.5001  # rounding


class Numbered(ToyFrames):
    """Three episodes of five steps: images and actions are the numbers of their frames."""

    def __init__(self):
        super().__init__(episodes=3, steps=5)
        self.action = np.repeat(np.arange(15.0)[:, None], 12, axis=1)

    def images(self, indices):
        return {"image": np.stack([np.full((4, 6, 3), 10 * (i + 1), np.uint8) for i in indices])}


def test_frames_before_a_step_and_actions_after_it_are_of_its_episode():
    batch = Batch.read(Numbered(), np.array([5, 6, 13, 9]), Reach(history=3, chunk=4))
    assert batch.images["image"].shape == (4, 3, 4, 6, 3)
    assert (batch.images["image"][:, :, 0, 0, 0] // 10 - 1).tolist() == [
        [5, 5, 5],
        [6, 5, 5],
        [13, 12, 11],
        [9, 8, 7],
    ]
    assert batch.action[:, :, 0].tolist() == [[5, 6, 7, 8], [6, 7, 8, 9], [13, 14, 14, 14], [9, 9, 9, 9]]


def test_the_range_of_actions_is_that_of_the_chunks():
    frames = Numbered()
    single = statistics(frames, np.array([2, 7]), None)
    assert (single["action_low"][0], single["action_high"][0]) == (1.75, 7.25)  # of 2 and 7, 5% wider
    chunks = statistics(frames, np.array([2, 7]), None, chunk=4)
    np.testing.assert_allclose([chunks["action_low"][0], chunks["action_high"][0]], [1.65, 9.35])
    np.testing.assert_array_equal(chunks["poses_shift"], single["poses_shift"])


def test_all_frames_and_actions_of_a_demonstration_are_changed_alike():
    frames, reach = Numbered(), Reach(3, 2)
    frames.action[:, :6] = 0.5  # of one arm
    plain = Batches(frames, np.arange(15), 12, 0, None, 0.0, reach).at(0)
    mirrored = Batches(frames, np.arange(15), 12, 0, MIRROR, 0.0, reach).at(0)
    flipped = (mirrored.action != plain.action).any(axis=(1, 2))
    assert 2 < flipped.sum() < 10
    np.testing.assert_array_equal(mirrored.action[flipped], MIRROR.action(plain.action[flipped]))
    brighter = Batches(frames, np.arange(15), 12, 0, None, 0.3, reach).at(0).images["image"]
    gains = brighter[:, :, 0, 0] / plain.images["image"][:, :, 0, 0]
    assert np.abs(gains - gains[:, :1]).max() < 0.1
    assert np.ptp(gains) > 0.2


def test_threads_read_the_same_batches_in_the_same_order():
    class Slow(Numbered):
        def images(self, indices):
            time.sleep(0.002 * (indices[0] % 3))  # later batches are ready before earlier ones
            return super().images(indices)

    def read(threads):
        batches = Batches(Slow(), np.arange(15), 4, 0, MIRROR, 0.3)
        with closing(Prefetcher(batches.at, 0, 30, threads)) as prefetcher:
            return list(prefetcher)

    alone, together = read(1), read(8)
    assert len(alone) == len(together) == 30
    for one, other in zip(alone, together, strict=True):
        np.testing.assert_array_equal(one.action, other.action)
        np.testing.assert_array_equal(one.images["image"], other.images["image"])


def test_the_consumer_of_batches_receives_errors_of_the_reader():
    class Broken(ToyFrames):
        def images(self, indices):
            raise OSError("the disk is gone")

    prefetcher = Prefetcher(Batches(Broken(), np.arange(120), 8, 0, None, 0.0).at, 0, 3)
    with pytest.raises(OSError, match="the disk is gone"):
        next(iter(prefetcher))
    prefetcher.close()
