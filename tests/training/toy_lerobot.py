"""A LeRobot dataset of another program: an arm with two joints and two cameras."""

import json

import cv2
import imageio_ffmpeg
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

FILE = "chunk-000/file-000"
JOINTS = ["shoulder_pan.pos", "gripper.pos"]
LENGTHS, SIDES, RATE = (4, 6), (16, 32), 30
VIDEO = "videos/observation.images.front"


def picture(episode, step):
    """Grey, brighter from step to step: a video changes it little."""
    return np.full((*SIDES, 3), 100 * episode + 15 * step, np.uint8)


def write_arm(folder):
    """Write a dataset as LeRobot's own recorder lays it out: two cameras, of which one is a video."""
    rows = [(e, t) for e, length in enumerate(LENGTHS) for t in range(length)]
    episodes = np.array([e for e, _ in rows])
    state = np.array([[10 * e, t] for e, t in rows], np.float32)
    encoded = [cv2.imencode(".png", picture(*row))[1].tobytes() for row in rows]
    data = {
        "observation.images.wrist": pa.array([{"bytes": e, "path": "x.png"} for e in encoded]),
        "observation.state": pa.FixedSizeListArray.from_arrays(pa.array(state.ravel()), 2),
        "action": pa.FixedSizeListArray.from_arrays(pa.array((state * -2).ravel()), 2),
        "episode_index": pa.array(episodes),
        "frame_index": pa.array([t for _, t in rows]),
    }
    described = [
        {
            "episode_index": e,
            "tasks": ["pick"],
            "length": length,
            **{f"{part}/{n}_index": 0 for part in ("data", VIDEO) for n in ("chunk", "file")},
            f"{VIDEO}/from_timestamp": sum(LENGTHS[:e]) / RATE,
        }
        for e, length in enumerate(LENGTHS)
    ]
    for name, table in (("data", pa.table(data)), ("meta/episodes", pa.Table.from_pylist(described))):
        path = folder / name / f"{FILE}.parquet"
        path.parent.mkdir(parents=True)
        pq.write_table(table, path)
    film = folder / VIDEO / f"{FILE}.mp4"
    film.parent.mkdir(parents=True)
    writer = imageio_ffmpeg.write_frames(str(film), SIDES[::-1], fps=RATE, macro_block_size=1)
    writer.send(None)
    for row in rows:
        writer.send(picture(*row).tobytes())
    writer.close()
    pictured = {"shape": [*SIDES, 3], "names": ["height", "width", "channels"]}
    vector = {"dtype": "float32", "shape": [2], "names": JOINTS}
    info = {
        "codebase_version": "v3.0",
        "robot_type": "so101_follower",
        "total_episodes": len(LENGTHS),
        "fps": RATE,
        "data_path": "data/chunk-{chunk_index:03d}/file-{file_index:03d}.parquet",
        "video_path": "videos/{video_key}/chunk-{chunk_index:03d}/file-{file_index:03d}.mp4",
        "features": {
            "observation.images.front": {"dtype": "video", **pictured},
            "observation.images.wrist": {"dtype": "image", **pictured},
            "observation.state": vector,
            "action": vector,
            **{k: {"dtype": "int64", "shape": [1], "names": None} for k in ("episode_index", "frame_index")},
        },
    }
    (folder / "meta/info.json").write_text(json.dumps(info))


def change(folder, function):
    path = folder / "meta/info.json"
    info = json.loads(path.read_text())
    function(info)
    path.write_text(json.dumps(info))


def change_episodes(folder, **columns):
    path = folder / f"meta/episodes/{FILE}.parquet"
    rows = pq.read_table(path).to_pylist()
    pq.write_table(pa.Table.from_pylist([row | columns for row in rows]), path)


def change_rows(folder, **columns):
    """Replace columns of numbers [F] or [F, N] of the rows, or add them."""
    path = folder / f"data/{FILE}.parquet"
    table = pq.read_table(path)
    for key, values in columns.items():
        array = np.asarray(values)
        flat = pa.array(array.ravel())
        column = flat if array.ndim == 1 else pa.FixedSizeListArray.from_arrays(flat, array.shape[1])
        names = table.column_names
        table = table.drop_columns([key]) if key in names else table
        table = table.append_column(key, column)
    pq.write_table(table, path)
