"""Commands of an agent that do not behave. They run only in the confinement of `radmoe_agent.session`.

Each one tries something, and prints ESCAPED if that succeeds. Whoever runs them may put a file `secret` into
/tmp/hidden-from-commands-*, listen on the abstract socket `hidden-from-commands` and hold SECRET in the environment.
Files that a command tries to leave on the machine are named hostile-*. As a program, this file runs the commands that
are named, each in a session of its own, and prints how each ended as a line of JSON; `run_as` does so as another user.
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

SECRET = "what no command may read"
TIMEOUT_S = 4
PROCESSES, MEMORY, DISK, SCRATCH = 64, 256 << 20, 32 << 20, 8 << 20
_SLOWEST_S = TIMEOUT_S + 11.0
_NOBODY = 65534
_PYTHON = Path("/usr/bin/python3")  # which anybody may read

_CALL = """
import ctypes, mmap, os, socket, struct, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
libc.syscall.restype = ctypes.c_long
X86 = os.uname().machine == "x86_64"
def call(x86_64, aarch64, *arguments):
    wide = [ctypes.c_long(a) if isinstance(a, int) else a for a in arguments]
    return libc.syscall(ctypes.c_long(x86_64 if X86 else aarch64), *wide)
def escaped(result=0):
    if result >= 0:
        print("ESC" + "APED", result)
