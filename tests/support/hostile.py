"""Programs that do not behave. They run only in the sandbox, behind a filter that each child has proved.

Each one tries something, and fails if the sandbox keeps it from that. Where the attempt succeeds, a program goes on as
if nothing had happened, and the right answer that is put behind it would pass. Whoever runs them may put a file named
tests.jsonl with SECRET in it into /tmp/hidden-tests-*, name it on a command line, and hold SECRET in an environment
and in memory: programs look for it there. Files that a program tries to leave are named hostile-*.
"""

SECRET = "the expected output is 6"

# Tries each function that it is given until one returns something true.
_TRY = """
def attempt(*ways):
    for way in ways:
        try:
            if way():
                return
        except Exception:
            pass
    raise PermissionError("nothing worked")
"""
_LIBC = """
import ctypes, os
libc = ctypes.CDLL(None, use_errno=True)
def system_call(x86_64, aarch64, *arguments):
    number = x86_64 if os.uname().machine == "x86_64" else aarch64
    return libc.syscall(ctypes.c_long(number), *arguments) >= 0
"""
_HIDDEN = "SECRET = 'the expected ' + 'output is 6'\n"

READS = {
    "tests named on a command line": _HIDDEN + """
import os
texts = []
for pid in filter(str.isdigit, os.listdir('/proc')):
    try:
        words = open(f'/proc/{pid}/cmdline').read().split('\\0')
    except OSError:
        continue
    for word in words:
        if word.endswith('tests.jsonl'):
            texts.append(open(word).read())
if not any(SECRET in text for text in texts): raise FileNotFoundError
""",
    "tests in the temporary directory": _HIDDEN + """
import os
names = [name for name in os.listdir('/tmp') if name.startswith('hidden-tests-')]
if not any(SECRET in open(f'/tmp/{name}/tests.jsonl').read() for name in names): raise FileNotFoundError
""",
    "tests anywhere": """
import os
def search(directory, depth):
    for entry in os.scandir(directory):
        if entry.name == 'tests.jsonl': return True
        if depth and entry.is_dir(follow_symlinks=False):
            try:
                if search(entry.path, depth - 1): return True
            except OSError:
                pass
if not search('/', 3): raise FileNotFoundError
""",
    "tests above the working directory": """
import os
for up in ('..', '../..', '../../..'):
    if any('hidden-tests' in name for name in os.listdir(up)): break
else: raise FileNotFoundError
""",
    "the user's files": """
import os, sys
for home in ('/root', '/home', os.path.expanduser('~')):
    if not os.path.isdir(home) or home == '/': continue
    if any(not path.startswith(f'{home}/{name}') for name in os.listdir(home) for path in sys.path): break
else: raise FileNotFoundError
""",
    "users": "open('/etc/passwd').read()",
    "passwords": "open('/etc/shadow').read()",
    "the machine's name": _TRY + "attempt(lambda: open('/etc/hostname').read(), lambda: open('/etc/machine-id').read(), lambda: open('/proc/sys/kernel/hostname').read())",
    "the machine's root through the first process": "open('/proc/1/root/etc/passwd').read()",
    "the machine's root through the parent": "import os\nopen(f'/proc/{os.getppid()}/root/etc/passwd').read()",
    "the working directory of another process": "import os\nos.listdir(f'/proc/{os.getppid()}/cwd/')",
    "a file by way of a directory's descriptor": "import os\nup = os.open('..', os.O_PATH)\nfor _ in range(9): up = os.open('..', os.O_PATH, dir_fd=up)\nos.open('etc/passwd', os.O_RDONLY, dir_fd=up)",
    "a file by its handle": _LIBC + "handle = ctypes.create_string_buffer(128)\nctypes.memmove(handle, (120).to_bytes(4, 'little'), 4)\nif not system_call(303, 264, -100, b'/', handle, ctypes.byref(ctypes.c_int()), 0): raise PermissionError",
    "packages": """
import os, sys
places = [f'{base}/{kind}-packages' for base in [*sys.path, '/usr/lib/python3'] for kind in ('site', 'dist')]
paths = [f'{place}/{name}/__init__.py' for place in places if os.path.isdir(place) for name in os.listdir(place)]
paths = [path for path in paths if os.path.exists(path)]
if not paths: raise FileNotFoundError
open(paths[0]).read()
""",
    "the grader's source": "import sys\nroom = sys.modules['radmoe.sandbox'].__path__[0] if 'radmoe.sandbox' in sys.modules else sys.modules['__main__'].__file__.rpartition('/')[0]\nopen(room + '/run.py').read()",
    "the grader's package": "import sys\nsys.path += [path.split('/radmoe/')[0] for path in sys.orig_argv if '/radmoe/' in path]\nsys.modules.pop('radmoe', None)\nimport radmoe.errors",
    "environments": _HIDDEN + "import os\ntexts = []\nfor pid in filter(str.isdigit, os.listdir('/proc')):\n    try: texts.append(open(f'/proc/{pid}/environ').read())\n    except OSError: pass\nif not any(SECRET in text for text in texts): raise PermissionError",
    "its own environment": "import os\nif not os.environ.keys() - {'LC_CTYPE'}: raise KeyError",
    "command lines": "import os\nif not [pid for pid in filter(str.isdigit, os.listdir('/proc')) if int(pid) != os.getpid() and open(f'/proc/{pid}/cmdline').read()]: raise PermissionError",
    "the map of its parent's memory": "import os\nopen(f'/proc/{os.getppid()}/maps').read()",
    "its parent's memory": "import os\nopen(f'/proc/{os.getppid()}/mem', 'rb')",
    "its parent's memory by process_vm_readv": _LIBC + "place = ctypes.create_string_buffer(64)\nvector = (ctypes.c_size_t * 2)(ctypes.addressof(place), 64)\nif not system_call(310, 270, os.getppid(), vector, 1, vector, 1, 0): raise PermissionError",
    "its parent's descriptors": "import os\nif not os.listdir(f'/proc/{os.getppid()}/fd'): raise PermissionError",
    "a copy of its parent's descriptor": _LIBC + "pidfd = libc.syscall(ctypes.c_long(434), os.getppid(), 0)\nif pidfd < 0 or libc.syscall(ctypes.c_long(438), pidfd, 0, 0) < 0: raise PermissionError",
    "the memory of everybody": """
import os
for pid in filter(str.isdigit, os.listdir('/proc')):
    if int(pid) != os.getpid():
        try:
            open(f'/proc/{pid}/mem', 'rb')
            break
        except OSError:
            pass
else: raise PermissionError
""",
    "other processes": "import os\nif len([name for name in os.listdir('/proc') if name.isdigit()]) < 2: raise FileNotFoundError",
    "the kernel's messages": _TRY + "attempt(lambda: open('/dev/kmsg', 'rb').read(10), lambda: open('/proc/kmsg', 'rb').read(10))",
    "the kernel's memory": _TRY + "attempt(lambda: open('/proc/kcore', 'rb'), lambda: open('/dev/mem', 'rb'), lambda: open('/dev/kmem', 'rb'))",
    "the machine's hardware": "import os\nif not os.listdir('/sys'): raise FileNotFoundError",
    "the disk": "import os\ndisks = [name for name in os.listdir('/dev') if name.startswith(('sd', 'vd', 'xvd', 'nvme', 'loop', 'dm-'))]\nif not disks: raise FileNotFoundError\nopen(f'/dev/{disks[0]}', 'rb').read(1)",
    "a terminal": _TRY + "import os\nattempt(lambda: os.open('/dev/tty', os.O_RDONLY), lambda: os.listdir('/dev/pts'), lambda: os.open('/dev/console', os.O_RDONLY))",
    "virtual machines": _TRY + "attempt(lambda: open('/dev/kvm', 'rb'), lambda: open('/dev/fuse', 'rb'), lambda: open('/dev/net/tun', 'rb'))",
    "stdin": "input()",
    "stdin descriptor": "import os\nassert os.read(0, 10)",
    "descriptors it was not given": _TRY + "import os\nattempt(*[lambda fd=fd: os.read(fd, 1) for fd in range(4, 64)])",
}  # fmt: skip

