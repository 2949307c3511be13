# SPDX-License-Identifier: Apache-2.0
"""Sandboxes on this machine: bubblewrap, no account, no daemon.

Each sandbox has its own user, process, mount, network, IPC and host-name namespaces, a read-only system tree,
an empty environment, no capabilities and a system call filter, and ends with the process that made it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any, BinaryIO, ClassVar, NoReturn, TypeVar

from sandbox_native import _sandbox_native as native
from sandbox_native import calls, spec_check
from sandbox_native.backends import _local_cgroup as cgroup
from sandbox_native.backends import _local_environment as environment
from sandbox_native.backends import _local_files as files
from sandbox_native.backends import _local_host as host
from sandbox_native.backends._local_layout import WORKSPACE, Layout, check_read_only_path
from sandbox_native.contract import (
    SandboxBackend,
    SandboxError,
    SandboxExecResult,
    SandboxFileTooLargeError,
    SandboxSpec,
    SandboxTerminalError,
)
from sandbox_native.names import new_sandbox_name
from sandbox_native.validate import positive_finite

T = TypeVar("T")

_START_TIMEOUT = 30.0
# When a call's other side vanished: the sandbox's own end shows a moment later at most, if it is that.
_GONE_MS = 200
# Seconds; many times that of any kernel. A file that changed so shortly ago may change again unseen.
_CLOCK_TICK = 2.0
# Names of one directory; more is for `find` and `ls` in a command.
_LISTING_BYTES = 16 * 1024 * 1024


class _Standing:
    """One sandbox that was made and not destroyed."""

    def __init__(self, box: native.Box, env: bytes, groups: cgroup.Groups) -> None:
        self.box = box
        self.env = env
        self.groups = groups

    def end(self) -> bool:
        gone = self.box.end()
        self.groups.remove()
        return gone


class LocalSandboxBackend(SandboxBackend):
    """Runs commands in bubblewrap sandboxes on the worker's own machine.

    The constructor only checks its arguments. A copy or an unpickled backend has the same options and no
    sandboxes; so has a forked child, while the parent's stay the parent's.

    :param read_only_paths: absolute paths shown read-only at the same place inside, such as a Python
        environment and the interpreter it was made from.
    :param memory_mb: memory in MiB. Where a memory control group can be made: of the whole sandbox, on top of
        what its file systems may hold (they are memory, too). Else: address space of each process, which
        breaks programs that reserve more than they use (Java, Node.js, sanitizers): they need a larger value.
        Then nothing limits the sum: ``max_processes`` may take this much each, and files in memory come on
        top; System V shared memory, queues and semaphores, which belong to no process, are refused.
    :param max_processes: processes and threads of a sandbox, 1 to 500 (more cannot be killed reliably).
    :param max_file_bytes: largest file a process may write; ``None``: as large as fits, and where no memory
        control group can be made, a sparse file or one in no file system (``memfd_create``) at most as large
        as the largest of them.
    :param cpu_seconds: CPU time of each process in seconds; ``None``: no limit but the command's timeout.
    :param max_open_files: descriptors of each process.
    :param workspace_bytes: size of /workspace, the working and home directory.
    :param tmp_bytes: size of /tmp.
    :param shm_bytes: size of /dev/shm.
    :raises ValueError: a value is not of its range; the text names the parameter.
    """

    name: ClassVar[str] = "local"
    concurrent_exports: ClassVar[int] = 4

    def __init__(
        self,
        *,
        read_only_paths: Sequence[str] = (),
        memory_mb: int = 2048,
        max_processes: int = 256,
        max_file_bytes: int | None = None,
        cpu_seconds: int | None = None,
        max_open_files: int = 4096,
        workspace_bytes: int = 1 << 30,
        tmp_bytes: int = 256 << 20,
        shm_bytes: int = 64 << 20,
    ) -> None:
        if isinstance(read_only_paths, str | bytes) or not isinstance(read_only_paths, Iterable):
            raise ValueError(f"read_only_paths must be a sequence of paths, got {read_only_paths!r}.")
        self.read_only_paths = tuple(check_read_only_path(path) for path in read_only_paths)
        self.memory_mb = _whole(memory_mb, "memory_mb", 16)
        self.max_processes = _whole(max_processes, "max_processes", 1, 500)
        self.max_file_bytes = None if max_file_bytes is None else _whole(max_file_bytes, "max_file_bytes", 1)
        self.cpu_seconds = None if cpu_seconds is None else _whole(cpu_seconds, "cpu_seconds", 1)
        self.max_open_files = _whole(max_open_files, "max_open_files", 16)
        self.workspace_bytes = _whole(workspace_bytes, "workspace_bytes", 4096)
        self.tmp_bytes = _whole(tmp_bytes, "tmp_bytes", 4096)
        self.shm_bytes = _whole(shm_bytes, "shm_bytes", 4096)
        self._start_without_sandboxes()

    # -- what is not copied -----------------------------------------------------------------

    def _start_without_sandboxes(self) -> None:
        self._pid = os.getpid()
        self._standing: dict[str, _Standing] = {}

    def __getstate__(self) -> dict[str, Any]:
        return {k: v for k, v in self.__dict__.items() if k not in ("_pid", "_standing")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._start_without_sandboxes()

    def _table(self) -> dict[str, _Standing]:
        # The sandboxes of a forked child's parent are the parent's.
        if self._pid != os.getpid():
            self._start_without_sandboxes()
        return self._standing

    def _find(self, sandbox: str) -> _Standing:
        standing = self._table().get(sandbox)
        if standing is None:
            raise SandboxTerminalError(
                f"There is no local sandbox {sandbox!r} in this process: it was destroyed, or it ended, or "
                "another process made it."
            )
        return standing

    # -- what the machine enforces ------------------------------------------------------------

    def enforcement(self) -> dict[str, str]:
        """How each limit is enforced on this machine: limit -> ``"control group"``, ``"each process"``,
        ``"user namespace"`` or ``"file system"``. With ``memory_mb`` by ``"each process"`` nothing limits
        what a sandbox takes in all.
        """
        places = cgroup.places()
        group, process = "control group", "each process"
        return {
            "memory_mb": group if any(place.memory for place in places) else process,
            "max_processes": group if any(place.pids for place in places) else "user namespace",
            "max_file_bytes": process,
            "cpu_seconds": process,
            "max_open_files": process,
            "workspace_bytes": "file system",
            "tmp_bytes": "file system",
            "shm_bytes": "file system",
        }

    # -- life -------------------------------------------------------------------------------

    def create(self, *, spec: SandboxSpec | None = None) -> str:
        """Start a sandbox and return its handle.

        :param spec: ``None`` is the default spec: no network.
        :raises SandboxTerminalError: the machine cannot do it (the text names the knob), or the spec asks for
            what cannot be enforced here: an egress list or an owner.
        """
        spec_check.refuse(spec, any_bytes=True)
        spec = SandboxSpec() if spec is None else spec
        self._refuse(spec)
        env = environment.block(spec.env or {})
        handle = new_sandbox_name()
        # The file systems count as memory. If they shared the processes' part, a full one would have every
        # command killed instead of told that there is no space.
        files = self.workspace_bytes + self.tmp_bytes + self.shm_bytes
        memory = (self.memory_mb << 20) + files
        groups = cgroup.make(handle, memory_bytes=memory, processes=self.max_processes)
        try:
            box = self._start(groups, share_network=not spec.block_network)
        except BaseException:
            groups.remove()
            raise
        self._table()[handle] = _Standing(box, env, groups)
        return handle

    def _refuse(self, spec: SandboxSpec) -> None:
        for field, asked in (
            ("allow_egress_to", spec.allow_egress_to),
            ("allow_egress_to_cidrs", spec.allow_egress_to_cidrs),
        ):
            if asked:
                raise SandboxTerminalError(
                    f"The local backend cannot enforce SandboxSpec.{field}: a sandbox has no network "
                    "(block_network=True) or the worker's own (block_network=False)."
                )
        if spec.owner is not None:
            raise SandboxTerminalError(
                "The local backend cannot record SandboxSpec.owner: a local sandbox ends with the worker "
                "process, so no other task could attach to it."
            )

    def _start(self, groups: cgroup.Groups, *, share_network: bool) -> native.Box:
        bwrap = host.find_bwrap()
        two_uids = os.geteuid() == 0
        base = host.choose_base() if two_uids else None
        self._check_read_only_paths(two_uids)
        layout = Layout(
            bwrap=bwrap,
            two_uids=two_uids,
            share_network=share_network,
            read_only_paths=self.read_only_paths,
            workspace_bytes=self.workspace_bytes,
            tmp_bytes=self.tmp_bytes,
            shm_bytes=self.shm_bytes,
        )
        files = layout.files()
        staged = layout.staged()
        arguments = [str(base) if base is not None else "-", str(native.BOX_FD_DATA + len(files))]
        arguments += [str(len(groups.directories)), str(len(staged)), *staged, *layout.arguments()]
        descriptors = [host.open_program()]
        try:
            descriptors += groups.open_procs()
            return native.start_box(
                descriptors[0],
                tuple(os.fsencode(argument) for argument in arguments),
                tuple(files.values()),
                tuple(descriptors[1:]),
                two_uids=two_uids,
                command_uid=base + 1000 if base is not None else -1,
                # A limit on address space breaks programs that reserve much and use little.
                memory_bytes=0 if groups.has_memory else self.memory_mb << 20,
                file_bytes=self._file_limit(groups),
                cpu_seconds=self.cpu_seconds or 0,
                # Where everything inside has one uid, the guest program's own processes count, too.
                processes=self.max_processes if two_uids else self.max_processes + 16,
                open_files=self.max_open_files,
                # Its objects belong to no process, so only a control group limits them.
                refuse_sysv_ipc=not groups.has_memory,
                timeout=_START_TIMEOUT,
                cancel_fd=calls.cancel_fd(),
            )
        except ConnectionError as e:
            raise SandboxTerminalError(f"Could not start a local sandbox: {host.explain(str(e))}") from e
        except TimeoutError as e:
            raise SandboxTerminalError(f"A local sandbox did not start within {_START_TIMEOUT:g} s.") from e
        except InterruptedError as e:
            raise calls.CallCancelled("cancelled while a sandbox was starting") from e
        except OSError as e:
            old = " (the kernel has to be Linux 5.9 or newer)" if e.errno == errno.ENOSYS else ""
            raise SandboxTerminalError(f"Could not start a local sandbox: {e.strerror or e}{old}") from e
        except ValueError as e:
            raise SandboxTerminalError(f"Could not start a local sandbox: {e}") from e
        finally:
            for descriptor in descriptors:
                os.close(descriptor)

    def _file_limit(self, groups: cgroup.Groups) -> int:
        """Bytes a file may have; 0: as many as fit."""
        if self.max_file_bytes is not None:
            return self.max_file_bytes
        if groups.has_memory:
            return 0
        # A file without a name (memfd_create) is in no file system and in no process' address space. The page
        # more lets the one that fills the largest file system be told so, instead of being killed by SIGXFSZ.
        return max(self.workspace_bytes, self.tmp_bytes, self.shm_bytes) + 4096

    def _check_read_only_paths(self, two_uids: bool) -> None:
        for path in self.read_only_paths:
            if not os.path.exists(path):
                raise SandboxTerminalError(f"read_only_paths: {path!r} does not exist or cannot be reached.")
            if not two_uids and not os.access(path, os.R_OK | (os.X_OK if os.path.isdir(path) else 0)):
                raise SandboxTerminalError(f"read_only_paths: this user cannot read {path!r}.")

    def destroy(self, sandbox: str) -> None:
        """End a sandbox and everything in it. An unknown or ended one is fine.

        :raises SandboxTerminalError: it could not be confirmed that the sandbox is gone.
        """
        standing = self._table().pop(sandbox, None)
        if standing is not None and not standing.end():
            raise SandboxTerminalError(f"Local sandbox {sandbox!r} was told to end but is still there.")

    # -- commands ---------------------------------------------------------------------------

    def run_command(
        self, sandbox: str, command: str, *, timeout: float, max_output_bytes: int
    ) -> SandboxExecResult:
        """Run a shell command in the workspace and wait for it; its background children live on.

        :param command: for ``bash -c``, or ``sh -c`` where there is no bash.
        :param timeout: seconds; then the command's whole tree is killed.
        :param max_output_bytes: how much of the end of each stream is kept.
        :raises ValueError: ``timeout`` or ``max_output_bytes`` is not positive.
        :raises SandboxError: the command cannot be started as given.
        :raises SandboxTerminalError: there is no such sandbox.
        """
        _whole(max_output_bytes, "max_output_bytes", 1)
        return self._run(sandbox, command, timeout, max_output_bytes, -1, -1)

    def stream_command(
        self, sandbox: str, command: str, *, timeout: float, stdout: int, stderr: int
    ) -> SandboxExecResult:
        """Like :meth:`run_command`, but what is printed is written to two descriptors as it comes.

        A reader that is slow holds the command up, not the timeout or a cancel.

        :param timeout: seconds; then the command's whole tree is killed.
        :param stdout: descriptor for the command's standard output; may be a blocking one.
        :param stderr: descriptor for its standard error.
        :return: a result whose own ``stdout`` and ``stderr`` are empty.
        :raises BrokenPipeError: a reader has gone; the command's whole tree is killed.
        :raises SandboxError: as :meth:`run_command`.
        """
        result = self._run(sandbox, command, timeout, 1, stdout, stderr)
        return replace(result, stdout="", stderr="", stdout_truncated=False, stderr_truncated=False)

    def _run(
        self, sandbox: str, command: str, timeout: float, max_output_bytes: int, stdout: int, stderr: int
    ) -> SandboxExecResult:
        positive_finite(timeout, "timeout")
        standing = self._find(sandbox)
        try:
            outcome = standing.box.run(
                files.encoded(command, "The command"),
                standing.env,
                WORKSPACE.encode(),
                timeout=timeout,
                max_output_bytes=max_output_bytes,
                cancel_fd=calls.cancel_fd(),
                stdout_fd=stdout,
                stderr_fd=stderr,
            )
        except OverflowError as e:
            raise SandboxError(f"The command is too long: {len(command)} characters.") from e
        except TimeoutError:
            # Not even handed over in time, so nothing was started.
            return SandboxExecResult(-1, "", "", timed_out=True)
        except BrokenPipeError:
            raise
        except InterruptedError as e:
            raise calls.CallCancelled("the command was cancelled") from e
        except ConnectionError as e:
            self._ended(sandbox, e)
        except OSError as e:
            raise SandboxTerminalError(f"Could not run a command in {sandbox!r}: {e.strerror or e}") from e
        return self._result(sandbox, standing, outcome)

    def _result(self, sandbox: str, standing: _Standing, outcome: native.CommandOutcome) -> SandboxExecResult:
        terminated = not outcome.killed
        exit_code = outcome.value
        if outcome.ending == "failed":
            raise SandboxError(f"The command could not be started: {os.strerror(outcome.value)}.")
        if outcome.ending == "lost":
            # Either everything is gone, or the command killed what supervised it, and itself with it.
            terminated = standing.box.is_gone(_GONE_MS)
            exit_code = -1 if terminated else 128 + 9
        if terminated:
            with contextlib.suppress(SandboxTerminalError):
                self.destroy(sandbox)
        if outcome.ending == "cancel":
            raise calls.CallCancelled("the command was cancelled")
        return SandboxExecResult(
            exit_code=-1 if outcome.ending == "timeout" else exit_code,
            stdout=outcome.stdout.decode("utf-8", "replace"),
            stderr=outcome.stderr.decode("utf-8", "replace"),
            timed_out=outcome.ending == "timeout",
            stdout_truncated=outcome.stdout_dropped > 0,
            stderr_truncated=outcome.stderr_dropped > 0,
            sandbox_terminated=terminated,
        )

    def _ended(self, sandbox: str, cause: BaseException) -> NoReturn:
        with contextlib.suppress(SandboxTerminalError):
            self.destroy(sandbox)
        raise SandboxTerminalError(f"Local sandbox {sandbox!r} has ended.") from cause

    # -- files ------------------------------------------------------------------------------

    def read_file(self, sandbox: str, path: str, *, max_bytes: int) -> bytes:
        """Read a regular file.

        :param path: absolute, or relative to the workspace.
        :param max_bytes: refuse a larger file.
        :raises SandboxFileTooLargeError: it is larger.
        :raises SandboxError: it cannot be read; the text says why.
        :raises SandboxTerminalError: there is no such sandbox.
        """
        _whole(max_bytes, "max_bytes", 1)
        with self._opened(sandbox, path, "read") as (fd, size):
            if size > max_bytes:
                raise SandboxFileTooLargeError(path, size, max_bytes)
            data = native.read_up_to(fd, max_bytes + 1)
            if len(data) > max_bytes:  # it grew after the first look
                raise SandboxFileTooLargeError(path, len(data), max_bytes)
            return data

    def file_stamp(self, sandbox: str, path: str) -> object | None:
        """What changes with the content of a file; None for one that changed in the last two seconds.

        :param path: absolute, or relative to the workspace.
        :raises SandboxError: it cannot be opened; the text says why.
        :raises SandboxTerminalError: there is no such sandbox.
        """
        with self._opened(sandbox, path, "read") as (fd, size):
            info = os.fstat(fd)
            if time.time() - info.st_ctime < _CLOCK_TICK:
                return None
            return info.st_dev, info.st_ino, size, info.st_mtime_ns, info.st_ctime_ns

    def write_file(self, sandbox: str, path: str, content: bytes) -> None:
        """Make ``content`` the content of a file, made with its parents where it is missing.

        An existing file keeps its mode, existing directories theirs.

        :param path: absolute, or relative to the workspace.
        :param content: all of the file, at most ``max_file_bytes``.
        :raises SandboxError: it cannot be written; the text says why.
        :raises SandboxTerminalError: there is no such sandbox.
        """
        if self.max_file_bytes is not None and len(content) > self.max_file_bytes:
            raise SandboxError(
                f"{path!r} would be {len(content)} bytes, over the limit of {self.max_file_bytes}."
            )
        with self._opened(sandbox, path, "write") as (fd, _):
            native.replace_content(fd, content)

    def import_file(self, sandbox: str, path: str, source: BinaryIO, *, size: int) -> None:
        """Make ``size`` bytes of ``source`` the content of a file; from its descriptor where it has one.

        It may take 120 seconds, or as long as it takes at 1 MiB a second.

        :param path: absolute, or relative to the workspace.
        :param source: a binary file open for reading.
        :param size: bytes the file is to have, at most ``max_file_bytes``.
        :raises EOFError: ``source`` has fewer bytes; its own exceptions come out as they are.
        :raises SandboxError: the file cannot be written, or it took longer than allowed.
        :raises SandboxTerminalError: there is no such sandbox.
        """
        if self.max_file_bytes is not None and size > self.max_file_bytes:
            raise SandboxError(f"{path!r} would be {size} bytes, over the limit of {self.max_file_bytes}.")
        with self._opened(sandbox, path, "write") as (fd, _):
            files.copy_in(fd, path, source, size)

    def list_directory(self, sandbox: str, path: str) -> list[tuple[str, bool]]:
        """The names in a directory and whether each is one; a link to a directory counts as one.

        :param path: absolute, or relative to the workspace. With more than 16 MiB of names it is not listed.
        :raises SandboxError: it cannot be listed; the text says why.
        :raises SandboxTerminalError: there is no such sandbox.
        """
        fd = self._ask(sandbox, path, "list", lambda box: box.open_list)
        try:
            return native.read_listing(fd, _LISTING_BYTES, timeout=files.TIMEOUT, cancel_fd=calls.cancel_fd())
        except OverflowError as e:
            raise SandboxError(
                f"{path!r} has too many entries to list; use a command such as `ls | head`."
            ) from e
        except InterruptedError as e:
            raise calls.CallCancelled("the listing was cancelled") from e
        except (ConnectionError, TimeoutError) as e:
            raise SandboxError(f"Could not list {path!r}: the listing was cut short.") from e
        finally:
            os.close(fd)

    def export_file(self, sandbox: str, path: str, dest: BinaryIO, *, max_bytes: int) -> int:
        """Copy a regular file to ``dest`` and return its size; straight to its descriptor where it has one.

        It may take 120 seconds, or as long as ``max_bytes`` take at 1 MiB a second.

        :param path: absolute, or relative to the workspace.
        :param dest: a binary file open for writing. Its errors come out as they are.
        :param max_bytes: refuse a larger file.
        :raises SandboxFileTooLargeError: it is larger; then nothing was written.
        :raises SandboxError: it cannot be read, it changed meanwhile, or it took longer than allowed.
        :raises SandboxTerminalError: there is no such sandbox.
        """
        _whole(max_bytes, "max_bytes", 1)
        with self._opened(sandbox, path, "export") as (fd, _):
            copied: int = files.copy_out(fd, path, dest, max_bytes)
        return copied

    @contextlib.contextmanager
    def _opened(self, sandbox: str, path: str, verb: str) -> Iterator[tuple[int, int]]:
        method: Callable[[native.Box], Callable[..., tuple[int, int]]] = (
            (lambda box: box.open_write) if verb == "write" else (lambda box: box.open_read)
        )
        fd, size = self._ask(sandbox, path, verb, method)
        try:
            yield fd, size
        except files.OtherSideError as e:
            raise e.error from None
        except (ConnectionError, TimeoutError, InterruptedError):
            raise
        except OSError as e:
            raise files.error(verb, path, e) from e
        finally:
            os.close(fd)

    def _ask(self, sandbox: str, path: str, verb: str, method: Callable[[native.Box], Callable[..., T]]) -> T:
        standing = self._find(sandbox)
        if not path:
            raise SandboxError(f"Could not {verb} '': the path is empty.")
        encoded = files.encoded(path, "The path")
        try:
            return method(standing.box)(
                encoded, WORKSPACE.encode(), timeout=files.TIMEOUT, cancel_fd=calls.cancel_fd()
            )
        except InterruptedError as e:
            raise calls.CallCancelled(f"cancelled while opening {path!r}") from e
        except ConnectionError as e:
            if standing.box.is_gone(_GONE_MS):
                self._ended(sandbox, e)
            raise SandboxError(f"Could not {verb} {path!r}: the process that opens it was killed.") from e
        except TimeoutError as e:
            raise SandboxError(f"Could not {verb} {path!r}: the sandbox did not answer in time.") from e
        except OverflowError as e:
            raise SandboxError(f"Could not {verb} {path!r}: the path is too long.") from e
        except OSError as e:
            raise files.error(verb, path, e) from e


def diagnose() -> list[tuple[str, bool, str, str]]:
    """What of the local backend works on this machine: (check, works, detail, what to do).

    Starts a sandbox and runs a command in it.
    """
    from sandbox_native.backends import _local_diagnose

    checks: list[tuple[str, bool, str, str]] = _local_diagnose.diagnose(LocalSandboxBackend())
    return checks


def _whole(value: int, name: str, low: int, high: int = 1 << 62) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        bounds = f"from {low} to {high}" if high < 1 << 62 else f"of at least {low}"
        raise ValueError(f"{name} must be a whole number {bounds}, got {value!r}.")
    return value
