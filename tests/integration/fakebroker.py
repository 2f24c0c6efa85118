# SPDX-License-Identifier: MIT
"""A broker with prepared answers, for tests of the layer with faulty or different brokers."""
import contextlib
import fcntl
import os
import socket
import struct
import threading

MIB = 1 << 20
HELLO, DEVICES, LEASE_OPEN, LEASE_CREDIT, LEASE_OBJECT = 1, 8, 20, 21, 22
CPU, CARD, RENDERER = 0, 1, 2
FEAT_LEASES = 1 << 10
F_ADD_SEALS, F_SEAL_SHRINK = 1033, 2


class FakeBroker:
    """A broker with prepared answers. @answers maps a type of request to the bytes after the reply's
    head, a negative errno, or a function of the request that returns either of these and
    descriptors."""

    def __init__(self, folder, answers):
        self.path = os.path.join(folder, 'fake')
        self.answers = answers
        self.seen = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.listener.bind(self.path)
        self.listener.listen(8)
        self.connections = []
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self.listener.accept()
                self.connections.append(connection)
                threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        with contextlib.suppress(OSError):
            while True:
                request = connection.recv(1 << 16)
                if not request:
                    return
                kind, cookie = struct.unpack_from('=II', request)
                self.seen.append(kind)
                answer = self.answers.get(kind, -95)
                fds = []
                if callable(answer):
                    answer, fds = answer(request)
                if answer is None:
                    continue
                res = answer if isinstance(answer, int) else 0
                body = b'' if isinstance(answer, int) else answer
                # This is struct rbk_wire_reply.
                head = struct.pack('=IIiI', kind, cookie, res, 0)
                head += b'fake'.ljust(REPLY_BYTES - len(head), b'\0')
                socket.send_fds(connection, [head + body], fds)

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.listener.close()
        for connection in self.connections:
            connection.close()


REPLY_BYTES, NAME_BYTES, MAGIC = 528, 64, 0x4b425252


def welcome(features=FEAT_LEASES, major=1, minor=4):
    return struct.pack('=HHIQ4IQQII', major, minor, 2, features, 1024, 1, 1, 1, 0, 0, 0, 0) + b'fake'.ljust(64, b'\0')


def devices(*kinds):
    listed = b''.join(struct.pack('=IIQ', index, kind, 0) + f'device {index}'.encode().ljust(192, b'\0')
                      for index, kind in enumerate(kinds))
    return struct.pack('=II', len(kinds), 0) + listed.ljust(16 * 208, b'\0')


def hello(path, major=1, minor=0, features=FEAT_LEASES):
    """Connect as a client of another version. Return: the connection, the result, the text, and the
    granted features."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    connection.settimeout(60)
    connection.connect(path)
    connection.send(struct.pack('=IIIHHQ', HELLO, 7, MAGIC, major, minor, features)
                    + b'other'.ljust(NAME_BYTES, b'\0'))
    reply = connection.recv(1 << 16)
    kind, cookie, res = struct.unpack_from('=IIi', reply)
    if (kind, cookie) != (HELLO, 7):
        raise AssertionError('another answer')
    has, = struct.unpack_from('=Q', reply, REPLY_BYTES + 8) if res == 0 else (0,)
    return connection, res, reply[16:REPLY_BYTES].split(b'\0')[0].decode(), has


def page(max_bytes=64 * MIB, granted=64 * MIB, wish=64 * MIB, credited=0, magic=0x4c425252,
         seals=True, size=4096):
    """Return: the descriptor of a lease's page."""
    fd = os.memfd_create('lease', os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
    os.ftruncate(fd, size)
    os.pwrite(fd, struct.pack('=IIQQQQ', magic, 7, max_bytes, granted, wish, credited), 0)
    if seals:
        fcntl.fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK)
    return fd


def opened(fd, number=7, granted=64 * MIB, max_bytes=64 * MIB, page_bytes=4096):
    return struct.pack('=IIQQQ', number, 1, granted, max_bytes, page_bytes), [fd] if fd else []


def give_all(request):
    """Answer LEASE_CREDIT with the requested amount."""
    want, = struct.unpack_from('=Q', request, 16)
    return struct.pack('=QQ', want, 64 * MIB), []