"""


def _python(text: str) -> str:
    return f"python3 - <<'END'\n{_CALL}\n{text}\nEND"


def _call(x86_64: int, aarch64: int, arguments: str) -> str:
    return _python(f"escaped(call({x86_64}, {aarch64}, {arguments}))")


def _succeeds(command: str) -> str:
    return f"({command}) > /dev/null 2>&1 && echo ESCAPED"


_OUT = {
    "make /usr writable": _succeeds("mount -o remount,rw,bind /usr && touch /usr/hostile-file"),
    "mount a file system": _succeeds("mount -t tmpfs none /tmp"),
    "mount the root elsewhere": _succeeds("mkdir m; mount --rbind / m"),
    "mount proc anew": _succeeds("mkdir p; mount -t proc proc p"),
    "unmount what hides": _succeeds("umount -l /tmp || umount -l /testbed || umount -l /proc"),
    "change another root": _call(155, 41, "b'/', b'/'"),
    "chroot": _succeeds("chroot / true"),
    "chroot by the system call": _call(161, 51, "b'/'"),
    "a user namespace": _succeeds("unshare -Ur true"),
    "a mount namespace": _succeeds("unshare -m true"),
    "a network namespace": _succeeds("unshare -n true || unshare -Urn true"),
    "a user namespace by clone": _python(
        "pid = call(56 if X86 else 0, 220, 0x10000011, 0, 0, 0, 0)\nif pid == 0: os._exit(0)\nescaped(pid)"
    ),
    "a user namespace by clone3": _python("escaped(call(435, 435, struct.pack('<11Q', 0x10000000, *[0] * 10), 88))"),
    "the namespaces of the first process": _succeeds("nsenter -t 1 -m true || nsenter -t 1 -p true"),
    "a namespace by its file": _python("escaped(call(308, 268, os.open('/proc/self/ns/mnt', 0), 0))"),
    "a new kind of mount": _python(
        "escaped(call(428, 428, -100, b'/usr', 1))\nescaped(call(430, 430, b'tmpfs', 0))\nescaped(call(433, 433, -100, b'/', 0))"
    ),
    "attributes of a mount": _python(
        "escaped(call(442, 442, -100, b'/usr', 0, struct.pack('<4Q', 0, 1, 0, 0), 32))"
    ),
    "a file by its handle": _python(
        "handle = ctypes.create_string_buffer(struct.pack('<II', 128, 0) + bytes(128))\n"
        "escaped(call(303, 264, -100, b'/usr', handle, ctypes.byref(ctypes.c_int()), 0))"
    ),
}  # fmt: skip
_ROOT = {
    "being root": _succeeds("test $(id -u) = 0 || test $(id -g) = 0"),
    "becoming root": _python("try:\n    os.setresuid(0, 0, 0)\n    escaped()\nexcept OSError:\n    pass"),
    "being root by a map": _succeeds("echo 0 0 1 > /proc/self/uid_map"),
    "capabilities": _succeeds("grep ^Cap /proc/self/status | grep -v 0000000000000000"),
    "a setuid program of its own": _succeeds("cp /usr/bin/id i && chmod 6777 i && test $(./i -u) != $(id -u)"),
    "a setuid program of the system": _succeeds("su -c true || sudo -n true || passwd -l root || newgrp root -c true"),
    "a file capability": _succeeds("cp /usr/bin/id i; setcap cap_sys_admin+ep i && ./i"),
    "another owner": _succeeds("touch f; chown 0 f || chown 0:0 f || chgrp 0 f"),
    "a device": _succeeds("mknod d b 8 0 || mknod d c 1 1 || mknod /tmp/d b 254 0"),
    "real time": _succeeds("chrt -f 10 true || nice -n -5 true 2>&1 | grep -v cannot"),
    "the clock": _succeeds("date -s 2000-01-01"),
    "the machine's name": _succeeds("hostname hostile"),
    "a module, a reboot, swap": _python(
        "escaped(call(175, 105, b'', 0, b''))\nescaped(call(169, 142, 0xfee1dead, 672274793, 0, 0))\nescaped(call(167, 224, b'x', 0))"
    ),
    "core_pattern": _succeeds("echo '|/tmp/hostile-core' > /proc/sys/kernel/core_pattern"),
    "modprobe": _succeeds("echo /tmp/x > /proc/sys/kernel/modprobe || echo 1 > /proc/sys/kernel/sysrq"),
    "sysrq": _succeeds("echo h > /proc/sysrq-trigger"),
    "cgroups": _succeeds("ls /sys/fs/cgroup || mkdir c && mount -t cgroup2 none c"),
    "eBPF": _call(321, 280, "0, struct.pack('<18I', 1, 4, 4, 1, *[0] * 14), 72"),
    "performance events": _call(298, 241, "struct.pack('<2I', 1, 112) + bytes(104), 0, -1, -1, 0"),
    "page faults": _call(323, 282, "1"),
    "io_uring": _call(425, 425, "8, bytes(120)"),
    "keys": _call(248, 217, "b'user', b'a', b'b', 1, -3"),
    "calls of another machine type": _python(
        "code = mmap.mmap(-1, 4096, prot=7)\ncode.write(b'\\xb8\\x14\\x00\\x00\\x00\\xcd\\x80\\xc3')\n"
        "entry = ctypes.addressof(ctypes.c_char.from_buffer(code))\n"
        "if X86: escaped(ctypes.CFUNCTYPE(ctypes.c_int)(entry)())"
    ),
    "calls of x32": _python("if X86: escaped(libc.syscall(ctypes.c_long(0x40000000 + 39)))"),
}  # fmt: skip
_READ = {
    "a file of the caller's": _succeeds("cat /tmp/hidden-from-commands-*/secret"),
    "a file of the caller's anywhere": _succeeds("find / -path /usr -prune -o -name secret -path '*hidden-from*' -print | grep ."),
    "users and passwords": _succeeds("cat /etc/passwd || cat /etc/shadow || cat /etc/machine-id"),
    "home directories": _succeeds("ls /root || ls /home || ls /work || ls /srv || ls /run || ls /var"),
    "the environment of the caller": _succeeds("env | grep -i secret || cat /proc/1/environ"),
    "the root of the first process": _succeeds("ls /proc/1/root/ || ls /proc/1/cwd/ || ls /proc/1/fd/"),
    "the memory of the first process": _succeeds("head -c 1 /proc/1/mem || cat /proc/1/maps"),
    "tracing the first process": _call(101, 117, "16, 1, 0, 0"),
    "memory by a system call": _python(
        "buffer = ctypes.create_string_buffer(8)\nspan = struct.pack('<2Q', ctypes.addressof(buffer), 8)\n"
        "escaped(call(310, 270, os.getpid(), span, 1, span, 1, 0))"
    ),
    "a descriptor of the first process": _python("escaped(call(438, 438, call(434, 434, 1, 0), 3, 0))"),
    "descriptors that were left open": _succeeds("ls /proc/self/fd | grep -v '^[0-3]$'"),
    "other processes": _succeeds("test $(ls /proc | grep -c '^[0-9]') -gt 6 || ls /proc/[0-9]*/fd | grep -i socket"),
    "memory, disks and messages of the machine": _succeeds("ls /dev/mem /dev/kmsg /dev/[sv]da* /sys/kernel || dmesg"),
    "the order that was given": _succeeds("echo x >> /proc/self/fd/0 || echo x > /dev/stdin"),
}  # fmt: skip
_WRITE = {
    "the system's directories": _succeeds("touch /hostile-x || touch /usr/hostile-x || touch /etc/hostile-x || touch /dev/hostile-x"),
    "programs of the system": _succeeds("echo x >> /usr/bin/env || rm -f /usr/bin/env || ln -f /usr/bin/env e"),
    "devices of the system": _succeeds("rm /dev/null || chmod 777 /dev/null || touch -d 2000-01-01 /dev/null"),
    "links to the caller's files": _succeeds("ln -s /tmp/hidden-from-commands-* l; echo x > l/hostile-x"),
    "the work tree's own place": _succeeds("mv /testbed /elsewhere || rmdir /testbed || mv /tmp /usr/tmp"),
    "a file above": _succeeds("echo x > ../hostile-x || echo x > ../../../../hostile-x"),
}  # fmt: skip
_REACH = {
    "the machine by TCP": _python(
        "for port in (22, 80, 8000):\n    try:\n        socket.create_connection(('127.0.0.1', port), 1)\n        escaped()\n"
        "    except ConnectionRefusedError: escaped()\n    except OSError: pass"
    ),
    "the world by UDP": _python(
        "try:\n    socket.socket(2, 2).sendto(b'x', ('8.8.8.8', 53))\n    escaped()\nexcept OSError: pass"
    ),
    "an abstract socket": _python(
        "try:\n    socket.socket(socket.AF_UNIX).connect('\\0hidden-from-commands')\n    escaped()\nexcept OSError: pass"
    ),
    "a socket of the host": _python("try:\n    socket.socket(40, 1)\n    escaped()\nexcept OSError: pass"),
    "raw packets": _python(
        "for kind in ((17, 3), (2, 3), (38, 5)):\n    try:\n        socket.socket(*kind)\n        escaped()\n    except OSError: pass"
    ),
    "an interface": _succeeds("ip link set lo up || ifconfig lo up || ip link add x type dummy"),
    "ending the first process": "kill -9 1; kill -9 -1; kill -TERM 1; echo on",
    "interrupting the first process": "for n in $(seq 64); do kill -$n 1; done; echo on",
    "a terminal": _succeeds("python3 -c \"import fcntl; fcntl.ioctl(open('/dev/tty'), 0x5412, b'x')\""),
}  # fmt: skip
_TAKE = {
    "600 processes": f"for i in $(seq 600); do sleep 9 & done 2>/dev/null; test $(ls -d /proc/[0-9]* | wc -l) -gt {PROCESSES + 9} && echo ESCAPED",
    "processes by a system call": _python(
        f"n = 0\nwhile n < 600:\n    try: pid = os.fork()\n    except OSError: break\n    if pid == 0: time.sleep(9)\n    n += 1\n"
        f"if n > {PROCESSES}: escaped()"
    ),
    "600 threads": _python(
        f"n = 0\nthreading.stack_size(65536)\ntry:\n    for n in range(600): threading.Thread(target=time.sleep, args=(3,), daemon=True).start()\n"
        f"except RuntimeError: pass\nif n > {PROCESSES}: escaped()\nsys.stdout.flush()\nos._exit(0)"
    ),
    "a fork bomb": "f() { f | f & }; f 2>/dev/null; sleep 2",
    "memory of one process": _succeeds(f"python3 -c 'bytearray({MEMORY})'"),
    "the disk by one file": _succeeds(f"head -c {DISK + 4096} /dev/zero > f"),
    "the disk by a hole": _succeeds("truncate -s 10G f || fallocate -l 1G f"),
    "the disk by many files": _succeeds("for i in $(seq 40); do head -c 1M /dev/zero > f$i || exit 1; done"),
    "the disk by empty files": _succeeds("seq 20000 | xargs -n 500 touch"),
    "the disk by directories": _succeeds("seq 20000 | xargs -n 500 mkdir"),
    "/tmp": _succeeds(f"head -c {SCRATCH + 4096} /dev/zero > /tmp/f"),
    "/dev/shm": _succeeds(f"head -c {SCRATCH + 4096} /dev/zero > /dev/shm/f"),
    "/dev/shm by many files": _succeeds("cd /dev/shm && seq 5000 | xargs -n 500 touch"),
    "files without a name": _call(319, 279, "b'x', 0"),
    "secret memory": _call(447, 447, "0"),
    "shared memory of System V": _call(29, 194, "0, 1 << 30, 0o1600"),
    "queues and semaphores of System V": _python("escaped(call(68, 186, 0, 0o1600))\nescaped(call(64, 190, 0, 32000, 0o1600))"),
    "requests to the kernel": _python("escaped(call(206, 0, 60000, ctypes.byref(ctypes.c_ulong())))"),
    "open files": _succeeds("python3 -c 'f = [open(\"/dev/null\") for _ in range(5000)]'"),
    "limits of the first process": _python(
        "import resource\ntry:\n    resource.prlimit(1, resource.RLIMIT_NOFILE, (0, 0))\n    escaped()\nexcept OSError: pass"
    ),
    "locked memory": _succeeds("ulimit -l unlimited"),
    "higher limits": _succeeds("ulimit -u 1000 || ulimit -v unlimited || ulimit -f unlimited || ulimit -c unlimited"),
    "a core file": _succeeds("bash -c 'kill -SEGV $$'; ls core* || ls /testbed/core*"),
}  # fmt: skip
ENDLESS = {
    "a sleep": "sleep 60",
    "a sleep without outputs": "exec >&- 2>&-; sleep 60",
    "a loop that ignores signals": "trap '' TERM INT HUP; while :; do :; done",
    "output": "yes",
    "daemons": "(setsid setsid bash -c 'trap \"\" TERM; while :; do sleep 1; done' &) ; sleep 60",
}
LEFT = {
    "a tree 3,000 deep": _python("for _ in range(3000): os.mkdir('d'); os.chdir('d')\nprint('on')"),
    "a deep tree in /tmp": _python("os.chdir('/tmp')\nfor _ in range(1000): os.mkdir('d'); os.chdir('d')\nprint('on')"),
    "a tree that cannot be entered": "mkdir -p a/b /tmp/a/b; touch a/b/c /tmp/a/b/c; chmod 000 a/b a /tmp/a/b /tmp/a . ; echo on",
    "names of all kinds": _python(
        "for i in range(1, 256):\n    if i != 47 and i != 46:\n        open(bytes([i]), 'w')\n        os.mkdir(b'/tmp/' + bytes([i]))\nprint('on')"
    ),
    "pipes, sockets and links": _python(
        "os.mkfifo('p')\nos.symlink('/', 'l')\nos.symlink('self', 'self')\nsocket.socket(socket.AF_UNIX).bind('s')\nos.symlink('/', '/tmp/l')\nprint('on')"
    ),
    "processes in other sessions": "(setsid sleep 300 &); setsid nohup sleep 300 > /dev/null 2>&1 & disown; echo on",
}  # fmt: skip
HOSTILE = {
    f"{title}: {name}": script
    for title, group in (
        ("out", _OUT), ("root", _ROOT), ("read", _READ), ("write", _WRITE), ("reach", _REACH), ("take", _TAKE),
        ("endless", ENDLESS), ("left", LEFT),
    )
    for name, script in group.items()
}  # fmt: skip


def attack(name: str) -> tuple[str, float]:
    """Run a command in a session of its own. Returns what became of it, and how long that took."""
    from radmoe_agent.session import Session

    started = time.monotonic()
    with Session(
        files={"a.py": "x = 1\n"}, timeout=TIMEOUT_S, memory=MEMORY, processes=PROCESSES, disk=DISK, scratch=SCRATCH
    ) as session:
        done = session.run(["bash", "-c", HOSTILE[name]])
        after = session.run(["bash", "-c", "ls -A /tmp /dev/shm | wc -w; ls -d /proc/[0-9]* | wc -l; echo on"], cwd="/")
    seconds = time.monotonic() - started
    text = done.output[-300:].decode(errors="replace")
    line = "held"
    if "ESCAPED" in text:
        line = f"ESCAPED {text.strip()}"
    elif "Error" in text and ("SyntaxError" in text or "NameError" in text or "TypeError" in text):
        line = f"TRACEBACK the command itself is broken: {text}"
    elif name.startswith("endless") and not done.stopped:
        line = f"ESCAPED it ended by itself with {done.code}: {text}"
    elif name.startswith("left") and "on" not in text:
        line = f"TRACEBACK it left nothing: {text}"
    elif after.output.split()[0] != b"2" or after.output.split()[-1] != b"on":
        line = f"ESCAPED the next command finds {after.output.decode(errors='replace')[:200]}"
    elif seconds > _SLOWEST_S:
        line = f"HANG {seconds:.0f} s"
    return line, seconds


def main(names: list[str]) -> None:
    from leftovers import leftovers

    os.environ["SECRET"] = SECRET
    listener = socket.socket(socket.AF_UNIX)
    listener.bind("\0hidden-from-commands")
    listener.listen()
    with tempfile.TemporaryDirectory(prefix="hidden-from-commands-", dir="/tmp") as hidden:
        Path(hidden).chmod(0o777)
        Path(hidden, "secret").write_text(SECRET)
        for name in names:
            before = leftovers()
            try:
                line, seconds = attack(name)
            except Exception as error:
                line, seconds = f"TRACEBACK {type(error).__name__}: {error}", 0.0
            if changed := leftovers() ^ before:
                line = f"ESCAPED it left {sorted(changed)[:3]}"
            if (names_there := [path.name for path in Path(hidden).iterdir()]) != ["secret"]:
                line = f"ESCAPED it wrote {names_there}"
            peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss << 10
            print(json.dumps([name, line, seconds, peak]), flush=True)


def users() -> list[str]:
    """As whom commands can be started here: as root, and as somebody else."""
    if os.getuid():
        return ["user"]
    return ["root", "user"] if shutil.which("setpriv") and _PYTHON.exists() else ["root"]


def run_as(user: str, names: Iterable[str]) -> Iterator[tuple[str, str, float, int]]:
    """Run commands from a process of root or of an ordinary user: name, outcome, seconds, and bytes of the largest process."""
    from readable import readable_copy

    own = Path(__file__)
    with readable_copy(own, own.with_name("leftovers.py")) as here:
        words = [sys.executable, f"{here}/hostile_commands.py", *names]
        if user == "user" and os.getuid() == 0:
            become = ["setpriv", f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]
            words = [*become, str(_PYTHON), *words[1:]]
        environment = {"PYTHONPATH": here, "PYTHONDONTWRITEBYTECODE": "1"}
        process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True, cwd="/", env=environment)
        assert process.stdout
        with process:
            for line in process.stdout:
                yield tuple(json.loads(line))


if __name__ == "__main__":
    main(sys.argv[1:])