WRITES = {
    "a file": "open('hostile-file', 'w').write('x')",
    "files in the usual places": _TRY + "attempt(*[lambda where=where: open(f'{where}/hostile-file', 'w').write('x') for where in ('/tmp', '/var/tmp', '/dev/shm', '/', '/root', '/run', '/dev', '/proc/self')])",
    "a temporary file": "import tempfile\ntempfile.NamedTemporaryFile(prefix='hostile-', delete=False)",
    "a nameless file": _LIBC + "if not system_call(319, 279, b'hostile', 0): raise PermissionError",
    "a directory": "import os\nos.mkdir('hostile-directory')",
    "a symbolic link": "import os\nos.symlink('/etc/passwd', 'hostile-link')",
    "a hard link": "import os\nos.link(os.__file__, 'hostile-link')",
    "a pipe with a name": "import os\nos.mkfifo('hostile-fifo')",
    "a device": "import os, stat\nos.mknod('hostile-device', stat.S_IFCHR | 0o666, os.makedev(1, 1))",
    "the library": _TRY + "import os\nattempt(lambda: open(os.__file__, 'a'), lambda: os.truncate(os.__file__, 0) is None, lambda: os.unlink(os.__file__) is None, lambda: os.rename(os.__file__, 'hostile-os.py') is None, lambda: os.chmod(os.__file__, 0o777) is None, lambda: os.utime(os.__file__) is None, lambda: os.setxattr(os.__file__, 'user.hostile', b'1') is None)",
    "the library by way of a mapping": "import mmap, os\nmmap.mmap(os.open(os.__file__, os.O_RDWR), 0)",
    "its own descriptor anew": "open('/proc/self/fd/1', 'w')",
    "its parent's limits": _TRY + "import os\nattempt(lambda: open(f'/proc/{os.getppid()}/oom_score_adj', 'w').write('1000'), lambda: open('/proc/self/oom_score_adj', 'w').write('-1000'))",
    "where core dumps go": "open('/proc/sys/kernel/core_pattern', 'w').write('|/tmp/hostile-core')",
    "a control group": _TRY + "attempt(lambda: open('/sys/fs/cgroup/cgroup.procs', 'w'), lambda: __import__('os').mkdir('/sys/fs/cgroup/hostile-group') is None)",
    "descriptors it was not given": _TRY + "import os\nattempt(*[lambda fd=fd: os.write(fd, b'0x6') for fd in range(4, 64)])",
    "shared memory": _LIBC + "if libc.shmget(0, 4096, 0o1666) < 0: raise PermissionError",
    "a message queue": _LIBC + "if libc.msgget(0, 0o1666) < 0: raise PermissionError",
    "a semaphore": _LIBC + "if libc.semget(0, 1, 0o1666) < 0: raise PermissionError",
    "a POSIX message queue": _LIBC + "if not system_call(240, 180, b'hostile', os.O_CREAT | os.O_RDWR, 0o666, None): raise PermissionError",
    "a key": _LIBC + "if not system_call(248, 217, b'user', b'hostile', b'x', ctypes.c_size_t(1), -2): raise PermissionError",
}  # fmt: skip

