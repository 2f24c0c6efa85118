#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Processes that use a card themselves, beyond their lease or without one: the broker names them,
has their tenant come after others, or stops them, by what the kernel says of them.

    lease-audit.py AMDGPU-SIM BROKERD LIBRINGBROKER
    lease-audit.py user LIBRINGBROKER SOCKET LEASE-MIB UID     (the process that does it)
"""
import ctypes
import os
import signal
import subprocess
import sys

from simulated import GPU, MIB, PATIENCE_S, Broker, Cards, await_true

NOBODY = 65534


class Options(ctypes.Structure):
    """struct rbk_lease_options"""
    _fields_ = [('device', ctypes.c_uint32), ('join', ctypes.c_uint32), ('uuid', ctypes.c_void_p),
                ('min', ctypes.c_uint64), ('wish', ctypes.c_uint64), ('max', ctypes.c_uint64),
                ('wait', ctypes.c_uint64), ('program', ctypes.c_char_p)]


def open_lease(library, socket, mib):
    """Return: what keeps it."""
    rbk, lease, error = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(1024)
    os.environ['RINGBROKER_SOCKET'] = socket
    assert library.rbk_connect(None, ctypes.byref(rbk), error) == 0, error.value
    options = Options(device=GPU, max=mib * MIB)
    r = library.rbk_lease_open(rbk, ctypes.byref(options), ctypes.byref(lease), error)
    assert r == 0, (r, error.value)
    return rbk, lease


def use():
    """Does as it is told: "alloc MIB", "free"."""
    library, socket, mib = ctypes.CDLL(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    lease = open_lease(library, socket, mib) if mib else None
    libc = ctypes.CDLL(None, use_errno=True)
    card = os.open('/dev/dri/renderD128', os.O_RDWR)
    handles = []
    if int(sys.argv[5]) != os.getuid():
        os.setuid(int(sys.argv[5]))
    print('ready', flush=True)
    for line in sys.stdin:
        words = line.split()
        if words[0] == 'alloc':
            # struct drm_amdgpu_gem_create_in: in VRAM.
            argument = (ctypes.c_uint64 * 4)(int(words[1]) * MIB, 4096, 4, 0)
            assert libc.ioctl(card, ctypes.c_ulong(0xC0206440), argument) == 0, ctypes.get_errno()
            handles.append(argument[0] & 0xFFFFFFFF)
        else:
            for handle in handles:
                argument = (ctypes.c_uint32 * 2)(handle, 0)
                assert libc.ioctl(card, ctypes.c_ulong(0x40086409), argument) == 0
            handles.clear()
        print('done', flush=True)
    del lease


class User:
    """One such process."""

    def __init__(self, cards, broker, lease_mib, is_nobody=False):
        self.process = subprocess.Popen(
            [sys.executable, '-B', __file__, 'user', LIBRARY, broker.socket, str(lease_mib),
             str(NOBODY if is_nobody else os.getuid())],
            env=cards.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.process.pid
        assert self.process.stdout.readline() == 'ready\n'

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.process.kill()
        self.process.communicate()

    def tell(self, command):
        print(command, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == 'done\n'


def n_lines(broker, user, text):
    """Lines of the log that name the process and say something."""
    return sum(f'process {user.pid} ' in line and text in line for line in broker.log().splitlines())


def warned(cards):
    """Both kinds are named once; who keeps to the lease is not; nobody is stopped."""
    policy = '[tenant default]\nlease-required = yes\nlease-tolerance = 16MiB\n'
    with Broker(BROKERD, cards, policy=policy) as broker, User(cards, broker, 64) as good, \
            User(cards, broker, 64) as bad, User(cards, broker, 0) as offender:
        good.tell('alloc 64')
        bad.tell('alloc 100')
        offender.tell('alloc 40')
        await_true('who has no lease is named',
                   lambda: n_lines(broker, offender, 'and has no lease of it'))
        await_true('who uses too much is named', lambda: n_lines(broker, bad, 'and lease '))
        assert n_lines(broker, bad, f'uses {100 * MIB} bytes of device 1'), broker.log()
        assert n_lines(broker, bad, f'{80 * MIB}, with what drivers may need'), broker.log()
        assert n_lines(broker, offender, f'uses {40 * MIB} bytes of device 1'), broker.log()
        # It is not said again.
        bad.tell('alloc 10')
        offender.tell('free')
        third = User(cards, broker, 0)
        with third:
            third.tell('alloc 40')
            await_true('another one is named', lambda: n_lines(broker, third, 'has no lease'))
        assert n_lines(broker, bad, 'lease') == 1
        assert n_lines(broker, good, '') == 0
        assert not broker.says('is stopped')


def lowered(cards):
    policy = '[tenant default]\nlease-audit = priority\nlease-tolerance = 16MiB\n'
    with Broker(BROKERD, cards, policy=policy) as broker, User(cards, broker, 64) as bad:
        bad.tell('alloc 100')
        await_true('it comes after others', lambda: broker.says('tenant default comes after others until'))
        bad.tell('free')
        await_true('no more', lambda: broker.says('comes after others no more'))


def stopped(cards):
    policy = ('[tenant default]\nlease-audit = stop\nlease-required = yes\n'
              'lease-tolerance = 16MiB\n')
    with Broker(BROKERD, cards, policy=policy) as broker:
        is_root = os.getuid() == 0
        with User(cards, broker, 64, is_root) as bad, User(cards, broker, 0, is_root) as offender, \
                User(cards, broker, 64, is_root) as good:
            good.tell('alloc 64')
            bad.tell('alloc 100')
            offender.tell('alloc 40')
            assert bad.process.wait(PATIENCE_S) == -signal.SIGTERM
            assert offender.process.wait(PATIENCE_S) == -signal.SIGTERM
            assert good.process.poll() is None
        if is_root:
            with User(cards, broker, 0) as roots:
                roots.tell('alloc 40')
                await_true('it is spared',
                           lambda: n_lines(broker, roots, 'is not stopped: it runs as root'))
                assert roots.process.poll() is None


def play():
    with Cards(SIM, 'polaris10,vram=512MiB') as cards:
        # Processes that are not root's write there.
        for folder, _, files in os.walk(cards.folder.name):
            os.chmod(folder, 0o777)
            for name in files:
                path = os.path.join(folder, name)
                if not os.path.islink(path):
                    os.chmod(path, 0o666)
        for scene in (warned, lowered, stopped):
            scene(cards)
            print(scene.__name__, flush=True)


if sys.argv[1] == 'user':
    use()
else:
    SIM, BROKERD, LIBRARY = sys.argv[1:4]
    play()
