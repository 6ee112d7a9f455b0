"""Videos of what a program draws: `VideoManager`."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from octants.diagnostics.exceptions import OctantsRuntimeError
from octants.diagnostics.optional_dependencies import import_optional
from octants.tools.images import imresize, imwrite


class VideoManager:
    """Frames in a folder, and videos of them.

    A GIF needs Pillow (``octants[ui]``); an MP4 also needs the program ffmpeg.

    Args:
        output_dir: A folder for frames and videos; it is made.
        video_filename: The name of the video, without ending; ``video`` if none is given.
        width: Frames get this width, in pixels.
        height: Frames get this height, in pixels.
        post_processor: A function of each frame, whose result is stored.
        framerate: Frames in a second.
        automatic_build: As in other packages; videos are made by `make_video`.

    Example:
        >>> video = qd.tools.VideoManager("out", framerate=30)
        >>> video.write_frame(pixels)
        >>> video.make_video(gif=True, mp4=False)
    """

    def __init__(
        self,
        output_dir: str,
        video_filename: str | None = None,
        width: int | None = None,
        height: int | None = None,
        post_processor: Callable[[Any], Any] | None = None,
        framerate: int = 24,
        automatic_build: bool = True,  # noqa: ARG002
    ) -> None:
        if (width is None) != (height is None):
            raise ValueError("give both width and height, or neither")
        self.directory = Path(output_dir)
        self.frame_directory = self.directory / "frames"
        self.frame_directory.mkdir(parents=True, exist_ok=True)
        self.video_filename = video_filename or "video"
        self.width, self.height = width, height
        self.post_processor = post_processor
        self.framerate = framerate
        self.next_video_frame: list[Path] = []

    def get_frame_directory(self) -> str:
        """The folder of the frames."""
        return str(self.frame_directory)

    def get_output_filename(self, suffix: str) -> str:
        """The name of the video with an ending such as ``.mp4``."""
        return str(self.directory / f"{self.video_filename}{suffix}")

    def write_frame(self, img: Any) -> None:
        """Store the next frame: an image as `imwrite` takes it."""
        if self.post_processor is not None:
            img = self.post_processor(img)
        if self.width is not None:
            img = imresize(img, self.width, self.height)
        path = self.frame_directory / f"{len(self.next_video_frame):06}.png"
        imwrite(img, str(path))
        self.next_video_frame.append(path)

    def write_frames(self, images: Iterable[Any]) -> None:
        """Store several frames."""
        for image in images:
            self.write_frame(image)

    def clean_frames(self) -> None:
        """Delete the frames."""
        for path in self.next_video_frame:
            path.unlink(missing_ok=True)
        self.next_video_frame = []

    def make_video(self, mp4: bool = True, gif: bool = True) -> None:
        """Make videos of the frames.

        Raises:
            OctantsRuntimeError: If there are no frames, or if an MP4 is asked for and ffmpeg is
                not installed, or fails.
        """
        if not self.next_video_frame:
            raise OctantsRuntimeError("there are no frames yet: call write_frame first")
        if gif:
            self._make_gif()
        if mp4:
            self._make_mp4()

    def _make_gif(self) -> None:
        pillow = import_optional("PIL.Image", "ui")
        images = [pillow.open(path) for path in self.next_video_frame]
        name, duration = self.get_output_filename(".gif"), 1000 / self.framerate
        images[0].save(name, save_all=True, append_images=images[1:], duration=duration, loop=0)

    def _make_mp4(self) -> None:
        program = shutil.which("ffmpeg")
        if program is None:
            raise OctantsRuntimeError(
                "ffmpeg, which makes MP4 videos, is not installed: install it, or ask for"
                " make_video(gif=True, mp4=False)"
            )
        frames = str(self.frame_directory / "%06d.png")
        command = [program, "-y", "-framerate", str(self.framerate), "-i", frames]
        command += ["-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p"]
        run = subprocess.run(
            [*command, self.get_output_filename(".mp4")],
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if run.returncode:
            raise OctantsRuntimeError(f"ffmpeg failed: {run.stderr.strip().splitlines()[-1]}")
