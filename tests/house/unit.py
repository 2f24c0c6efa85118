#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The unit is valid to systemd: without a warning, at most as exposed as agreed, and with access to all
GPUs.

    unit.py SERVICE TMPFILES [FILE...]

TMPFILES: the configuration of systemd-tmpfiles. FILE: sockets that belong to the unit, and drop-ins.
Exit status 77 if systemd-analyze is missing or needs a running systemd.
"""
import fnmatch
import os
import re
import shutil
import subprocess
import sys
import tempfile

MAX_EXPOSURE = 2.0


# Names of the GPU drivers' devices in /proc/devices.
DEVICES = ('drm', 'nvidia', 'nvidia-frontend', 'nvidiactl', 'nvidia-uvm', 'nvidia-modeset')


def analyze(*arguments):
    return subprocess.run(['systemd-analyze', '--no-pager', *arguments], check=False, text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                          env={**os.environ, 'LC_ALL': 'C', 'SYSTEMD_LOG_LEVEL': 'warning'})


def skip(why):
    print(why)
    sys.exit(77)


def exposure(unit, problems):
    """Return systemd's exposure of the unit, from 0 to 10."""
    result = analyze('security', '--offline=true', unit)
    match = re.search(r'Overall exposure level for \S+: ([0-9.]+)', result.stdout)
    if not match:
        problems.append(f'{unit}: {result.stdout}')
        return
    print(f'{os.path.basename(unit)}: exposure {match[1]}')
    if float(match[1]) > MAX_EXPOSURE:
        open_items = [line for line in result.stdout.split('\n') if '\u2717' in line]
        problems.append(f'{unit}: more than {MAX_EXPOSURE}:\n' + '\n'.join(open_items))


def devices(unit, problems):
    """Check that the unit may open every GPU."""
    with open(unit, encoding='utf-8') as file:
        allowed = re.findall(r'^DeviceAllow=char-(\S+) rw$', file.read(), flags=re.MULTILINE)
    for device in DEVICES:
        if not any(fnmatch.fnmatchcase(device, pattern) for pattern in allowed):
            problems.append(f'{unit}: it may not open char-{device}')


def configuration(unit, tmpfiles, problems):
    """Check that only root can write the policy, not the broker's user."""
    with open(unit, encoding='utf-8') as file:
        if re.search(r'^ConfigurationDirectory=', file.read(), flags=re.MULTILINE):
            problems.append(f'{unit}: ConfigurationDirectory= gives a new folder to User=')
    with open(tmpfiles, encoding='utf-8') as file:
        made = [line.split() for line in file if not line.startswith('#')]
    for folder in ('/etc/ringbroker', '/etc/ringbroker/tenants.d'):
        if ['d', folder, '0755', 'root', 'root', '-'] not in made:
            problems.append(f'{tmpfiles}: {folder} is not made, or not as root\'s')
    # Containers mount /run/ringbroker; the administrators' socket is outside of it. brokerd adds to its permissions.
    if ['d', '/run/ringbroker-admin', ':0750', 'ringbroker', 'ringbroker', '-'] not in made:
        problems.append(f'{tmpfiles}: /run/ringbroker-admin is not made, or others may enter it')


def filters(unit, problems):
    """Check that brokerd may filter its threads' calls further, which systemd's groups do not allow."""
    with open(unit, encoding='utf-8') as file:
        calls = re.findall(r'^SystemCallFilter=(?!~)(.*)$', file.read(), flags=re.MULTILINE)
    if 'seccomp' not in ' '.join(calls).split():
        problems.append(f'{unit}: SystemCallFilter= does not allow seccomp')


# Folders of drop-ins, by their section.
DROP_IN_FOLDERS = {'[Service]': 'brokerd.service.d', '[Socket]': 'brokerd-admin.socket.d'}


def drop_in_folder(text):
    return next(folder for section, folder in DROP_IN_FOLDERS.items() if section in text.split('\n'))


def main():
    service, tmpfiles, others = sys.argv[1], sys.argv[2], sys.argv[3:]
    if not shutil.which('systemd-analyze'):
        skip('systemd-analyze is not installed')
    if '--offline' not in analyze('--help').stdout:
        skip('this systemd-analyze needs a systemd that runs')
    problems = []
    with tempfile.TemporaryDirectory() as folder:
        for path in [service, *others]:
            with open(path, encoding='utf-8') as file:
                text = file.read()
            # The program's installed path does not exist on the build machine.
            text = re.sub(r'^(Exec\w+=)\S*/brokerd', r'\1/bin/true', text, flags=re.MULTILINE)
            if path.endswith('.conf'):
                drop_ins = os.path.join(folder, drop_in_folder(text))
                os.makedirs(drop_ins, exist_ok=True)
                copy = os.path.join(drop_ins, os.path.basename(path))
            else:
                copy = os.path.join(folder, os.path.basename(path))
            with open(copy, 'w', encoding='utf-8') as file:
                file.write(text)
        # Drop-ins may raise the exposure, but must be valid.
        for with_drop_ins in (True, False):
            if not with_drop_ins:
                for name in DROP_IN_FOLDERS.values():
                    shutil.rmtree(os.path.join(folder, name), ignore_errors=True)
            units = [os.path.join(folder, name) for name in sorted(os.listdir(folder))
                     if name.endswith(('.service', '.socket'))]
            result = analyze('verify', '--man=no', *units)
            said = [line for line in result.stdout.split('\n') if folder in line or 'brokerd' in line]
            if said:
                problems.append('\n'.join(said))
        exposure(os.path.join(folder, os.path.basename(service)), problems)
        devices(service, problems)
        filters(service, problems)
        configuration(service, tmpfiles, problems)
    print('\n'.join(problems))
    sys.exit(1 if problems else 0)


main()
