# SPDX-License-Identifier: MIT
"""The page of nth.h, seen from the test."""
import mmap
import struct

HEAD = struct.Struct('=12Q')
PLACE = struct.Struct('=12Q32s')
N_PLACES = 2048
MODES = ['record', 'once', 'always', 'all']
CLASSES = ['memory', 'files', 'other']
ARMED, MODE, KEY, OCCURRENCE, CHOICE, N_ALLOCATIONS, N_CALLS, N_FAILED, ERROR = range(9)


class Place:
    """A call with its callers."""

    def __init__(self, key, n=0, kind=0, n_errors=1, frames=(), function=''):
        self.key, self.n, self.kind, self.n_errors = key, n, CLASSES[kind], n_errors
        self.frames, self.function = frames, function


class Page:
    """Controls the calls of the programs that have its path in RBK_TEST_NTH."""

    def __init__(self, path):
        self.path = path
        with open(path, 'w+b') as file:
            file.truncate(HEAD.size + N_PLACES * PLACE.size)
            self.memory = mmap.mmap(file.fileno(), 0)

    def word(self, index):
        return struct.unpack_from('=Q', self.memory, 8 * index)[0]

    def put(self, index, value):
        struct.pack_into('=Q', self.memory, 8 * index, value)

    def arm(self, is_armed=True):
        self.put(ARMED, int(is_armed))

    def set(self, mode, key, n, error):
        for index, value in ((MODE, MODES.index(mode)), (KEY, key), (OCCURRENCE, n), (CHOICE, error)):
            self.put(index, value)

    @property
    def is_persistent(self):
        return MODES[self.word(MODE)] in ('always', 'all')

    @property
    def n_failed(self):
        return self.word(N_FAILED)

    @property
    def error(self):
        return self.word(ERROR)

    def counts(self):
        return self.word(N_ALLOCATIONS), self.word(N_CALLS)

    def places(self):
        found = []
        for i in range(N_PLACES):
            fields = PLACE.unpack_from(self.memory, HEAD.size + i * PLACE.size)
            if fields[0]:
                found.append(Place(*fields[:4], fields[4:12], fields[12].rstrip(b'\0').decode()))
        return found
