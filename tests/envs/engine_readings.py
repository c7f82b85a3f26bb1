"""Readings of the quadruped straight from each engine, which tests compare with each other and with ours."""

import numpy as np

from robopolicy.envs.physics import is_installed
from robopolicy.envs.physics.mujoco import BASE, mujoco  # it sets MUJOCO_GL before the import

if is_installed("bullet"):
    from robopolicy.envs.physics.bullet import pybullet


def readings(physics):
    """The readings of either engine."""
    return {"BulletPhysics": BulletReadings, "MujocoPhysics": MujocoReadings}[type(physics).__name__](physics)


class BulletReadings:
    """Generalised forces are in the order base linear, base angular (world), joints."""

    def __init__(self, physics):
        self.bullet, self.robot, self.state = physics.client, physics.robot, physics.state
        self.joints, self.toes = physics.joints, physics.toes
        self.substeps = physics.config.substeps

    def foot_contacts(self):
        """Whether each foot touches the terrain, [4]."""
        touching = {contact[3] for contact in self.bullet.getContactPoints(bodyA=self.robot)}
        return np.array([toe in touching for toe in self.toes])

    def ray_distances(self, origins, directions, reach):
        """Distance [N] (m), at most `reach`, to the terrain from `origins` along unit `directions` [N, 3]."""
        ends = origins + reach * directions
        fractions = []
        for start in range(0, len(origins), pybullet.MAX_RAY_INTERSECTION_BATCH_SIZE):
            part = slice(start, start + pybullet.MAX_RAY_INTERSECTION_BATCH_SIZE)
            hits = self.bullet.rayTestBatch(origins[part].tolist(), ends[part].tolist())
            fractions.append(np.array([1.0 if hit[0] == self.robot else hit[2] for hit in hits]))
        return reach * np.concatenate(fractions)

    def mass_matrix(self):
        """Joint-space inertia [18, 18]."""
        state = self.state()
        # Bullet orders velocities as base angular, base linear (both in base axes), joints.
        own = np.array(self.bullet.calculateMassMatrix(self.robot, state.joint_positions.tolist()))
        turn = _from_bullet(state.rotation)
        return turn @ own @ turn.T

    def gravity_torques(self):
        """Generalised force [18] that balances gravity."""
        state = self.state()
        quaternion = self.bullet.getBasePositionAndOrientation(self.robot)[1]
        place = [*state.position, *quaternion, *state.joint_positions]
        still = [0.0] * len(place)
        forces = self.bullet.calculateInverseDynamics(self.robot, place, still, still, 1)
        return np.delete(np.array(forces), 6)  # entry 6 belongs to the fourth entry of the quaternion

    def foot_positions(self):
        """Centres of the toes, [4, 3] (m, world)."""
        return np.array([self.bullet.getLinkState(self.robot, toe, 0, 1)[0] for toe in self.toes])

    def foot_jacobians(self):
        """Jacobian of each toe's centre (world) for the generalised velocity, [4, 3, 18]."""
        state = self.state()
        joints, still = state.joint_positions.tolist(), [0.0] * len(self.joints)
        own = [
            self.bullet.calculateJacobian(self.robot, toe, [0.0] * 3, joints, still, still)[0]
            for toe in self.toes
        ]
        return state.rotation @ np.array(own) @ _from_bullet(state.rotation).T

    def contact_forces(self):
        """Force of the terrain on each foot in the last physics step, [4, 3] (N, world)."""
        forces = np.zeros((4, 3))
        for contact in self.bullet.getContactPoints(bodyA=self.robot):
            parts = ((contact[9], contact[7]), (contact[10], contact[11]), (contact[12], contact[13]))
            forces[self.toes.index(contact[3])] += sum(size * np.array(axis) for size, axis in parts)
        # Bullet divides the impulse of one physics step by the whole control period.
        return forces * self.substeps


class MujocoReadings:
    """See `BulletReadings`."""

    def __init__(self, physics):
        physics.locate()
        self.model, self.data = physics.model, physics.data
        self.toes = physics.toes

    def foot_contacts(self):
        return np.array([bool((self.data.contact.geom == toe).any()) for toe in self.toes])

    def ray_distances(self, origins, directions, reach):
        geom, groups = np.zeros(1, np.int32), np.array([1, 0, 0, 0, 0, 0], np.uint8)
        hits = [
            mujoco.mj_ray(self.model, self.data, o, d, groups, 1, BASE, geom)
            for o, d in zip(np.asarray(origins, float), np.asarray(directions, float), strict=True)
        ]
        distances = np.array(hits)
        return np.where((distances < 0) | (distances > reach), reach, distances)

    def mass_matrix(self):
        mujoco.mj_crb(self.model, self.data)
        full = np.zeros((self.model.nv, self.model.nv))
        mujoco.mj_fullM(self.model, self.data, full)
        turn = self._world_axes()
        return turn @ full @ turn.T

    def gravity_torques(self):
        velocity = self.data.qvel.copy()
        self.data.qvel[:] = 0.0
        mujoco.mj_fwdVelocity(self.model, self.data)
        forces = self.data.qfrc_bias.copy()
        self.data.qvel[:] = velocity
        return self._world_axes() @ forces

    def foot_positions(self):
        return self.data.geom_xpos[self.toes].copy()

    def foot_jacobians(self):
        jacobians = np.zeros((4, 3, self.model.nv))
        for jacobian, toe in zip(jacobians, self.toes, strict=True):
            place, body = self.data.geom_xpos[toe], self.model.geom_bodyid[toe]
            mujoco.mj_jac(self.model, self.data, jacobian, None, place, body)
        return jacobians @ self._world_axes().T

    def contact_forces(self):
        forces, one = np.zeros((4, 3)), np.zeros(6)
        for index in range(self.data.ncon):
            contact = self.data.contact[index]
            mujoco.mj_contactForce(self.model, self.data, index, one)
            toe = np.flatnonzero(np.isin(self.toes, contact.geom))
            # The frame's first axis points from the first geom to the second; the force acts on the second.
            sign = 1.0 if contact.geom[1] in self.toes else -1.0
            forces[toe] += sign * contact.frame.reshape(3, 3).T @ one[:3]
        return forces

    def _world_axes(self):
        """Matrix [18, 18] that rotates the base moments of a generalised force from body to world axes."""
        turn = np.eye(18)
        turn[3:6, 3:6] = self.data.xmat[BASE].reshape(3, 3)
        return turn


def _from_bullet(rotation):
    """Matrix [18, 18] from Bullet's generalised forces to ours."""
    turn = np.eye(18)
    turn[:6, :6] = 0.0
    turn[:3, 3:6] = turn[3:6, :3] = rotation
    return turn
