"""A bundle on a robot of one's own: what to write between a vendor's SDK and `robopolicy.runtime`.

    python examples/own_robot.py BUNDLE --seconds 2

It takes a bundle of the stepping stones (robopolicy export stepping-stones-planned --out BUNDLE) and needs
numpy and onnxruntime alone. `VendorSDK` stands for what comes with the robot, with the habits that such
software has: millimetres, degrees, legs in another order, an interface of its own. It walks nowhere.

Expected: 40 steps of 50 ms, no deadline missed, and "stands" as the last word.
"""

import argparse
import sys

import numpy as np

from robopolicy.interrupts import interrupt_on_signals
from robopolicy.runtime.bundle import open_bundle
from robopolicy.runtime.process import policy_process
from robopolicy.runtime.robot import Driver

BUNDLE_LEGS = ("FR", "FL", "RR", "RL")
VENDOR_LEGS = ("FL", "FR", "RL", "RR")
TROT = 0.5  # s, a period of the gait


class VendorSDK:
    """Not ours: what the robot's maker supplies. This one makes its readings up."""

    def __init__(self) -> None:
        self.tick = 0
        self.last_footholds_mm = [0.0] * 4
        self.mode = "trot"

    def read(self) -> dict:
        noise = np.random.default_rng(self.tick)
        return {
            "time_s": 0.05 * self.tick,
            "front_depth_mm": (500 + 20 * noise.standard_normal((24, 32))).astype(np.uint16),
            "belly_depth_mm": (370 + 20 * noise.standard_normal((24, 32))).astype(np.uint16),
            "roll_pitch_deg": 0.5 * noise.standard_normal(2),
            "rates_deg_s": 5 * noise.standard_normal(3),
            "velocity_m_s": np.array([0.5, 0.0, 0.0]),
            "feet_m": np.tile([0.0, 0.1, -0.42], (4, 1)),
            "next_landing_m": np.full(4, 0.07),
        }

    def set_footholds_mm(self, values: list[float]) -> None:
        self.last_footholds_mm, self.tick = values, self.tick + 1

    def stand(self) -> None:
        self.mode = "stands"


class OwnRobot:
    """The four things that `robopolicy.runtime.robot.Robot` asks for, and `finished`."""

    def __init__(self, sdk: VendorSDK, scale: list[float]) -> None:
        self._sdk = sdk
        self._scale = np.array(scale, np.float32)  # m, of an action of one
        self._to_bundle = [VENDOR_LEGS.index(leg) for leg in BUNDLE_LEGS]
        self._to_vendor = [BUNDLE_LEGS.index(leg) for leg in VENDOR_LEGS]
        self._action = np.zeros(4, np.float32)

    def finished(self) -> bool:
        return self._sdk.mode != "trot"

    def observe(self) -> dict[str, np.ndarray]:
        read = self._sdk.read()
        phase = 2 * np.pi * read["time_s"] / TROT
        proprioception = np.concatenate(
            [
                np.radians(read["roll_pitch_deg"]),
                np.radians(read["rates_deg_s"]),
                read["velocity_m_s"],
                read["feet_m"][self._to_bundle].ravel(),
                [np.sin(phase), np.cos(phase)],
                self._action,  # of the step before, in [-1, 1], and not the command
                read["next_landing_m"][self._to_bundle],
            ]
        )
        return {
            "front_depth": (1e-3 * read["front_depth_mm"]).astype(np.float32),
            "belly_depth": (1e-3 * read["belly_depth_mm"]).astype(np.float32),
            "proprioception": proprioception.astype(np.float32),
        }

    def act(self, command: np.ndarray) -> None:
        self._action = command / self._scale
        self._sdk.set_footholds_mm((1e3 * command[self._to_vendor]).tolist())

    def hold(self) -> None:
        # What the policy wanted a step ago is nearer to what it wants now than no offset at all.
        self._sdk.set_footholds_mm(self._sdk.last_footholds_mm)

    def stop(self, reason: str) -> None:
        self._sdk.stand()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("bundle")
    parser.add_argument("--seconds", type=float, default=2.0)
    given = parser.parse_args()
    interrupt_on_signals()
    try:
        manifest = open_bundle(given.bundle).manifest
    except (OSError, ValueError) as error:
        parser.error(str(error))
    sdk = VendorSDK()
    robot = OwnRobot(sdk, manifest.data["outputs"]["command"]["scale"])
    with policy_process(given.bundle, manifest) as link:
        driver = Driver(link, manifest)
        stopped = driver.run(robot, given.seconds)
    record = driver.record
    print(f"{record.steps} steps of {1e3 * manifest.control_period:g} ms, {record.missed} deadlines missed")
    print(f"last footholds, mm ahead: {[round(value) for value in sdk.last_footholds_mm]}")
    print(sdk.mode if stopped is None else f"{sdk.mode}: {stopped}")
    return 0 if stopped is None else 1


if __name__ == "__main__":
    sys.exit(main())
