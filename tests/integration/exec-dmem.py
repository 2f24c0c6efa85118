#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokerctl exec on a kernel that also enforces leases, by its dmem controller.

    exec-dmem.py BROKERCTL BROKERD STATS_CLIENT
    exec-dmem.py hold                                  (the program: takes memory as it is told)

The memory is a simulated region, "lab/vram0" of 256 MiB: a process that writes BYTES to /dev/dmem_lab
holds that many bytes of it. Without such a region, $RBK_TEST_DMEM_KERNEL names a command that runs its
arguments, as root, under a kernel with the region.
"""
import glob
import json
import os
import shutil
import subprocess
import sys
import tempfile

MIB = 1 << 20
REGION = 'lab/vram0'
DEVICE = '/dev/dmem_lab'


def hold():
    device = os.open(DEVICE, os.O_WRONLY)
    print('ready', flush=True)
    for line in sys.stdin:
        try:
            os.write(device, str(int(line) * MIB).encode())
            print('has it', flush=True)
        except OSError as error:
            print(error.strerror, flush=True)


if sys.argv[1] == 'hold':
    hold()
    sys.exit(0)

from ctlrig import CTL, Broker, ctl, expect, objects, wait_for  # pylint: disable=wrong-import-position


def cgroup_root():
    with open('/proc/self/mounts', encoding='utf-8') as file:
        for line in file:
            words = line.split()
            if words[2] == 'cgroup2':
                return words[1]
    return None


def has_region(root):
    # dmem.capacity exists only after the controller was enabled for a cgroup.
    return root and os.path.exists(DEVICE) and (
        'dmem' in read(os.path.join(root, 'cgroup.controllers')).split())


def elsewhere():
    command = os.environ.get('RBK_TEST_DMEM_KERNEL')
    if not command or 'RBK_TEST_IS_ELSEWHERE' in os.environ:
        print(f'skipped: this kernel has no region {REGION} of device memory; '
              '$RBK_TEST_DMEM_KERNEL says how to run a command under one that has')
        sys.exit(77)
    # The build folder may be the only writable one, so it stays untouched.
    with tempfile.TemporaryDirectory() as folder:
        sys.exit(subprocess.run(
            [*command.split(), 'env', 'RBK_TEST_IS_ELSEWHERE=1', sys.executable, '-B',
             *map(os.path.abspath, sys.argv[:1]), *map(os.path.abspath, sys.argv[1:])],
            cwd=folder, check=False).returncode)


def read(path):
    with open(path, encoding='ascii') as file:
        return file.read()


def write(path, text):
    with open(path, 'w', encoding='ascii') as file:
        file.write(text)


def value(cgroup, name):
    found = dict(line.split() for line in read(os.path.join(cgroup, name)).splitlines())
    return found[REGION]


def leases(broker):
    return objects(ctl(broker, 'leases', '--json'))


def is_capped(broker):
    return [lease['capped'] for lease in leases(broker)] == [True]


class Program:
    """brokerctl exec of a program that holds memory. @cgroup: where it starts."""

    def __init__(self, broker, *options, cgroup=None, environment=None):
        self.report, self.errors = tempfile.NamedTemporaryFile(), tempfile.NamedTemporaryFile()

        def enter():
            if cgroup:
                write(os.path.join(cgroup, 'cgroup.procs'), str(os.getpid()))

        self.process = subprocess.Popen(
            [CTL, '--socket', broker.socket, 'exec', '--no-layer', '--verbose',
             f'--report={self.report.name}', *options, '--', sys.executable, '-B',
             os.path.abspath(__file__), 'hold'],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            preexec_fn=enter, env=environment)
        expect(self.process.stdout.readline() == 'ready\n', 'not ready', self.process.poll())

    def take(self, mib):
        self.process.stdin.write(f'{mib}\n')
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()

    def said(self):
        with open(self.errors.name, encoding='utf-8') as file:
            return file.read()

    def end(self):
        """Return standard error and the report."""
        self.process.communicate(timeout=60)
        err = self.said()
        expect(self.process.returncode == 0, self.process.returncode, err)
        with open(self.report.name, encoding='utf-8') as file:
            return err, json.load(file)


def check_limit(broker, root):
    program = Program(broker, '--vram=64MiB', '--max=128MiB', '--min=32MiB')
    cgroup, = glob.glob(os.path.join(root, 'ringbroker-exec-*'))
    expect(value(cgroup, 'dmem.max') == str(128 * MIB), value(cgroup, 'dmem.max'))
    expect(value(cgroup, 'dmem.low') == str(32 * MIB), value(cgroup, 'dmem.low'))
    wait_for(lambda: is_capped(broker), 'not capped')
    expect('capped' in ctl(broker, 'leases'), 'not said')
    expect(program.take(100) == 'has it', 'it is refused what it may have')
    expect(program.take(129) != 'has it', 'it has more than its lease')
    expect(program.take(100) == 'has it', 'it is refused what it may have')

    # The new limit is below the usage. The kernel keeps the old limit, and the broker notices.
    number = str(leases(broker)[0]['lease'])
    ctl(broker, 'lease', number, '--vram=16MiB')
    wait_for(lambda: not is_capped(broker), 'it is capped by what does not hold')
    wait_for(lambda: 'the kernel keeps dmem.max of lab/vram0 at 128 MiB, and not at 16 MiB' in
             program.said(), 'it is not said')
    expect(value(cgroup, 'dmem.max') == str(128 * MIB), value(cgroup, 'dmem.max'))
    expect(program.take(8) == 'has it', 'it is refused what it may have')
    wait_for(lambda: value(cgroup, 'dmem.max') == str(16 * MIB), 'it does not follow')
    wait_for(lambda: is_capped(broker), 'not capped')
    expect(program.take(17) != 'has it', 'it has more than its lease')
    ctl(broker, 'lease', number, '--vram=48MiB')
    wait_for(lambda: value(cgroup, 'dmem.max') == str(48 * MIB), 'it does not follow')

    # A process that lifts the limit gains nothing: the limit is restored.
    write(os.path.join(cgroup, 'dmem.max'), f'{REGION} max\n')
    wait_for(lambda: value(cgroup, 'dmem.max') == str(48 * MIB), 'it is not put back')
    err, report = program.end()
    expect('the kernel holds the program to its lease: dmem.max of lab/vram0 is 128 MiB' in err, err)
    expect('dmem.max of lab/vram0 is 48 MiB' in err, err)
    expect("100 MiB by the kernel's count" in err, err)
    expect(report['capped'] is True and report['kernel_peak_bytes'] == 100 * MIB, report)
    expect(not glob.glob(os.path.join(root, 'ringbroker-exec-*')), 'a cgroup is left')


def check_restart(broker, folder, root):
    """The next broker learns the cgroup, too."""
    program = Program(broker, '--vram=64MiB')
    wait_for(lambda: is_capped(broker), 'not capped')
    broker.stop()
    broker = start(folder)
    wait_for(lambda: is_capped(broker), 'not capped by the next broker')
    program.end()
    expect(not glob.glob(os.path.join(root, 'ringbroker-exec-*')), 'a cgroup is left')
    return broker


def check_below(broker, root):
    """brokerctl moves itself out of a cgroup of its own; with other processes in the cgroup it cannot."""
    given, plain = os.path.join(root, 'given'), os.path.join(root, 'plain')
    for path in (given, plain):
        os.mkdir(path)
    program = Program(broker, '--vram=64MiB', cgroup=given)
    cgroup, = glob.glob(os.path.join(given, f'ringbroker-exec-{program.process.pid}'))
    expect(value(cgroup, 'dmem.max') == str(64 * MIB), value(cgroup, 'dmem.max'))
    wait_for(lambda: is_capped(broker), 'not capped')
    program.end()
    expect(os.listdir(given) == [name for name in os.listdir(given) if '.' in name], 'left')
    expect('dmem' not in read(os.path.join(given, 'cgroup.subtree_control')).split(), 'given still')

    sleeper = subprocess.Popen(['sleep', '1000'])
    write(os.path.join(given, 'cgroup.procs'), str(sleeper.pid))
    program = Program(broker, '--vram=64MiB', cgroup=given)
    expect(not is_capped(broker), 'it cannot be')
    err, report = program.end()
    expect(f'does not hold the program to its lease: {given} has processes beside' in err, err)
    expect(report['capped'] is False and report['kernel_peak_bytes'] is None, report)
    expect('has processes beside brokerctl' in report['cap'], report)
    sleeper.kill()
    sleeper.wait()

    # A cgroup without the controller cannot delegate it.
    nothing = os.path.join(plain, 'nothing')
    os.mkdir(nothing)
    program = Program(broker, '--vram=64MiB', cgroup=nothing)
    err, report = program.end()
    expect(f'{nothing} is not given the dmem controller by the cgroups above it' in err, err)
    for path in (nothing, plain, given):
        os.rmdir(path)


def check_no_region(folder, root):
    broker = start(folder, 'nowhere/vram')
    err, report = Program(broker, '--vram=64MiB').end()
    expect('dmem.max has no number for a region nowhere/vram' in err, err)
    expect(report['capped'] is False, report)
    broker.stop()
    # This broker does not know the address of its device.
    broker = start(folder, None)
    err, report = Program(broker, '--vram=64MiB').end()
    expect('the broker knows no dmem region' in err, err)
    broker.stop()
    expect(not glob.glob(os.path.join(root, 'ringbroker-exec-*')), 'a cgroup is left')


def start(folder, region='lab/vram'):
    options = ['--gpu=software', '--device-memory=256MiB', '--contention=none', '--calibration=none']
    if region:
        options += ['--test-dmem-region', region]
    return Broker(folder, *options)


def main():
    root = cgroup_root()
    if not has_region(root) or not os.access(root, os.W_OK):
        elsewhere()
    with tempfile.TemporaryDirectory() as folder:
        broker = start(folder)
        if len(objects(ctl(broker, 'devices', '--json'))) < 2:
            print('skipped: no software Vulkan device here')
            sys.exit(77)
        check_limit(broker, root)
        check_below(broker, root)
        broker = check_restart(broker, folder, root)
        broker.stop()
        check_no_region(folder, root)
        shutil.rmtree(os.path.join(folder, 'none'), ignore_errors=True)


main()
