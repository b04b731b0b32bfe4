"""Line numbers of the keys of a TOML text, which tomli does not give: a scan over text that tomli has accepted."""

from __future__ import annotations

KeyPath = tuple[str | int, ...]


def key_lines(text: str) -> dict[KeyPath, int]:
    """Map each key path of valid TOML `text` to the 1-based line where it is written.

    Paths hold table names, keys and list indices: ("passes", "order", 0). A table maps to its header's line.
    """
    return _Scanner(text).scan()


class _Scanner:
    def __init__(self, text: str) -> None:
        self.text = text.replace("\r\n", "\n") + "\n"
        self.at = 0
        self.line = 1
        self.lines: dict[KeyPath, int] = {}
        self.array_lengths: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip_blank():
            if self.text.startswith("[[", self.at):
                self._advance(2)
                table = self._next_element(self._resolve(self._dotted_key()))
                self._advance(2)
            elif self.text[self.at] == "[":
                self._advance(1)
                table = self._resolve(self._dotted_key())
                self._record(table)
                self._advance(1)
            else:
                self._key_value(table)
        return self.lines

    def _next_element(self, array: KeyPath) -> KeyPath:
        index = self.array_lengths.get(array, 0)
        self.array_lengths[array] = index + 1
        self._record(array)
        self._record((*array, index))
        return (*array, index)

    def _resolve(self, keys: KeyPath) -> KeyPath:
        """`[a.b]` below `[[a]]` belongs to the last element of `a`."""
        path: KeyPath = ()
        for position, key in enumerate(keys):
            path = (*path, key)
            if path in self.array_lengths and position < len(keys) - 1:
                path = (*path, self.array_lengths[path] - 1)
        return path

    def _record(self, path: KeyPath) -> None:
        for length in range(1, len(path) + 1):
            self.lines.setdefault(path[:length], self.line)

    def _key_value(self, table: KeyPath) -> None:
        path = (*table, *self._dotted_key())
        self._record(path)
        self._advance(1)  # the equals sign
        self._value(path)

    def _dotted_key(self) -> KeyPath:
        keys: list[str] = []
        while True:
            self._skip(" \t")
            if self.text[self.at] in "\"'":
                keys.append(self._string())
            else:
                start = self.at
                while self.text[self.at].isalnum() or self.text[self.at] in "-_":
                    self.at += 1
                keys.append(self.text[start : self.at])
            self._skip(" \t")
            if self.text[self.at] != ".":
                return tuple(keys)
            self.at += 1

    def _value(self, path: KeyPath) -> None:
        self._skip(" \t")
        char = self.text[self.at]
        if char in "\"'":
            self._string()
        elif char == "[":
            self._array(path)
        elif char == "{":
            self._inline_table(path)
        else:
            while self.text[self.at] not in ",]}#\n":
                self.at += 1

    def _array(self, path: KeyPath) -> None:
        self._advance(1)
        index = 0
        while self._skip_blank() and self.text[self.at] != "]":
            if self.text[self.at] == ",":
                self._advance(1)
                continue
            self._record((*path, index))
            self._value((*path, index))
            index += 1
        self._advance(1)

    def _inline_table(self, path: KeyPath) -> None:
        self._advance(1)
        while self._skip_blank() and self.text[self.at] != "}":
            if self.text[self.at] == ",":
                self._advance(1)
                continue
            self._key_value(path)
        self._advance(1)

    def _string(self) -> str:
        quote = self.text[self.at]
        triple = self.text.startswith(quote * 3, self.at)
        ending = quote * 3 if triple else quote
        self._advance(len(ending))
        start = self.at
        while not self.text.startswith(ending, self.at):
            self._advance(2 if quote == '"' and self.text[self.at] == "\\" else 1)
        content = self.text[start : self.at]
        self._advance(len(ending))
        while triple and self.text[self.at] == quote:  # a quote may stand before the closing three
            self._advance(1)
        return content

    def _advance(self, count: int) -> None:
        self.line += self.text.count("\n", self.at, self.at + count)
        self.at += count

    def _skip(self, characters: str) -> None:
        while self.text[self.at] in characters:
            self.at += 1

    def _skip_blank(self) -> bool:
        """Go past white space, line ends and comments; False at the end of the text."""
        while self.at < len(self.text):
            if self.text[self.at] == "#":
                self.at = self.text.index("\n", self.at)
            elif self.text[self.at] in " \t\r\n":
                self._advance(1)
            else:
                return True
        return False
