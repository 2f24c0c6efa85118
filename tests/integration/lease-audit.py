#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Processes that use a card themselves, beyond their lease or without one: the broker names them,
serves their tenant after others, or stops them, by the kernel's accounts.

    lease-audit.py AMDGPU-SIM BROKERD LIBRINGBROKER BROKERCTL
    lease-audit.py user LIBRINGBROKER SOCKET LEASE-MIB UID [fork]    (the process that does it)
"""
import contextlib
import ctypes
import errno
import json
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
    """Open a lease. Return: the objects that keep it."""
    rbk, lease, error = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.create_string_buffer(1024)
    os.environ['RINGBROKER_SOCKET'] = socket
    assert library.rbk_connect(None, ctypes.byref(rbk), error) == 0, error.value
    options = Options(device=GPU, max=mib * MIB)
    r = library.rbk_lease_open(rbk, ctypes.byref(options), ctypes.byref(lease), error)
    assert r == 0, (r, error.value)
    return rbk, lease


def restore(library, lease, socket, mib):
    """Claim a lease of @mib from another broker. Return: the objects that keep the connection, and the
    error."""
    rbk, error = ctypes.c_void_p(), ctypes.create_string_buffer(1024)
    os.environ['RINGBROKER_SOCKET'] = socket
    assert library.rbk_connect(None, ctypes.byref(rbk), error) == 0, error.value
    return rbk, library.rbk_lease_restore(lease[1], rbk, ctypes.c_uint64(mib * MIB), error)


def credited(library, lease):
    """Return the credited MiB on the lease's page, struct rbk_lease_page."""
    library.rbk_lease_page.restype = ctypes.c_void_p
    return ctypes.c_uint64.from_address(library.rbk_lease_page(lease[1]) + 32).value // MIB


def use():
    """Execute the commands "alloc MIB", "free", "restore MIB SOCKET ERRNO" and "credited MIB"."""
    library, socket, mib = ctypes.CDLL(sys.argv[2]), sys.argv[3], int(sys.argv[4])
    lease = open_lease(library, socket, mib) if mib else None
    # The child inherits everything, also the connection; its parent ends together with the child.
    if sys.argv[6:] == ['fork']:
        child = os.fork()
        if child:
            os.waitpid(child, 0)
            os._exit(0)
    libc = ctypes.CDLL(None, use_errno=True)
    card = os.open('/dev/dri/renderD128', os.O_RDWR)
    handles = []
    if int(sys.argv[5]) != os.getuid():
        os.setuid(int(sys.argv[5]))
    print('ready', os.getpid(), flush=True)
    anew = None
    for line in sys.stdin:
        words = line.split()
        if words[0] == 'alloc':
            # struct drm_amdgpu_gem_create_in; domain 4 is VRAM
            argument = (ctypes.c_uint64 * 4)(int(words[1]) * MIB, 4096, 4, 0)
            assert libc.ioctl(card, ctypes.c_ulong(0xC0206440), argument) == 0, ctypes.get_errno()
            handles.append(argument[0] & 0xFFFFFFFF)
        elif words[0] == 'restore':
            anew, r = restore(library, lease, words[2], int(words[1]))
            assert r == -int(words[3]), r
        elif words[0] == 'credited':
            await_true(line, lambda: credited(library, lease) == int(words[1]))
        else:
            for handle in handles:
                argument = (ctypes.c_uint32 * 2)(handle, 0)
                assert libc.ioctl(card, ctypes.c_ulong(0x40086409), argument) == 0
            handles.clear()
        print('done', flush=True)
    del lease, anew


