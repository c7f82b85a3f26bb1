"""The pictures of docs/stepping-stones.md: the presets, and what both cameras see of them.

    python benchmarks/task_pictures.py

Draws with the software renderer, seed 9000, the oracle walking, after 3 seconds.
"""

import argparse
from pathlib import Path

import gymnasium

from robopolicy.viz.pictures import picture

PRESETS = ("paper", "painted", "dust", "dust-thick", "hard", "extreme", "sparse", "sparse-dirty", "front")
OUT = Path(__file__).parent.parent / "docs" / "images" / "presets.png"


def main() -> None:
    """Draw and write."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    OUT.parent.mkdir(exist_ok=True)
    with picture(OUT, (22, 6)) as figure:
        figure.set_layout_engine("compressed")  # pictures keep their sides
        axes = figure.subplots(3, len(PRESETS), height_ratios=(1.25, 1, 1))
        for preset, column in zip(PRESETS, axes.T, strict=True):
            env = gymnasium.make(
                "robopolicy:robopolicy/SteppingStones-v0",
                engine="bullet",
                preset=preset,
                render_mode="rgb_array",
                render_size=(640, 440),
            )
            observation, _ = env.reset(seed=9000)
            for _ in range(60):
                observation, *_ = env.step(env.unwrapped.oracle_action())
            column[0].imshow(env.render())
            column[0].set_title(preset)
            for name, panel in zip(("front_depth", "belly_depth"), column[1:], strict=True):
                if name in observation:
                    shown = panel.imshow(observation[name], vmin=0.0, vmax=1.0)
            env.close()
            for panel in column:
                panel.set(xticks=[], yticks=[])
                panel.spines[:].set_visible(False)
        for panel, name in zip(axes[1:, 0], ("front", "belly"), strict=True):
            panel.set_ylabel(name)
        figure.colorbar(shown, ax=axes[1:], label="depth, m")
    print(OUT)


if __name__ == "__main__":
    main()