STARTS = {
    "a fork bomb": "import os\nwhile True:\n    os.fork()",
    "a shell": "import os\nif os.system('true') != 0: raise OSError\nos.execv('/bin/true', ['true'])",
    "a subprocess": "import subprocess\nsubprocess.run(['true'])",
    "its own interpreter": "import os, sys\nos.execv(sys.executable, [sys.executable, '-c', 'pass'])",
    "a spawned process": "import os, sys\nos.posix_spawn(sys.executable, [sys.executable, '-c', 'pass'], {})",
    "a daemon": "import os, time\nif os.fork() == 0:\n    os.setsid()\n    if os.fork() == 0:\n        time.sleep(60)\n    os._exit(0)",
    "a zombie": "import os\nif os.fork() == 0: os._exit(0)",
    "a process by clone": _LIBC + "if not system_call(56, 220, 17, None, None, None, None): raise PermissionError",
    "a process by vfork": _LIBC + "if not system_call(58, -1): raise PermissionError",
    "a pool of processes": "import concurrent.futures\nwith concurrent.futures.ProcessPoolExecutor(1) as pool: pool.submit(len, []).result(1)",
    "a process by multiprocessing": "import multiprocessing\nprocess = multiprocessing.Process(target=print)\nprocess.start()\nprocess.join(1)",
    "threads": "import threading, time\nthreading.Thread(target=lambda: time.sleep(60)).start()",
    "a thread by its lower name": "import _thread\n_thread.start_new_thread(print, ())",
    "a setuid program": _TRY + "import os\nattempt(*[lambda path=path: os.execv(path, [path]) for path in ('/bin/su', '/usr/bin/sudo', '/usr/bin/passwd', '/bin/mount')])",
    "a program from memory": _LIBC + "file = libc.memfd_create(b'hostile', 0)\nif file < 0: raise PermissionError\nos.write(file, b'#!/bin/sh\\n')\nlibc.fexecve(file, None, None)\nraise PermissionError",
}  # fmt: skip

