#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Ways round the layer, as ringbroker-leases(7) lists them: each program gets more than its lease, on
AMD's drivers over a simulated card, and brokerd names it by the kernel's account.

    lease-bypass.py AMDGPU_SIM BROKERD BROKERCTL LEASE_CLIENT MANIFEST HIDE_LEASE [TEST...]
    lease-bypass.py gl | va      (a program that uses the card by another interface)
"""
import contextlib
import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile

from fakebroker import HELLO, LEASE_CREDIT, LEASE_OPEN, FakeBroker, give_all, opened, page, welcome
from simulated import MIB, Broker, Cards, await_true

NOTHING = 'skipped: '
POLICY = '[tenant default]\nlease-required = yes\nlease-tolerance = 16MiB\n'


class Leased:
    """@program, run by brokerctl exec in a lease of 64 MiB; @how bypasses the lease by options and
    assignments of env(1)."""

    def __init__(self, broker, layers, how, program):
        environment = {**CARDS.environment, 'XDG_DATA_DIRS': f'{layers}/share:/usr/share'}
        for name in list(environment):
            if name.startswith('RINGBROKER_'):
                del environment[name]
        # The program does not free everything before it ends, and LD_PRELOAD puts a library before the
        # sanitizer's.
        environment['ASAN_OPTIONS'] = environment.get('ASAN_OPTIONS', '') + ':detect_leaks=0'
        self.process = subprocess.Popen(
            [CTL, '--socket', broker.socket, 'exec', '--vram=64MiB', '--', 'env', *how, *program],
            env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.pid = self.number('pid', 'n')

    def ask(self, command):
        self.process.stdin.write(command + '\n')
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        assert line, ('it ended', command, self.process.wait())
        return line.rstrip('\n')

    def number(self, command, name):
        answer = self.ask(command)
        found = re.search(rf'\b{name}=(-?\d+)', answer)
        assert found, (command, answer)
        return int(found.group(1))

    def __enter__(self):
        return self

    def __exit__(self, *error):
        if error[0]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)
        self.process.stdin.close()
        self.process.wait(90)
        self.process.stdout.close()


@contextlib.contextmanager
def running(how, policy=POLICY, program=None):
    """Start a broker, and a program in a lease."""
    with tempfile.TemporaryDirectory(prefix='rbk-bypass-') as layers, \
            Broker(BROKERD, CARDS, policy=policy) as broker:
        folder = os.path.join(layers, 'share/vulkan/implicit_layer.d')
        os.makedirs(folder)
        shutil.copy(MANIFEST, os.path.join(folder, 'ringbroker_lease.json'))
        how = how(layers) if callable(how) else how
        with Leased(broker, layers, how, program or [CLIENT]) as leased:
            yield broker, leased


def named(broker, leased, text=''):
    return any(f'process {leased.pid} ' in line and text in line
               for line in broker.log().splitlines())


def expect_not_named(broker, leased):
    """Expect that the audit does not name the program, although it names another process meanwhile."""
    with CARDS.hog('card0', '--vram', '100MiB') as pid:
        await_true('the other is named', lambda: f'process {pid} ' in broker.log())
    assert not named(broker, leased), broker.log()


def expect_named(broker, leased):
    """Expect that brokerd names the program, which has more than 100 MiB by the kernel's account. If
    the program has a cgroup, the broker knows its lease by the cgroup."""
    vram, _ = CARDS.held(leased.pid)
    assert vram >= 100 * MIB, vram
    with open(f'/proc/{leased.pid}/cgroup', encoding='utf-8') as file:
        is_known = '/ringbroker-exec-' in file.read()
    await_true('it is named', lambda: named(
        broker, leased, 'and lease ' if is_known else 'and has no lease of it'))


def goes_round(*how):
    with running(*how) as (broker, leased):
        assert leased.number('device', 'result') == 0
        assert leased.ask(f'alloc {25 * MIB} 4') == 'alloc: n=4 result=0'
        expect_named(broker, leased)


def test_no_bypass():
    """The unmodified program is held to its lease, and is not named."""
    with running([]) as (broker, leased):
        assert leased.number('device', 'result') == 0
        assert leased.ask(f'alloc {25 * MIB} 4') == 'alloc: n=2 result=-2'
        expect_not_named(broker, leased)


def test_unset():
    goes_round(['-u', 'RINGBROKER_VULKAN_LEASE'])


def test_disabled():
    goes_round(['RINGBROKER_VULKAN_LEASE_DISABLE=1'])


def test_disabled_by_loader():
    goes_round(['VK_LOADER_LAYERS_DISABLE=~implicit~'])


def test_other_folders():
    goes_round(lambda folder: [f'XDG_DATA_DIRS={folder}/none', f'XDG_CONFIG_DIRS={folder}/none',
                               f'HOME={folder}'])


def test_no_loader():
    driver = '/usr/lib/x86_64-linux-gnu/libvulkan_radeon.so'
    if not os.path.exists(driver):
        return NOTHING + 'no ' + driver
    return goes_round([f'LEASE_CLIENT_DRIVER={driver}'])


def test_preloaded():
    """A program may change the layer, or the layer's input, in its own process."""
    preload = CARDS.environment['LD_PRELOAD']
    goes_round([f'LD_PRELOAD={preload}:{HIDE_LEASE}'])


def test_own_broker():
    """The layer trusts its broker; the card's broker does not know the process."""
    answers = {HELLO: welcome(), LEASE_CREDIT: give_all,
               LEASE_OPEN: lambda _: opened(page(*[256 * MIB] * 3), granted=256 * MIB,
                                            max_bytes=256 * MIB)}
    with tempfile.TemporaryDirectory(prefix='rbk-bypass-') as folder, \
            FakeBroker(folder, answers) as fake:
        goes_round([f'RINGBROKER_SOCKET={fake.path}'])
        assert LEASE_CREDIT in fake.seen


