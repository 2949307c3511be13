# SPDX-License-Identifier: Apache-2.0
"""Files: content, names, modes, and what is the model's to mend."""

from __future__ import annotations

from typing import Any

from suite.table import AnyOf, Row, Subject, quoted

EVERY_BYTE = bytes(range(256)) * 3

# Description -> name. Each has to be that very file to both files and commands, or be refused.
NAMES = {
    "blanks": " a  b ",
    "quotes": "a'b\"c`d",
    "glob": "[a]*?",
    "URL marks": "a?b#c%20d&e+f;g=h",
    "backslash": "a\\b\\",
    "newline": "a\nb",
    "carriage return": "a\rb",
    "leading dash": "-rf",
    "not ASCII": "é€😀",
    "dots": "...",
    "tilde": "~",
    "variable": "$HOME",
    "variable in braces": "a${HOME}b",
    "command substitution": "$(id)",
    "special parameters": "a$$-$1c$@",
}


def _round_trip(s: Subject) -> Any:
    path = f"{s.folder()}/file"
    s.write(path, EVERY_BYTE)
    return s.read(path) == EVERY_BYTE, s.out(f"wc -c <{path}").strip()


def _name(name: str) -> Any:
    def observe(s: Subject) -> Any:
        folder = s.folder()
        path = f"{folder}/{name}"
        refused = s.kind(lambda: s.write(path, b"mine\n"))
        if refused == "recoverable":
            left = s.out(f"find {folder} -type f | wc -l").strip()
            return "refused" if left == "0" else "refused, and written"
        if refused is not None:
            return refused
        there = s.run(f"cat -- {quoted(path)}")
        if there.exit_code:
            return "elsewhere"
        listed = s.list(folder) == [(name, False)]
        return "exact" if (s.read(path), there.stdout, listed) == (b"mine\n", "mine\n", True) else "partly"

    return observe


def _reads_what_commands_wrote(name: str) -> Any:
    def observe(s: Subject) -> Any:
        path = f"{s.folder()}/{name}"
        s.made(f"echo theirs >{quoted(path)}")
        found = s.kind(lambda: s.read(path))
        return {b"theirs\n": "exact", "recoverable": "refused"}.get(found, found)

    return observe


def _empty_file(s: Subject) -> Any:
    path = f"{s.folder()}/file"
    s.write(path, b"")
    return s.read(path)


def _parents(s: Subject) -> Any:
    folder = s.folder()
    failed = s.kind(lambda: s.write(f"{folder}/new/er/file", b"x"))
    if failed is not None:
        return failed
    return s.out(f"cat {folder}/new/er/file; find {folder} -type d | wc -l").split()


def _parents_keep_their_mode(s: Subject) -> Any:
    folder = s.folder()
    s.made(f"chmod 1777 {folder}")
    s.write(f"{folder}/file", b"x")
    return s.out(f"stat -c %a {folder}").strip()


def _replaces(s: Subject) -> Any:
    path = f"{s.folder()}/file"
    s.write(path, b"a longer content")
    s.write(path, b"short")
    return s.read(path)


def _through_a_link(s: Subject) -> Any:
    folder = s.folder()
    s.made(f"echo old >{folder}/file; ln -s file {folder}/link")
    s.write(f"{folder}/link", b"new")
    return s.read(f"{folder}/link"), s.out(f"cat {folder}/file; test -L {folder}/link && echo ' a link'")


def _relative(s: Subject) -> Any:
    refused = s.kind(lambda: s.write("relative-file", b"here\n"))
    if refused is not None:
        return refused
    return s.out("cat relative-file"), s.read("relative-file")


def _too_large(s: Subject) -> Any:
    path = f"{s.folder()}/file"
    s.made(f"head -c 5000 /dev/zero >{path}")
    return s.kind(lambda: s.read(path, most=4999)), len(s.read(path, most=5000))


def _of_file(call: str, *words: str) -> Any:
    """The kind of ``call`` (``read``, ``write``, ``list``, ``export``) in a folder with one of each."""

    def observe(s: Subject) -> Any:
        folder = s.folder()
        s.made(
            f"cd {folder} && echo x >file && mkdir dir && ln -s dir todir && ln -s loop loop && mkfifo fifo "
            "&& echo x >shut && chmod 0 shut && mkdir closed && echo x >closed/file && chmod 0 closed"
        )
        method, _, name = call.partition(" ")
        path = name if name.startswith("/") else f"{folder}/{name}"
        arguments = (b"x",) if method == "write" else ()
        outcome = s.kind(lambda: getattr(s, method)(path, *arguments), *words)
        s.made(f"chmod 700 {folder}/closed")
        return outcome

    return observe