ATTACKS = {
    "kills its parent": "import os\nos.kill(os.getppid(), 9)",
    "kills its parent by libc": "import ctypes, os\nassert ctypes.CDLL(None).kill(os.getppid(), 9) == 0",
    "kills everybody": "import os\nos.kill(-1, 9)",
    "kills its group": "import os\nos.killpg(0, 15)",
    "stops its parent": "import os, signal\nos.kill(os.getppid(), signal.SIGSTOP)",
    "signals by a process descriptor": _LIBC + "pidfd = libc.syscall(ctypes.c_long(434), os.getppid(), 0)\nif pidfd < 0 or libc.syscall(ctypes.c_long(424), pidfd, 9, None, 0) < 0: raise PermissionError",
    "traces its parent": _LIBC + "if not system_call(101, 117, 16, os.getppid(), None, None): raise PermissionError",
    "lets itself be traced": _LIBC + "if not system_call(101, 117, 0, 0, None, None): raise PermissionError",
    "becomes root": "import os\nos.setresuid(0, 0, 0)",
    "gains capabilities": _LIBC + "import struct\nif libc.capset(struct.pack('<Ii', 0x20080522, 0), b'\\xff' * 24) != 0: raise PermissionError",
    "turns its filter off": _LIBC + "if libc.prctl(22, ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) < 0: raise PermissionError",
    "puts a weaker filter on top": _LIBC + "if not system_call(317, 277, 1, 0, ctypes.create_string_buffer(16)): raise PermissionError",
    "lets others look into it": _LIBC + "if libc.prctl(4, ctypes.c_ulong(1), ctypes.c_ulong(0), ctypes.c_ulong(0), ctypes.c_ulong(0)) < 0: raise PermissionError",
    "mounts": _LIBC + "if libc.mount(b'none', b'/tmp', b'tmpfs', ctypes.c_ulong(0), None) < 0: raise PermissionError",
    "unmounts": _LIBC + "if libc.umount2(b'/proc', 2) < 0: raise PermissionError",
    "changes its root": "import os\nos.chroot('.')",
    "pivots its root": _LIBC + "if libc.pivot_root(b'.', b'.') < 0: raise PermissionError",
    "enters a user namespace": _LIBC + "if libc.unshare(0x10000000) < 0: raise PermissionError",
    "enters another's namespace": "import ctypes, os\nlibc = ctypes.CDLL(None)\nif libc.setns(os.open('/proc/1/ns/mnt', os.O_RDONLY), 0) < 0: raise PermissionError",
    "clones a mount": _LIBC + "if not system_call(428, 428, -100, b'/', 1): raise PermissionError",
    "loads a kernel module": _LIBC + "if not system_call(175, 105, b'', 0, b''): raise PermissionError",
    "loads a program into the kernel": _LIBC + "if not system_call(321, 280, 0, ctypes.create_string_buffer(72), 72): raise PermissionError",
    "makes a ring of system calls": _LIBC + "if not system_call(425, 425, 1, ctypes.create_string_buffer(120)): raise PermissionError",
    "uses the numbers of another machine": _LIBC + "if libc.syscall(ctypes.c_long(0x40000000 | 39)) < 0: raise PermissionError",
    "calls the kernel as a 32-bit program": "import ctypes, mmap\ncode = mmap.mmap(-1, 4096, prot=7)\ncode.write(bytes.fromhex('b802000000cd80c3'))\nctypes.CFUNCTYPE(ctypes.c_int)(ctypes.addressof(ctypes.c_char.from_buffer(code)))()",
    "types into the terminal": "import fcntl, termios\nfcntl.ioctl(0, termios.TIOCSTI, b'x')",
    "sets the clock": "import time\ntime.clock_settime(time.CLOCK_REALTIME, 0)",
    "changes the host's name": "import socket\nsocket.sethostname('hostile')",
    "reboots": _LIBC + "if not system_call(169, 142, 0, 0, 0, None): raise PermissionError",
    "writes into its own code": "import ctypes\nctypes.memset(id(int), 0, 64)\nint('6')",
    "crashes": "import ctypes\nctypes.string_at(0)",
    "aborts": "import os\nos.abort()",
}  # fmt: skip

