#!/usr/bin/python3
"""Runs a command so that nothing of it outlives the process that asked for it.

    keep.py PARENT LOG COMMAND...

Prints the command's process ID, with its output appended to LOG. When the parent dies, by
kill -9 too, or this process gets SIGTERM, the command and all that it started are killed,
whatever sessions they made: as a subreaper this process inherits those that were orphaned.
If this process is killed itself, the kernel kills the command.

Ends when the command has ended, and then kills what that left behind.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
libc = ctypes.CDLL(None, use_errno=True)


def children():
    with open(f"/proc/self/task/{os.getpid()}/children", encoding="ascii") as file:
        return [int(pid) for pid in file.read().split()]


def descendants(pid):
    found = []
    try:
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children", encoding="ascii") as file:
                for child in file.read().split():
                    found += [int(child)] + descendants(int(child))
    except OSError:
        pass
    return found


def kill_all():
    while children():
        for pid in descendants(os.getpid()):
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        try:
            os.waitpid(-1, 0)
        except ChildProcessError:
            return


def main():
    parent, log, command = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    signals = {signal.SIGTERM, signal.SIGCHLD}
    signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
        signal.signal(number, signal.SIG_IGN)
    libc.prctl(PR_SET_CHILD_SUBREAPER, 1)
    libc.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:
        return 1

    out = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    child = os.fork()
    if child == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.setsid()
        for number in (signal.SIGINT, signal.SIGHUP, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_UNBLOCK, signals)
        os.dup2(out, 1)
        os.dup2(out, 2)
        try:
            os.execvp(command[0], command)
        except OSError as error:
            os.write(2, f"{command[0]}: {error}\n".encode())
        os._exit(127)
    print(child, flush=True)
    status = None
    while status is None:
        if signal.sigwait(signals) == signal.SIGTERM:
            break
        # One signal may stand for several children, adopted ones among them.
        while status is None:
            pid, result = os.waitpid(-1, os.WNOHANG)
            if pid == child:
                status = result
            if pid == 0:
                break
    kill_all()
    return os.waitstatus_to_exitcode(status) & 255 if status is not None else 137


sys.exit(main())