def _not_the_end(call: str) -> Any:
    """Whether a call that may work or not leaves the sandbox usable."""

    def observe(s: Subject) -> Any:
        return _of_file(call)(s) not in ("terminal", "HTTP 500")

    return observe


def _list(s: Subject) -> Any:
    folder = s.folder()
    s.made(
        f"cd {folder} && touch .hidden file && mkdir dir && ln -s dir todir && ln -s nowhere gone"
        " && mkfifo fifo"
    )
    return s.list(folder)


def _list_link(s: Subject) -> Any:
    folder = s.folder()
    s.made(f"cd {folder} && mkdir dir && touch dir/inside && ln -s dir todir")
    return s.kind(lambda: s.list(f"{folder}/todir"))


def _list_bad_names(s: Subject) -> Any:
    folder = s.folder()
    s.made(f"cd {folder} && touch \"$(printf 'a\\377')\" good")
    names = [name for name, _ in s.list(folder)]
    return len(names), "good" in names


def _list_many(s: Subject) -> Any:
    folder = s.folder()
    s.made(f"cd {folder} && seq -f 'a-file-with-a-rather-long-name-%g' 1 3000 | xargs touch")
    return len(s.list(folder))


_EXACT = AnyOf("exact", "refused")

ROWS = tuple(
    Row("files", name, observe, right)
    for name, observe, right in (
        ("every byte", _round_trip, (True, "768")),
        ("an empty file", _empty_file, b""),
        ("a write makes parents", _parents, ["x3"]),
        ("parents keep their mode", _parents_keep_their_mode, "1777"),
        ("a write replaces", _replaces, b"short"),
        ("a write follows a link", _through_a_link, (b"new", "new a link\n")),
        ("relative paths start where commands do", _relative, ("here\n", b"here\n")),
        ("too large to read", _too_large, ("too large: 5000", 5000)),
        *((f"written name: {what}", _name(name), _EXACT) for what, name in NAMES.items()),
        *((f"read name: {what}", _reads_what_commands_wrote(name), _EXACT) for what, name in NAMES.items()),
        ("read: missing", _of_file("read none", "does not exist"), "recoverable"),
        ("read: a directory", _of_file("read dir"), "recoverable"),
        ("read: a link to a directory", _of_file("read todir"), "recoverable"),
        ("read: a link loop", _of_file("read loop"), "recoverable"),
        ("read: permission denied", _of_file("read shut"), "recoverable"),
        ("read: below a file", _of_file("read file/x"), "recoverable"),
        ("read: procfs is not the end", _not_the_end("read /proc/version"), True),
        ("read: no path", lambda s: s.kind(lambda: s.read("")), "recoverable"),
        ("read: a limit of nothing", lambda s: s.kind(lambda: s.read("/tmp/x", most=0)), "ValueError"),
        ("write: onto a directory", _of_file("write dir"), "recoverable"),
        ("write: below a file", _of_file("write file/x"), "recoverable"),
        ("write: permission denied", _of_file("write closed/x"), "recoverable"),
        ("write: a link loop", _of_file("write loop"), "recoverable"),
        ("write: no path", lambda s: s.kind(lambda: s.write("", b"x")), "recoverable"),
        (
            "list",
            _list,
            [
                (".hidden", False),
                ("dir", True),
                ("fifo", False),
                ("file", False),
                ("gone", False),
                ("todir", True),
            ],
        ),
        ("list: an empty directory", lambda s: s.list(s.folder()), []),
        ("list: a link to a directory", _list_link, [("inside", False)]),
        ("list: names that are not UTF-8", _list_bad_names, (2, True)),
        ("list: many", _list_many, 3000),
        ("list: missing", _of_file("list none", "does not exist"), "recoverable"),
        ("list: a file", _of_file("list file"), "recoverable"),
        ("list: permission denied", _of_file("list closed"), "recoverable"),
        ("list: no path", lambda s: s.kind(lambda: s.list("")), "recoverable"),
    )
)
