"""``python -m octants cache info|list|clear``: the kernels that are kept on disk."""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Iterator

from octants import options
from octants.cache import configured_store
from octants.cache.store import CacheFile, FileStore

ACTIONS = {
    "info": "where it is, and how large",
    "list": "the kernels in it, those that were used last first",
    "clear": "remove everything in it",
}


def add_options(command: argparse.ArgumentParser) -> None:
    """The command line of ``octants cache``."""
    actions = "; ".join(f"{name}: {text}" for name, text in ACTIONS.items())
    command.add_argument("action", choices=tuple(ACTIONS), help=actions)
    command.add_argument("--folder", help="the folder, unless it is the one of the user")


def main(given: argparse.Namespace) -> None:
    """Do what the command line says."""
    store = chosen_store(given.folder)
    for line in {"info": information, "list": kernels, "clear": clear}[given.action](store):
        print(line)


def chosen_store(folder: str | None = None) -> FileStore:
    """The store that `init` would use, or that of a folder."""
    chosen = options.make_options({"offline_cache_file_path": folder} if folder else {})
    return configured_store.store_of(chosen)


def information(store: FileStore) -> Iterator[str]:
    """The folder of the cache, and its size."""
    files = sum(1 for _ in store.files())
    yield f"folder     {store.folder}"
    yield f"files      {files}"
    yield f"size       {size_text(store.size())}"
    bound = size_text(store.largest) if store.largest else "no bound"
    yield f"bound      {bound}, policy {store.policy}"


def kernels(store: FileStore) -> Iterator[str]:
    """A line for each kernel: when it was used, its bytes on disk, its name and location."""
    groups: dict[tuple[str, str], list[CacheFile]] = defaultdict(list)
    for entry in store.entries():
        if "location" in entry.head:
            groups[entry.head["kernel"], entry.head["location"]].append(entry)
    last_used = sorted(groups.items(), key=lambda group: -max(each.used for each in group[1]))
    for (name, location), entries in last_used:
        used = time.strftime("%Y-%m-%d %H:%M", time.localtime(max(each.used for each in entries)))
        nbytes = size_text(sum(each.nbytes for each in entries))
        variants = sum(each.head.get("part") == "facts" for each in entries)
        yield f"{used}  {nbytes:>9}  {name} ({variants})  {location}"


def clear(store: FileStore) -> Iterator[str]:
    """Remove everything."""
    yield f"removed {store.clear()} files from {store.folder}"


def size_text(nbytes: int) -> str:
    """A number of bytes, short."""
    size, units = float(nbytes), ("B", "KiB", "MiB")
    for unit in units:
        if size < 1024:
            return f"{size:.0f} {unit}"
        size /= 1024
    return f"{size:.1f} GiB"
