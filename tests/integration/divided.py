# SPDX-License-Identifier: MIT
"""Other projects' programs do the same while the layer divides their command buffers.

Arguments as for unmodified.py; the caller names the torture client, the program beside them.
"""
import contextlib
import os
import subprocess

from leaserig import LIMIT_S, MIB, await_true, divided, expect
from unmodified import Ended, environment, run

# Options of brokerctl exec; the last ones for a program beside another one that shares the device, too.
ALONE = {
    'alone': ['--priority=normal'],
    'parts of 500 us': ['--max-part=500us'],
    'parts of 50 us': ['--max-part=50us'],
}
BESIDE = {
    'urgent, beside another': ['--priority=urgent'],
    'background, beside another': ['--priority=background'],
    'background, beside another, parts of 50 us': ['--priority=background', '--max-part=50us'],
}


@contextlib.contextmanager
def another(broker, layers, torture, **more):
    """Run torture-client, of normal priority."""
    whole = environment(layers, RINGBROKER_SOCKET=broker.socket, RINGBROKER_VULKAN_LEASE='1', RINGBROKER_LEASE_VRAM='64MiB',
                        RINGBROKER_LEASE_PRIORITY='normal', **more)
    with open(os.path.join(layers.folder, 'torture'), 'wb') as out, subprocess.Popen(
            [torture, '1', '1000000'], env=whole, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.DEVNULL) as process:
        try:
            await_true('torture-client computes', lambda: os.path.getsize(out.name) > 0 or process.poll() is not None)
            yield
            expect(process.poll() is None, 'torture-client has ended')
        finally:
            process.kill()


def each_mode(broker, layers, torture, vram, command, limit_s=20 * LIMIT_S, **more):
    """Run the program in all modes. Yields the name of each mode, and how the program has ended."""
    more = {**more, 'RINGBROKER_LEASE_LOG': '-', 'limit_s': limit_s}
    for mode, options in ALONE.items():
        yield mode, Ended(broker, layers, vram, command, options, **more)
    beside = {name: value for name, value in more.items() if name.startswith('VK_')}
    for mode, options in BESIDE.items():
        with another(broker, layers, torture, **beside):
            ended = Ended(broker, layers, vram, command, options, **more)
        yield mode, ended


def compare(broker, layers, torture, what, command, vram=256 * MIB, **more):
    """
    Compare what the program prints in each mode with what it prints without the layer. Return: how often
    command buffers were divided.
    """
    plain = run(command, layers, **more)
    expect(plain.returncode == 0, what, plain.returncode, plain.stderr[-2000:])
    n_parts = 0
    for mode, ended in each_mode(broker, layers, torture, vram, command, **more):
        ended.expect_well(what, mode)
        n_mode, n_slices = divided(ended.err)
        print(f'{what}, {mode}: divided {n_mode} times, {n_slices} slices', flush=True)
        expect(ended.out == plain.stdout, what, mode, 'prints', ended.out[-1000:], 'not', plain.stdout[-1000:], 'and says',
               ended.err[-3000:])
        expect(mode != 'alone' or n_mode == 0, what, 'is divided though alone')
        n_parts += n_mode
    return n_parts