CONNECTS = {
    "to this machine": "import socket\nsocket.create_connection(('127.0.0.1', 80))",
    "with the module loaded anew": "import sys\nsys.modules.pop('_socket'); sys.modules.pop('socket', None)\nimport socket\nsocket.socket()",
    "by libc": _LIBC + "if libc.socket(2, 1, 0) < 0: raise PermissionError",
    "by UDP": "import socket\nsocket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b'x', ('127.0.0.1', 53))",
    "by a Unix socket": "import socket\nsocket.socket(socket.AF_UNIX).bind('\\0hostile')",
    "by a pair of sockets": "import socket\nsocket.socketpair()",
    "by netlink": "import socket\nsocket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)",
    "to the machine's host": _LIBC + "if libc.socket(40, 1, 0) < 0: raise PermissionError",
    "by HTTP": "import urllib.request\nurllib.request.urlopen('http://127.0.0.1/')",
    "by asyncio": "import asyncio\nasyncio.run(asyncio.sleep(0))",
}  # fmt: skip

TAKES = {
    "memory": "x = []\nwhile True:\n    x.append(bytearray(10**7))",
    "one large object": "x = 'a' * 10**11",
    "a large mapping": "import mmap\nmmap.mmap(-1, 1 << 40)",
    "memory by unpacking": "import zlib\nsmall = zlib.compress(bytes(10**7))\nx = [zlib.decompress(small) for _ in range(90)]",
    "descriptors": "import os\nwhile True: os.open('/dev/null', os.O_RDONLY)",
    "stack": "import sys\nsys.setrecursionlimit(10**9)\ndef down(): return [down()]\ndown()",
    "stack in C": "x = []\nfor _ in range(10**6): x = [x]\nhash(repr(x))",
    "another limit": "import resource\nresource.setrlimit(resource.RLIMIT_AS, (-1, -1))",
    "another limit by libc": _LIBC + "if not system_call(302, 261, 0, 9, (ctypes.c_ulong * 2)(1 << 40, 1 << 40), None): raise PermissionError",
    "a better place in the queue": "import os\nos.nice(-5)",
    "a long sleep": "import time\ntime.sleep(60)",
    "many short sleeps": "import time\nfor _ in range(6000): time.sleep(0.01 if _ else 0.9)",
    "a timer": "import signal\nsignal.setitimer(signal.ITIMER_REAL, 0.1)",
    "no notice of signals": "import signal\nsignal.signal(signal.SIGXCPU, signal.SIG_IGN)\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\nraise OSError",
}  # fmt: skip