def test_own_lease():
    """A program can open a larger lease than brokerctl's, within its tenant's limits."""
    policy = POLICY + 'vram-max = 128MiB\n'
    with running(['-u', 'RINGBROKER_LEASE', 'RINGBROKER_LEASE_VRAM=1GiB'], policy) as (_, leased):
        assert leased.number('device', 'result') == 0
        assert leased.ask(f'alloc {4 * MIB} 100') == 'alloc: n=15 result=-2'


def test_usage_below_tolerance():
    """Usage below the tolerance is not reported, as the manual says."""
    with running(['-u', 'RINGBROKER_VULKAN_LEASE']) as (broker, leased):
        assert leased.number('device', 'result') == 0
        leased.ask(f'alloc {8 * MIB}')
        assert CARDS.held(leased.pid)[0] >= 8 * MIB
        expect_not_named(broker, leased)


def other_interface(name):
    # Addresses decide whether Mesa 22.3.6 makes pictures, so setarch -R fixes them.
    program = ['setarch', '-R', sys.executable, '-B', os.path.abspath(__file__), name]
    with running([], program=program) as (broker, leased):
        answer = leased.ask('use')
        if answer.startswith(NOTHING):
            return answer
        with open(f'/proc/{leased.pid}/maps', encoding='utf-8') as maps:
            assert 'ringbroker_lease' not in maps.read(), 'there is a layer'
        expect_named(broker, leased)
    return None


def test_gl():
    return other_interface('gl')


def test_va():
    return other_interface('va')


# ---- Programs that use other interfaces ----------------------------------------------------

def function(library, name, result, *arguments):
    found = getattr(library, name)
    found.restype, found.argtypes = result, arguments
    return found


HANDLE, INT, UNSIGNED = ctypes.c_void_p, ctypes.c_int, ctypes.c_uint


def use_gl(card):
    """Allocate OpenGL ES buffers, without a window."""
    gbm, egl = ctypes.CDLL('libgbm.so.1'), ctypes.CDLL('libEGL.so.1')
    gl = ctypes.CDLL('libGLESv2.so.2')
    platform_gbm, context_version, es_api, none = 0x31D7, 0x3098, 0x30A0, 0x3038
    array_buffer, static_draw = 0x8892, 0x88E4
    display = function(egl, 'eglGetPlatformDisplay', HANDLE, UNSIGNED, HANDLE, HANDLE)(
        platform_gbm, function(gbm, 'gbm_create_device', HANDLE, INT)(card), None)
    if not function(egl, 'eglInitialize', UNSIGNED, HANDLE, HANDLE, HANDLE)(display, None, None):
        raise OSError('EGL has no driver for the card')
    egl.eglBindAPI(es_api)
    context = function(egl, 'eglCreateContext', HANDLE, HANDLE, HANDLE, HANDLE, HANDLE)(
        display, None, None, (INT * 3)(context_version, 2, none))
    make_current = function(egl, 'eglMakeCurrent', UNSIGNED, HANDLE, HANDLE, HANDLE, HANDLE)
    assert make_current(display, None, None, context)
    fill = function(gl, 'glBufferData', None, UNSIGNED, ctypes.c_ssize_t, HANDLE, UNSIGNED)
    for _ in range(4):
        name = UNSIGNED()
        gl.glGenBuffers(1, ctypes.byref(name))
        gl.glBindBuffer(array_buffer, name)
        fill(array_buffer, 25 * MIB, None, static_draw)
        assert gl.glGetError() == 0


def use_va(card):
    """Allocate video pictures of 4096 by 2160."""
    va, drm = ctypes.CDLL('libva.so.2'), ctypes.CDLL('libva-drm.so.2')
    yuv420 = 1
    display = function(drm, 'vaGetDisplayDRM', HANDLE, INT)(card)
    version = INT()
    if function(va, 'vaInitialize', INT, HANDLE, HANDLE, HANDLE)(
            display, ctypes.byref(version), ctypes.byref(version)):
        raise OSError('VA-API has no driver for the card')
    surfaces = (UNSIGNED * 8)()
    create = function(va, 'vaCreateSurfaces', INT, HANDLE, UNSIGNED, UNSIGNED, UNSIGNED, HANDLE,
                      UNSIGNED, HANDLE, UNSIGNED)
    if create(display, yuv420, 4096, 2160, surfaces, len(surfaces), None, 0):
        raise OSError('the driver for VA-API makes no pictures')


def be_program(use):
    print(f'pid: n={os.getpid()}', flush=True)
    sys.stdin.readline()
    for _ in sys.stdin:
        try:
            use(os.open('/dev/dri/renderD128', os.O_RDWR))
            print('done', flush=True)
        except OSError as error:
            print(NOTHING + str(error), flush=True)
    os._exit(0)


TESTS = [test_no_bypass, test_unset, test_disabled, test_disabled_by_loader, test_other_folders,
         test_no_loader, test_preloaded, test_own_broker, test_own_lease, test_usage_below_tolerance,
         test_gl, test_va]

if sys.argv[1] in ('gl', 'va'):
    be_program(use_gl if sys.argv[1] == 'gl' else use_va)
else:
    SIM, BROKERD, CTL, CLIENT, MANIFEST, HIDE_LEASE = sys.argv[1:7]
    with Cards(SIM, 'polaris10,vram=4GiB') as CARDS:
        for test in TESTS:
            if sys.argv[7:] and test.__name__ not in sys.argv[7:]:
                continue
            print(test.__name__, test() or 'ok', flush=True)