class User:
    """A process that uses the card itself. @prefix: the command that starts it."""

    def __init__(self, cards, broker, lease_mib, is_nobody=False, how=(), prefix=()):
        self.process = subprocess.Popen(
            [*prefix, sys.executable, '-B', __file__, 'user', LIBRARY, broker.socket if broker else '',
             str(lease_mib), str(NOBODY if is_nobody else os.getuid()), *how],
            env=cards.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        ready, self.pid = self.process.stdout.readline().split()
        self.pid = int(self.pid)
        assert ready == 'ready'

    def __enter__(self):
        return self

    def __exit__(self, *error):
        for pid in {self.pid, self.process.pid}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.process.communicate()

    def tell(self, command):
        print(command, file=self.process.stdin, flush=True)
        assert self.process.stdout.readline() == 'done\n'


def n_lines(broker, user, text):
    """Return the number of log lines that name the process and contain @text."""
    return sum(f'process {user.pid} ' in line and text in line for line in broker.log().splitlines())


def listed(broker, *arguments):
    """Return the objects that brokerctl lists."""
    text = subprocess.run([BROKERCTL, '--socket', broker.socket, *arguments, '--json'], check=True, stdout=subprocess.PIPE,
                          timeout=PATIENCE_S).stdout
    return [json.loads(line) for line in text.splitlines()]


def warned(cards):
    """Both kinds of offenders are named once; a process that keeps to its lease is not; none is stopped."""
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
        assert n_lines(broker, bad, f'{80 * MIB}, including driver overhead'), broker.log()
        assert n_lines(broker, offender, f'uses {40 * MIB} bytes of device 1'), broker.log()
        # The broker does not repeat the line.
        bad.tell('alloc 10')
        offender.tell('free')
        third = User(cards, broker, 0)
        with third:
            third.tell('alloc 40')
            await_true('another one is named', lambda: n_lines(broker, third, 'has no lease'))
        assert n_lines(broker, bad, 'lease') == 1
        assert n_lines(broker, good, '') == 0
        assert not broker.says('is stopped')
        offending = [lease for lease in listed(broker, 'leases') if lease['over']]
        assert [lease['pid'] for lease in offending] == [bad.pid], offending
        answer, = listed(broker, 'why', 'lease', str(offending[0]['lease']))
        assert any(fact == 'its programs use 110 MiB of device memory now, and were granted 64 MiB'
                   for fact in answer['facts']), answer


def lowered(cards):
    policy = '[tenant default]\nlease-audit = priority\nlease-tolerance = 16MiB\n'
    with Broker(BROKERD, cards, policy=policy) as broker, User(cards, broker, 64) as bad:
        bad.tell('alloc 100')
        await_true('it is served later', lambda: broker.says('tenant default is served after other tenants'))
        bad.tell('free')
        await_true('it is served normally', lambda: broker.says('is served normally again'))


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


def handed_over(cards):
    """A child that keeps the lease of its parent by the inherited connection has no lease."""
    policy = '[tenant default]\nlease-required = yes\nlease-tolerance = 16MiB\n'
    with Broker(BROKERD, cards, policy=policy) as broker, \
            User(cards, broker, 64, how=['fork']) as child:
        assert child.pid != child.process.pid
        child.tell('alloc 40')
        await_true('it is named', lambda: n_lines(broker, child, 'and has no lease of it'))


def there_before(cards):
    """Processes that used the card before the broker started are named, but not stopped."""
    policy = ('[tenant default]\nlease-audit = stop\nlease-required = yes\n'
              'lease-tolerance = 16MiB\n')
    is_root = os.getuid() == 0
    with User(cards, None, 0, is_root) as before, Broker(BROKERD, cards, policy=policy) as broker:
        before.tell('alloc 40')
        await_true('it is spared', lambda: n_lines(broker, before, 'is not stopped'))
        assert not is_root or n_lines(broker, before, 'it started before the broker')
        with User(cards, broker, 0, is_root) as after:
            after.tell('alloc 40')
            assert after.process.wait(PATIENCE_S) == -signal.SIGTERM
        assert before.process.poll() is None


def can_make_cgroups():
    with open('/proc/self/mounts', encoding='utf-8') as file:
        roots = [line.split()[1] for line in file if line.split()[2] == 'cgroup2']
    return (roots and os.access(roots[0], os.W_OK) and os.getuid() == 0 and
            not os.path.exists('/run/systemd/system'))


def without_layer(cards):
    """A program of brokerctl exec has its lease by its cgroup, together with its children."""
    if not can_make_cgroups():
        print('no cgroups can be made here')
        return
    policy = '[tenant default]\nlease-required = yes\nlease-tolerance = 16MiB\n'
    with Broker(BROKERD, cards, policy=policy) as broker:
        prefix = (BROKERCTL, '--socket', broker.socket, 'exec', '--quiet', '--no-layer',
                  '--vram=64MiB', '--')

        def seen():
            text = subprocess.run([BROKERCTL, '--socket', broker.socket, 'leases', '--json'],
                                  check=True, stdout=subprocess.PIPE, timeout=60).stdout
            lease, = [json.loads(line) for line in text.splitlines()]
            return lease['seen_bytes']

        with User(cards, broker, 0, prefix=prefix) as good, User(cards, broker, 0) as offender:
            good.tell('alloc 64')
            offender.tell('alloc 40')
            await_true('who has no lease is named',
                       lambda: n_lines(broker, offender, 'and has no lease of it'))
            await_true('what it uses is seen to be the lease\'s', lambda: seen() == 64 * MIB)
            assert n_lines(broker, good, '') == 0, broker.log()
            good.tell('alloc 40')
            await_true('who uses too much is named', lambda: n_lines(broker, good, 'and lease '))
            assert n_lines(broker, good, f'uses {104 * MIB} bytes of device 1'), broker.log()
            assert n_lines(broker, good, 'has no lease') == 0, broker.log()


def restored(cards):
    """A process that claims less from the next broker than it uses is charged for its usage; a claim
    beyond the tenant's maximum is rejected."""
    policy = '[tenant default]\nvram-max = 256MiB\nlease-tolerance = 16MiB\n'
    with contextlib.ExitStack() as stack:
        with Broker(BROKERD, cards, policy=policy) as broker:
            liar, honest, greedy = (stack.enter_context(User(cards, broker, mib))
                                    for mib in (128, 64, 64))
            liar.tell('alloc 100')
            honest.tell('alloc 40')
        with Broker(BROKERD, cards, policy=policy) as broker:
            honest.tell(f'restore 40 {broker.socket} 0')
            liar.tell(f'restore 10 {broker.socket} 0')
            await_true('it is named', lambda: n_lines(
                broker, liar, f'reconnected with {10 * MIB} bytes of lease'))
            assert n_lines(broker, liar, f'and uses {100 * MIB} bytes of device 1: '
                                         f'it is charged for {100 * MIB}'), broker.log()
            liar.tell('credited 100')
            greedy.tell(f'restore 300 {broker.socket} {errno.EDQUOT}')
            greedy.tell(f'restore 20 {broker.socket} 0')
            # Freed memory is no longer charged, and no process is named twice.
            liar.tell('free')
            liar.tell('credited 10')
            liar.tell('alloc 90')
            liar.tell('credited 90')
            honest.tell('credited 40')
            greedy.tell('credited 20')
            assert n_lines(broker, liar, '') == 1, broker.log()
            assert n_lines(broker, honest, '') == n_lines(broker, greedy, '') == 0, broker.log()


def play():
    with Cards(SIM, 'polaris10,vram=512MiB') as cards:
        # Processes of other users than root write in this folder.
        for folder, _, files in os.walk(cards.folder.name):
            os.chmod(folder, 0o777)
            for name in files:
                path = os.path.join(folder, name)
                if not os.path.islink(path):
                    os.chmod(path, 0o666)
        for scene in (warned, lowered, stopped, handed_over, there_before, restored,
                      without_layer):
            scene(cards)
            print(scene.__name__, flush=True)


if sys.argv[1] == 'user':
    use()
else:
    SIM, BROKERD, LIBRARY, BROKERCTL = sys.argv[1:5]
    play()