LIES = {
    "leaves early": "import os\nos._exit(0)",
    "leaves early with a forged status": "import os\nos._exit(86)",
    "exits": "import sys\nsys.exit(0)",
    "says passed": "print('passed 3 of 3')\nimport os\nos.write(3, b'passed 3 of 3')\nos._exit(0)",
    "answers for itself": "import os\nos.write(3, b'0x6\\n0x1\\n0x5')\nos._exit(0)",
    "answers too much": "import os\nos.write(3, b'0x6\\n0x0\\n0x5\\n0x0')\nos._exit(0)",
    "answers too little": "import os\nos.write(3, b'0x6\\n0x0')\nos._exit(0)",
    "answers twice": "import os\nos.write(3, b'0x6\\n0x0\\n0x5')",
    "claims to be confined": "import os\nos.write(3, b'+')",
    "forges the helper's report": "import os, struct\nfor fd in (0, 1, 2, 3):\n    try: os.write(fd, struct.pack('<i', 0))\n    except OSError: pass\nos._exit(0)",
    "floods the answer": "import os\nwhile True:\n    os.write(3, b'x' * 65536)",
    "closes the answer": "import os\nos.close(3)\ndef f(xs): return sum(xs)",
    "equals everything": "class E(int):\n    def __eq__(self, other): return True\n    __hash__ = int.__hash__\ndef f(xs): return E(1)",
    "equals everything, in a list": "class L(list):\n    def __eq__(self, other): return True\ndef f(xs): return L()",
    "pretends to be another class": "class P:\n    __class__ = property(lambda self: int)\n    def __index__(self): return 6\n    __int__ = __index__\ndef f(xs): return P()",
    "spells itself": "class S(str):\n    def __repr__(self): return '0x6'\n    def __ascii__(self): return '0x6'\ndef f(xs): return S('0x6')",
    "patches the comparison": "import builtins, operator\nbuiltins.type = lambda x: int\nbuiltins.hex = lambda x: '0x6'\noperator.eq = lambda a, b: True\ndef f(xs): return 'six'",
    "patches the spelling": "import sys\nfor module in list(sys.modules.values()):\n    if hasattr(module, 'spell'): module.spell = lambda value, depth=0: '0x6'\ndef f(xs): return None",
    "reaches into its caller": "import sys\ndef f(xs):\n    frame = sys._getframe(1)\n    lines = frame.f_locals.get('lines')\n    if lines is not None: lines.extend(['0x6', '0x0', '0x5'])\n    raise SystemExit",
    "a value without end": "def f(xs):\n    xs.append(xs)\n    return xs",
    "a value too large": "def f(xs): return 'a' * 10**7",
    "a value that is no number": "def f(xs): return float('nan')",
    "an exception that lies": "class E(BaseException):\n    def __str__(self): raise self\ndef f(xs): raise E",
    "an exception with an answer": "class E(Exception):\n    def __str__(self): return '\\n0x6\\n0x0\\n0x5'\ndef f(xs): raise E",
}  # fmt: skip

_GROUPS = (("reads", READS), ("writes", WRITES), ("starts", STARTS), ("", ATTACKS), ("connects", CONNECTS), ("takes", TAKES), ("", LIES))  # fmt: skip
HOSTILE = {f"{verb} {name}".strip(): program for verb, group in _GROUPS for name, program in group.items()}

# These take a second of CPU, or all of the wall clock, before they are stopped.
ENDLESS = {
    "computes": "while True: pass",
    "computes behind ignored signals": "import signal\nfor number in range(1, 32):\n    try: signal.signal(number, lambda *_: None)\n    except (OSError, ValueError): pass\nwhile True: pass",
    "computes in one step": "10 ** 10 ** 10",
    "matches": "import re\nre.match('(a+)+b', 'a' * 60)",
    "prints": "while True: print('a' * 10**6)",
    "writes": "import os\nwhile True: os.write(1, b'x' * 2**20)",
    "catches everything": "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
    "waits for a lock": "import threading\nlock = threading.Lock()\nlock.acquire()\nlock.acquire()",
    "sleeps by libc": "import ctypes\nctypes.CDLL(None).sleep(60)",
}  # fmt: skip

# Landlock hides what is in files and directories, but not whether a path exists. docs/grading.md says so.
SEEN_UNDER_LANDLOCK = {
    "tells which processes there are": "import os\nif not [pid for pid in range(1, 100000) if pid != os.getpid() and os.path.exists(f'/proc/{pid}')]: raise FileNotFoundError",
    "tells whether a file exists": "import os\nos.stat('/etc/passwd')",
}  # fmt: skip
