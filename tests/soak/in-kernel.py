#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs tests under other Linux kernels than this machine's, in QEMU without KVM.

    in-kernel.py PROGRAM...

Each kernel is booted with an initramfs that holds busybox, the programs and the libraries that
they are linked with, and nothing else; root runs them there one after the other, with two
processors, in an empty directory of /tmp. What they print is printed here.

$RBK_TEST_KERNELS names the kernels, separated by colons: images, or folders that packages were
unpacked into (dpkg -x). Without it those of /boot are taken. Which ones they were is said, so
that nobody believes that the wrong one was tried.

Exit status: 0, all programs ended with 0 under every kernel, or with 77 (skipped), but not all of
them; 77, nothing could be tried, and why is said; 1 otherwise.
"""
import glob
import gzip
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time

# An emulated boot takes 5 seconds, and programs run about twenty times slower.
LIMIT_S = 600
SKIP = 77

INIT = '''#!/bin/busybox sh
/bin/busybox mkdir -p /proc /sys /dev /tmp /run
/bin/busybox mount -t proc proc /proc
/bin/busybox mount -t sysfs sysfs /sys
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox mkdir -p /dev/shm
/bin/busybox mount -t tmpfs tmp /dev/shm
/bin/busybox mount -t tmpfs tmp /tmp
/bin/busybox mount -t tmpfs run /run
/bin/busybox mount -t cgroup2 cgroup /sys/fs/cgroup
/bin/busybox mount -t tracefs trace /sys/kernel/tracing
/bin/busybox --install -s /bin
export PATH=/bin HOME=/tmp TMPDIR=/tmp LD_LIBRARY_PATH=/lib RBK_TEST_SLOW=20 RBK_TEST_SCALE=20
cd /tmp
echo "begins: $(uname -r)"
COMMANDS
echo "all have ended"
poweroff -f
'''


def skip(why):
    print(f'skipped: {why}')
    sys.exit(SKIP)


def find_kernels():
    named = os.environ.get('RBK_TEST_KERNELS')
    found = []
    for place in (named or '/boot').split(':'):
        if os.path.isfile(place):
            found.append(place)
            continue
        for pattern in ('vmlinuz-*', 'boot/vmlinuz-*', '*/boot/vmlinuz-*'):
            found += sorted(glob.glob(os.path.join(glob.escape(place), pattern)))
    if not found:
        skip(f'no kernel in {named or "/boot"}: $RBK_TEST_KERNELS says where they are')
    return found


def libraries_of(program):
    """Return the program's libraries, by the paths that it requests."""
    text = subprocess.run(['ldd', program], stdout=subprocess.PIPE, text=True, check=True).stdout
    if 'not found' in text:
        sys.exit(f'in-kernel.py: {program} lacks a library:\n{text}')
    return re.findall(r'(/\S+) \(0x', text)


def put(source, path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path):
        shutil.copy(source, path)


def make_initramfs(folder, programs):
    """Return the path of the archive."""
    root = os.path.join(folder, 'root')
    commands = []
    put('/bin/busybox', os.path.join(root, 'bin/busybox'))
    for program in programs:
        name = os.path.basename(program)
        put(program, os.path.join(root, 'programs', name))
        commands.append(f"echo '-- {name}'; /programs/{name}; echo \"ended with status $?\"")
        for library in libraries_of(program):
            # The loader is requested by its path, all other libraries by their names.
            put(library, root + library)
            put(library, os.path.join(root, 'lib', os.path.basename(library)))
    with open(os.path.join(root, 'init'), 'w', encoding='utf-8') as file:
        file.write(INIT.replace('COMMANDS', '\n'.join(commands)))
    os.chmod(os.path.join(root, 'init'), 0o755)

    names = '\n'.join(os.path.relpath(os.path.join(path, name), root)
                      for path, folders, files in os.walk(root) for name in folders + files)
    archive = subprocess.run(['/bin/busybox', 'cpio', '-o', '-H', 'newc'], cwd=root,
                             input=names.encode(), stdout=subprocess.PIPE,
                             stderr=subprocess.DEVNULL, check=True).stdout
    path = os.path.join(folder, 'initramfs')
    with gzip.open(path, 'wb', compresslevel=1) as file:
        file.write(archive)
    return path


def run(kernel, initramfs):
    """Return the programs' exit statuses; the last one is None if not all programs ended."""
    print(f'== {kernel}', flush=True)
    # The two processors are emulated one at a time: side by side, one may execute an instruction that the
    # kernel has just patched on the other ("Oops: int3" where tracepoints begin).
    command = ['timeout', '-s', 'KILL', str(LIMIT_S), 'qemu-system-x86_64',
               '-accel', 'tcg,thread=single', '-cpu', 'max', '-smp', '2', '-m', '1024',
               '-nodefaults', '-no-reboot', '-display', 'none', '-serial', 'stdio',
               '-kernel', kernel, '-initrd', initramfs,
               '-append', 'console=ttyS0 quiet panic=-1 mitigations=off']
    statuses, has_begun, has_ended = [], False, False
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, errors='replace') as process:
        for line in process.stdout:
            line = line.rstrip('\r\n')
            match = re.fullmatch(r'ended with status (\d+)', line)
            if match:
                statuses.append(int(match.group(1)))
            has_begun = has_begun or line.startswith('begins: ')
            has_ended = has_ended or line == 'all have ended'
            # The firmware's output with its terminal escapes is left out.
            if has_begun and not has_ended:
                print(line, flush=True)
    return statuses if has_ended else statuses + [None]


def main():
    arguments = sys.argv[1:]
    if not arguments:
        sys.exit(__doc__)
    if not shutil.which('qemu-system-x86_64'):
        skip('qemu-system-x86_64 is missing (Debian: qemu-system-x86)')
    if not os.access('/bin/busybox', os.X_OK) or libraries_of_busybox():
        skip('/bin/busybox is missing or needs libraries (Debian: busybox-static)')
    kernels = find_kernels()
    statuses = []
    with tempfile.TemporaryDirectory(prefix='in-kernel-') as folder:
        initramfs = make_initramfs(folder, arguments)
        for kernel in kernels:
            begin = time.monotonic()
            ended = run(kernel, initramfs)
            print(f'== {os.path.basename(kernel)}: '
                  f'{"did not end" if None in ended else "ended"}, '
                  f'{time.monotonic() - begin:.0f} s')
            statuses += ended
    if all(status == SKIP for status in statuses):
        skip('by the tests themselves, under every kernel')
    sys.exit(0 if all(status in (0, SKIP) for status in statuses) else 1)


def libraries_of_busybox():
    result = subprocess.run(['ldd', '/bin/busybox'], stdout=subprocess.PIPE,
                            stderr=subprocess.DEVNULL, text=True, check=False)
    return '=>' in result.stdout


main()
