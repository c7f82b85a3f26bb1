"""A Go2 on a DDS network as the runtime's `Robot`: its 500 Hz loop runs in a thread of this process."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from robopolicy.control.robot import Robot
from robopolicy.control.robots import GO2
from robopolicy.runtime.manifest import Manifest
from robopolicy.runtime.robot import percentiles
from robopolicy.settings import check_number
from robopolicy.unitree.checks import PERIOD, SafetyConfig
from robopolicy.unitree.dds import LOW_CMD, LOW_STATE, Network, Node, Reader
from robopolicy.unitree.fitting import fit
from robopolicy.unitree.images import Image, depth_of
from robopolicy.unitree.low_level import LowLevel, Phase
from robopolicy.unitree.records import Record

PATIENCE = 12.0  # s to find a robot, or for DDS to forget one that has gone; more is added to stand or lie
LOOK = 0.05  # s, between two looks at who publishes
LAST = 10  # commands to damp before the low level ends
BEHIND = 5  # low states that may wait to be read; of more, each fifth and the last two are used
BLIND = 2  # policy steps that may pass without a new image of a camera
OTHERS = f"another program publishes {LOW_CMD}"
TOPICS = "rt/{}"  # of a camera's images, by its name in the bundle


class UnitreeRobot:
    """Drives a robot over `network`. Use it as a context: its end waits until the robot is at rest.

    Call `begin` before a drive. Give `wait` to the driver: the steps of the policy are those of the robot's
    gait, by the robot's clock.
    """

    def __init__(
        self,
        manifest: Manifest,
        network: Network,
        *,
        robot: Robot = GO2,
        pace: float = 1.0,
        waits: float = 0.0,
        safety: SafetyConfig | None = None,
        ended: Callable[[], bool] = lambda: False,
    ) -> None:
        """
        pace: seconds of the robot in a second, below 1 for a simulated robot in slow motion.
        waits: s that the low level waits for an answer to each step, for a simulated robot that waits, too.
        ended: whether the task has ended, which a real robot does not tell.

        Raises ValueError, in one line, for a bundle or a network that cannot be used.
        """
        check_number("pace", pace, 0.01, 1.0)
        self._manifest, self._robot, self._pace, self._ended = manifest, robot, pace, ended
        self._fit, self._safety, self._waits = fit(manifest, robot), safety, waits
        self.low = self._new_low()
        self.low.rehearse()
        self._node = Node(network)
        self._states = self._node.records(LOW_STATE, "LowState_")
        self._commands = self._node.writer(LOW_CMD, "LowCmd_")
        self._cameras: dict[str, Reader] = {
            name: self._node.images(TOPICS.format(name)) for name in self._fit.cameras
        }
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> UnitreeRobot:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self.rest()
        finally:
            self._node.close()

    def begin(self) -> None:
        """Connect, rise and stand.

        Raises ConnectionError or ValueError, in one line: nothing that is published fits, or the robot was
        stopped on its way.
        """
        self.rest()
        self._forget_images()
        self.low = self._new_low()
        self.spent: list[float] = []  # s from each low state to its command
        self.late = 0
        self._begun, self._seen = 0, 0  # steps that the low level has begun, and that `wait` has returned
        self._failure: BaseException | None = None
        self._writer: int | None = None
        self._step_began = 0.0
        self._find()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="low level", daemon=True)
        self._thread.start()
        until = time.monotonic() + PATIENCE + 5.0 / self._pace
        with self._changed:
            while not self._changed.wait_for(lambda: self.low.ready or self._is_over, LOOK):
                if time.monotonic() > until:
                    break
                if self._node.others(LOW_CMD):
                    self.low.stop(OTHERS)
        if not self.low.ready:
            slow = f"the robot did not stand up in time: it {self.low.phase.value}"
            slow += f"; {self.low.complaint}" if self.low.complaint else ""
            self.low.stop(slow)
            raise self._failure or ConnectionError(self.low.reason or slow)
        try:
            self._see()
        except (ValueError, ConnectionError) as error:
            self.low.stop(str(error))
            raise self._failure or error from None

    def wait(self, due: float) -> float:
        """Wait for the next step of the policy, and return when it began (s of `time.monotonic`).

        Raises ConnectionError if the low level has stopped the robot or begins no step, or if another program
        commands it, too.
        """
        if self._node.others(LOW_CMD):
            raise ConnectionError(OTHERS)
        self.low.walk()
        patience = PATIENCE / self._pace
        with self._changed:
            self._changed.wait_for(lambda: self._begun > self._seen or self._is_over, patience)
            if self._failure is not None:
                raise self._failure
            if self.low.reason is not None:
                raise ConnectionError(self.low.reason)
            if self._begun == self._seen:
                raise ConnectionError(f"the low level began no step for {patience:g} s")
            self._seen = self._begun
            return self._step_began

    def finished(self) -> bool:
        """See `Robot`."""
        return self._ended()

    def observe(self) -> Mapping[str, NDArray[Any]]:
        """See `Robot`.

        Raises ConnectionError if a camera has sent nothing for more than `BLIND` steps, and ValueError, in
        one line, for an image that the bundle does not read.
        """
        self._look()
        for name, steps in self._blind.items():
            if steps > BLIND:
                raise ConnectionError(f"no image came on {TOPICS.format(name)} for {steps} steps")
        readings = self.low.readings | self._newest
        return {name: readings[name] for name in self._manifest.inputs}

    def act(self, command: NDArray[np.float32]) -> None:
        """See `Robot`."""
        self.low.act(command)
        self._answer()

    def hold(self) -> None:
        """See `Robot`."""
        self.low.hold()
        self._answer()

    def stop(self, reason: str) -> None:
        """See `Robot`: the low level brings the robot to a stand and lays it down; `rest` waits for that."""
        self.low.stop(reason)
        self._answer()

    def rest(self) -> None:
        """Wait until the robot is at rest or has gone, and end the low level. Raises what has failed in it.

        If the wait is interrupted or in vain, all motors damp.
        """
        thread, self._thread = self._thread, None
        if thread is None:
            return
        self.stop("the drive has ended")
        until = time.monotonic() + PATIENCE + 10.0 / self._pace
        try:
            with self._changed:
                while not self._changed.wait_for(lambda: self._is_down, LOOK) and time.monotonic() < until:
                    if self.low.phase is Phase.DAMPED and not self._node.others(LOW_STATE):
                        break  # nobody is left to rest
        finally:  # a second Ctrl-C included
            self._closing = True
            thread.join()
        if self._failure is not None:
            raise self._failure

    def summary(self) -> dict[str, Any]:
        """Counts and times (s) of the low level, for JSON."""
        return {
            "periods": self.low.periods,
            "bridged": self.low.bridged,
            "late": self.late,
            "overdue": self.low.overdue,
            "ignored": dict(self.low.ignored),
            "spent": percentiles(self.spent) if self.spent else None,
        }

    def _new_low(self) -> LowLevel:
        manifest = self._manifest
        timing = (manifest.control_period, self._fit.scale, manifest.deadline)
        return LowLevel(self._robot, self._fit.walker, *timing, self._safety)

    @property
    def _is_over(self) -> bool:
        return self.low.reason is not None or self._failure is not None

    @property
    def _is_down(self) -> bool:
        is_unmoved = self.low.phase is Phase.WAITING
        return self.low.rests or is_unmoved or self._failure is not None

    def _answer(self) -> None:
        if self._waits:
            with self._changed:
                self._changed.notify_all()

    def _find(self) -> None:
        """Wait for one robot and its cameras. Nobody else may command it."""
        until = time.monotonic() + PATIENCE
        kind = "unitree_go::msg::dds_::LowState_"
        while True:
            robots, missing = self._node.others(LOW_STATE), self._missing_images()
            if len(robots) == 1 and not missing:
                break
            if time.monotonic() > until:
                if len(robots) > 1:
                    raise ConnectionError(f"{len(robots)} peers publish {LOW_STATE}: there must be one")
                lacking = LOW_STATE if not robots else TOPICS.format(missing[0])
                raise ConnectionError(f"nothing came on {lacking} for {PATIENCE:g} s")
            time.sleep(0.02)
        if robots[0].type != kind:
            raise ConnectionError(f"{LOW_STATE} has the type {robots[0].type}: a Go2 publishes {kind}")
        if self._node.others(LOW_CMD):
            raise ConnectionError(f"{OTHERS}: end it, or the robot's own motion service, first")

    def _see(self) -> None:
        """Wait for an image of each camera that is not of the rise: a camera may have stopped meanwhile."""
        self._forget_images()
        until = time.monotonic() + PATIENCE
        while missing := self._missing_images():
            if self._node.others(LOW_CMD):
                raise ConnectionError(OTHERS)
            if self._is_over or time.monotonic() > until:
                gone = f"no image came on {TOPICS.format(missing[0])} once the robot stood"
                raise ConnectionError(self.low.reason or gone)
            time.sleep(0.002)
        self._blind = dict.fromkeys(self._cameras, 0)

    def _forget_images(self) -> None:
        """Drop all images so far, also those that wait to be taken: a camera may have stopped since."""
        for reader in self._cameras.values():
            reader.take()
        self._newest: dict[str, NDArray[np.float32]] = {}
        self._blind = dict.fromkeys(self._cameras, 0)

    def _missing_images(self) -> list[str]:
        """The cameras of which no image has come since `_forget_images`."""
        self._look()
        return sorted(self._cameras.keys() - self._newest.keys())

    def _look(self) -> None:
        """Take the newest images."""
        for name, reader in self._cameras.items():
            self._blind[name] += 1
            arrived = reader.take()
            if arrived:
                image: Image = arrived[-1][0]
                value = self._fit.cameras[name]
                depth = depth_of(TOPICS.format(name), image, value.shape, float(value.high))
                self._newest[name], self._blind[name] = depth, 0

    def _run(self) -> None:
        """The 500 Hz loop."""
        try:
            self._loop()
        except BaseException as error:
            self._failure = error
            self._damp(f"the low level failed: {type(error).__name__}")
        finally:
            with self._changed:
                self._changed.notify_all()

    def _damp(self, reason: str) -> None:
        """Damp all motors. No command follows, and a message may be lost, so it is written several times."""
        self.low.damp(reason)
        for _ in range(LAST):
            self._commands.write(self.low.command)
            time.sleep(1e-3 * PERIOD)

    def _arrived(self, patience: float = 0.0) -> list[Record]:
        """The low states of the robot that have arrived; the first that publishes is the robot."""
        states = []
        for state, writer in self._states.take(patience, partial(self.low.ignore, "undecodable")):
            self._writer = self._writer or writer
            if writer == self._writer:
                states.append(state)
            else:
                self.low.ignore("another peer", f"another peer publishes {LOW_STATE}")
        return states

    def _loop(self) -> None:
        low, period = self.low, 1e-3 * PERIOD / self._pace
        self._states.take(on_bad=lambda _: None)  # what came while others were looked for is old
        before = time.monotonic()
        while not self._closing:
            arrived = self._arrived(2 * period)
            began = time.monotonic()
            steps, over, ready = low.steps, self._is_over, low.ready
            is_valid = False
            held_up = (began - before) * self._pace
            if held_up > low.safety.lost and low.phase is not Phase.WAITING:
                low.damp(f"the low level was held up for {1e3 * held_up:.0f} ms")
            if len(arrived) > BEHIND:  # a slow low level must not use older and older states
                arrived = arrived[:-2:BEHIND] + arrived[-2:]  # the last two may be swapped
            for state in arrived:
                is_valid |= low.update(state)
            if not is_valid:
                low.missing((began - before) * self._pace)
            before = began
            if is_valid:
                self.spent.append(time.monotonic() - began)
                self.late += self.spent[-1] > period
            if (low.steps, self._is_over, low.ready) != (steps, over, ready) or low.rests:
                with self._changed:
                    if low.steps > steps:
                        self._begun, self._step_began = low.steps, began
                    self._changed.notify_all()
            if self._waits and low.steps > steps:
                with self._changed:
                    self._changed.wait_for(lambda: low.is_stopping or not low.is_asked, self._waits)
                before = time.monotonic()
            if low.phase is not Phase.WAITING:
                self._commands.write(low.command)
        if low.phase not in (Phase.WAITING, Phase.DAMPED):
            self._damp("the robot did not come to rest")
