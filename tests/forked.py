"""Has a process forked that stands for this one: `python -I -S forked.py SOCKET WORD…`; see `forkserver.words`.

It imports next to nothing, so that it begins in a fraction of the time of Python.
"""

from __future__ import annotations

import _signal
import _socket
import marshal
import os
import sys
from array import array

asking = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
asking.connect(sys.argv[1])
asked = marshal.dumps((sys.argv[2:], dict(os.environ), os.getcwd(), False, True))
asking.sendmsg([asked], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, array("i", [0, 1, 2]))])
pid = int(asking.recv(20))
for number in (_signal.SIGTERM, _signal.SIGINT):
    _signal.signal(number, lambda number, _: os.kill(pid, number))
nothing = os.open(os.devnull, os.O_RDWR)
for stream in range(3):
    os.dup2(nothing, stream)
code = os.waitstatus_to_exitcode(int(asking.recv(20) or 9))
if code < 0:
    _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
