"""The modules that docs/grading.md promises to confined programs, and a program that imports them.

Left out are modules that a Python may be built without (bz2, lzma, sqlite3, ssl, tkinter and the like), and packages
from elsewhere.
"""

PROMISED = (
    "abc argparse array ast asyncio base64 binascii bisect builtins calendar cmath codecs collections collections.abc "
    "colorsys concurrent.futures contextlib contextvars copy copyreg csv ctypes dataclasses datetime decimal difflib dis "
    "email enum errno fnmatch fractions functools gc getopt glob graphlib hashlib heapq hmac html html.parser http "
    "importlib inspect io ipaddress itertools json keyword linecache locale logging marshal math mmap multiprocessing "
    "numbers operator os os.path pathlib pickle platform pprint queue random re reprlib resource sched secrets select "
    "selectors shlex shutil signal socket stat statistics string stringprep struct subprocess sys sysconfig tempfile "
    "textwrap threading time timeit token tokenize traceback types typing unicodedata unittest urllib.parse uuid "
    "warnings weakref xml.etree.ElementTree zlib zoneinfo"
)

PROBE = """
def f(names):
    missing = []
    for name in names:
        try:
            __import__(name)
        except BaseException as error:
            missing.append(f"{name} ({type(error).__name__}: {error})")
    return missing
"""
PROBE_S = 60.0
PROBE_MEMORY = 1 << 30
