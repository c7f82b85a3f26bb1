"""Readings of one arm straight from each engine, in world axes, which tests compare with each other."""

import numpy as np
from scipy.spatial.transform import Rotation

from robopolicy.envs.physics.mujoco import mujoco  # it sets MUJOCO_GL before the import

LINKS = [*(f"lbr_iiwa_link_{link}" for link in range(1, 8)), "spatula"]


class BulletReadings:
    """Of arm 0 or 1; `physics` has been reset just before."""

    def __init__(self, physics, arm):
        self.bullet = physics.client
        bodies = [self.bullet.getBodyUniqueId(i) for i in range(self.bullet.getNumBodies())]
        self.arm = [body for body in bodies if self.bullet.getBodyInfo(body)[1] == b"lbr_iiwa"][arm]
        self.angles = physics.joints()[arm].tolist()

    def links(self):
        states = [self.bullet.getLinkState(self.arm, link, 0, 1) for link in range(len(LINKS))]
        infos = [self.bullet.getDynamicsInfo(self.arm, link) for link in range(len(LINKS))]
        axes = [Rotation.from_quat(state[1]).as_matrix() for state in states]
        return {
            "mass": [info[0] for info in infos],
            "centre of mass": [state[0] for state in states],
            "inertia": [r @ np.diag(info[2]) @ r.T for r, info in zip(axes, infos, strict=True)],
            "place": [state[4] for state in states],
            "rotation": [Rotation.from_quat(state[5]).as_matrix() for state in states],
        }

    def joints(self):
        infos = [self.bullet.getJointInfo(self.arm, joint) for joint in range(7)]
        return {"limits": [info[8:10] for info in infos], "damping": [info[6] for info in infos]}

    def torques(self, speeds, accelerations):
        return {
            "mass matrix": self.bullet.calculateMassMatrix(self.arm, self.angles),
            "gravity": self.bullet.calculateInverseDynamics(self.arm, self.angles, [0.0] * 7, [0.0] * 7),
            "inverse dynamics": self.bullet.calculateInverseDynamics(
                self.arm, self.angles, speeds.tolist(), accelerations.tolist()
            ),
        }

    def colors(self):
        return [shape[7] for shape in self.bullet.getVisualShapeData(self.arm)]

    def boxes(self):
        """Half extents and middles of what collides, the latter in the axes of the spatula."""
        spatula = len(LINKS) - 1
        center = self.bullet.getDynamicsInfo(self.arm, spatula)[3]
        shapes = self.bullet.getCollisionShapeData(self.arm, spatula)
        return [(*np.array(shape[3]) / 2, *np.add(shape[5], center)) for shape in shapes]


class MujocoReadings:
    """See `BulletReadings`."""

    def __init__(self, physics, arm):
        self.model, self.data = physics.model, physics.data
        prefix = ("left_", "right_")[arm]
        self.bodies = [self.model.body(prefix + name).id for name in LINKS]
        self.base = self.model.body(f"{prefix}lbr_iiwa_link_0").id
        self.hinges = [self.model.joint(f"{prefix}lbr_iiwa_joint_{i}").id for i in range(1, 8)]
        self.dofs = self.model.jnt_dofadr[self.hinges]

    def links(self):
        model, data = self.model, self.data
        axes = data.ximat[self.bodies].reshape(-1, 3, 3)
        return {
            "mass": model.body_mass[self.bodies],
            "centre of mass": data.xipos[self.bodies],
            "inertia": [
                r @ np.diag(own) @ r.T for r, own in zip(axes, model.body_inertia[self.bodies], strict=True)
            ],
            "place": data.xpos[self.bodies],
            "rotation": data.xmat[self.bodies].reshape(-1, 3, 3),
        }

    def joints(self):
        model = self.model
        return {"limits": model.jnt_range[self.hinges], "damping": model.dof_damping[self.dofs]}

    def torques(self, speeds, accelerations):
        model, data = self.model, self.data
        full = np.zeros((model.nv, model.nv))
        mujoco.mj_fullM(model, data, full)
        inertia = full[np.ix_(self.dofs, self.dofs)] - np.diag(model.dof_armature[self.dofs])
        gravity = data.qfrc_gravcomp[self.dofs].copy()
        data.qvel[self.dofs] = speeds
        mujoco.mj_forward(model, data)
        moving = data.qfrc_bias[self.dofs] + inertia @ accelerations
        return {"mass matrix": inertia, "gravity": gravity, "inverse dynamics": moving}

    def colors(self):
        model = self.model
        seen = (model.geom_group == 1) & np.isin(model.geom_bodyid, [self.base, *self.bodies])
        return model.geom_rgba[seen]

    def boxes(self):
        model = self.model
        touching = (model.geom_contype > 0) & np.isin(model.geom_bodyid, [self.base, *self.bodies])
        assert (model.geom_bodyid[touching] == self.bodies[-1]).all()
        return np.hstack([model.geom_size[touching], model.geom_pos[touching]])


def readings(physics, arm, speeds, accelerations):
    """All readings of either engine by name; torques also for `speeds` and `accelerations` [7]."""
    of = {"BulletArms": BulletReadings, "MujocoArms": MujocoReadings}[type(physics).__name__](physics, arm)
    torques = of.torques(speeds, accelerations)
    return {**of.links(), **of.joints(), **torques, "boxes": of.boxes(), "colors": of.colors()}
