"""What the calls of a program have done to the files of a folder, and which files a crash after any of them can leave.

A killed process leaves what its calls have written. A loss of power leaves less: of what no sync has confirmed, each sector may be
there or not, a file may have any length that it had since, and of the names that were changed in a folder since that was synced, only
the first ones need to be there, as file systems with a log keep them.
"""

from __future__ import annotations

import shutil
from pathlib import Path, PurePosixPath

SECTOR = 512


class Files:
    """The files of a folder: names, each of the number of a file or of a folder (None), and the bytes of each number."""

    def __init__(self):
        self.names = {}
        self.bytes = {}

    def apply(self, call):
        """Make the changes of a call."""
        kind, *rest = call
        if kind == "write":
            number, at, data = rest
            content = self.bytes[number]
            content.extend(bytes(max(0, at - len(content))))
            content[at : at + len(data)] = data
        elif kind == "cut":
            number, size = rest
            content = self.bytes[number]
            del content[size:]
            content.extend(bytes(size - len(content)))
        elif kind == "make":
            self.bytes.setdefault(rest[1], bytearray())
            rename(self.names, call)
        elif kind in NAMING:
            rename(self.names, call)

    def put(self, folder):
        """Write the files into a folder, in the place of what is there."""
        folder = Path(folder)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
        for name, number in sorted(self.names.items()):  # a folder comes before what is in it
            path = folder / name
            if not path.parent.is_dir():
                continue  # the name of its folder was lost
            if number is None:
                path.mkdir()
            else:
                path.write_bytes(self.bytes[number])


NAMING = ("make", "folder", "move", "link", "gone")


def rename(names, call):
    """Change names as a call does."""
    kind, path, *rest = call
    if kind == "make":
        names[path] = rest[0]
    elif kind == "folder":
        names[path] = None
    elif kind == "gone":
        names.pop(path, None)
    elif path in names:
        names[rest[0]] = names.pop(path) if kind == "move" else names[path]


def folder_of(name):
    """Return the folder that a name is in; "" for the outermost."""
    return "" if (above := str(PurePosixPath(name).parent)) == "." else above


class Durable:
    """What of the files is sure to survive a loss of power, and what may."""

    def __init__(self):
        self.files = Files()
        self.pending = {}
        """The changes of each file since it was synced."""
        self.renamed = {}
        """The changes of names in each folder since it was synced."""

    def apply(self, call):
        """Take note of a call."""
        kind, *rest = call
        if kind in {"write", "cut"}:
            self.pending.setdefault(rest[0], []).append(call)
        elif kind == "sync":
            for each in self.pending.pop(rest[0], ()):
                self.files.apply(each)
        elif kind == "named":
            for each in self.renamed.pop(rest[0], ()):
                rename(self.files.names, each)
        elif kind in NAMING:
            if kind == "make":
                self.files.bytes.setdefault(rest[1], bytearray())
            self.renamed.setdefault(folder_of(rest[-1] if kind in {"move", "link"} else rest[0]), []).append(call)

    def left(self, chance):
        """Return files that a loss of power can leave, by chance."""
        left = Files()
        left.names = dict(self.files.names)
        for changes in self.renamed.values():
            for each in changes[: chance.choice((0, len(changes), chance.randint(0, len(changes))))]:
                rename(left.names, each)
        for number in {each for each in left.names.values() if each is not None}:
            left.bytes[number] = self._content(number, chance)
        return left

    def _content(self, number, chance):
        content, size = bytearray(self.files.bytes[number]), len(self.files.bytes[number])
        sizes, kept = [size], chance.choice((0, 1, 0.5, 0.9))
        for kind, _, at, *data in self.pending.get(number, ()):
            if kind == "cut":
                size = at
                if chance.random() < kept:
                    del content[at:]
            else:
                size = max(size, at + len(data[0]))
                content.extend(bytes(max(0, size - len(content))))
                start = at
                while start < at + len(data[0]):
                    end = min(at + len(data[0]), (start // SECTOR + 1) * SECTOR)
                    if chance.random() < kept:
                        content[start:end] = data[0][start - at : end - at]
                    start = end
            sizes.append(size)
        size = sizes[-1] if chance.random() < 0.5 else chance.choice(sizes)
        del content[size:]
        content.extend(bytes(size - len(content)))
        return content
