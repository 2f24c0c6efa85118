#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The control program, as a person or a script uses it.

    control.py AMDGPU-SIM
"""
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time

CONTROL = os.path.abspath(sys.argv[1])
n_failed = 0


def check(what, condition):
    global n_failed
    if not condition:
        n_failed += 1
        print(f'failed: {what}')


def run(*words, text='', env=None):
    return subprocess.run([CONTROL, *words], input=text, capture_output=True, text=True,
                          timeout=50, env=env, check=False)


def environment(folder):
    result = run('env', '--dir', folder)
    check('env', result.returncode == 0)
    return {**os.environ, **dict(line.split('=', 1) for line in result.stdout.splitlines())}


def test_run():
    check('status is passed on', run('run', '--', 'sh', '-c', 'exit 7').returncode == 7)
    check('a signal too', run('run', '--', 'sh', '-c', 'kill -9 $$').returncode == 137)
    result = run('run', '--', '/no/such/program')
    check('no program', result.returncode == 127 and '/no/such/program' in result.stderr)
    result = run('run', '--', 'sh', '-c', 'echo $AMDGPU_SIM_DIR; cat')
    folder = result.stdout.strip()
    check('the folder is told', folder.startswith('/'))
    check('the folder is removed', not os.path.exists(folder))
    result = run('run', '--card', 'navi21,vram=12GiB,gtt=1GiB', '--', 'sh', '-c',
                 f'cat /sys/class/drm/card0/device/mem_info_vram_total; {CONTROL} show --json')
    total, shown = result.stdout.split('\n', 1)
    check('vram=', int(total) == 12 << 30)
    check('show --json', json.loads(shown)['card0']['gtt-total'] == 1 << 30)
    # An existing VK_DRIVER_FILES is kept.
    result = run('run', '--', 'sh', '-c', 'echo $VK_DRIVER_FILES $LD_PRELOAD',
                 env={**os.environ, 'VK_DRIVER_FILES': '/x.json'})
    check('VK_DRIVER_FILES is left', result.stdout.startswith('/x.json '))
    check('preloaded', 'libamdgpu-sim.so' in result.stdout)


def test_signal_is_passed_on():
    child = subprocess.Popen([CONTROL, 'run', '--', 'sh', '-c', 'echo $AMDGPU_SIM_DIR; exec cat'],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    folder = child.stdout.readline().strip()
    child.send_signal(signal.SIGTERM)
    check('SIGTERM', child.wait(timeout=50) == 128 + signal.SIGTERM)
    check('removed after SIGTERM', not os.path.exists(folder))
    child.stdin.close()
    child.stdout.close()


def test_wrong_use():
    for words in ([], ['dance'], ['run'], ['run', '--card', 'voodoo2', '--', 'true'],
                  ['run', '--card', 'navi21,vram=0', '--', 'true'],
                  ['run', '--card', 'navi21,vram=1,gtt=x', '--', 'true'],
                  ['run', '--card', 'polaris10,visible=9GiB', '--', 'true'],
                  ['run', '--card', 'polaris10,sound=9', '--', 'true'],
                  ['init'], ['set', 'load=1'], ['hog', '--for', 'ever'], ['run', '--nonsense']):
        result = run(*words, env={key: value for key, value in os.environ.items()
                                  if key != 'AMDGPU_SIM_DIR'})
        check(f'{words}: status', result.returncode == 2)
        check(f'{words}: one line', len(result.stderr.splitlines()) == 1)
    result = run('show', '--dir', '/no/such/folder')
    check('no folder', result.returncode == 1 and '/no/such/folder' in result.stderr)


def test_help():
    text = run('--help').stdout
    for word in ('run', 'init', 'env', 'chips', 'show', 'set', 'reset', 'unplug', 'plug', 'suspend',
                 'resume', 'fail', 'hog', 'other-vram', 'temperature', 'spill', 'udmabuf',
                 'GEM_CREATE', 'SENSOR_GPU_TEMP', 'INFO_MEMORY'):
        check(f'--help has {word}', re.search(rf'\b{word}\b', text))
    chips = run('chips').stdout
    check('chips', all(chip in chips for chip in ('polaris10', 'vega10', 'navi21', 'navi31',
                                                  'raven', 'renoir')))


def test_folder():
    with tempfile.TemporaryDirectory() as base:
        folder = os.path.join(base, 'cards')
        check('init', run('init', '--dir', folder, '--card', 'polaris10').returncode == 0)
        env = environment(folder)
        with open(os.path.join(folder, 'state'), 'rb') as state:
            size = os.fstat(state.fileno())
            check('state is sparse', size.st_blocks * 512 < 1 << 20)
        hog = subprocess.Popen([CONTROL, 'hog', '--dir', folder, '--vram', '3GiB'],
                               stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        check('hog', hog.stdout.readline() == 'ready\n')
        card = json.loads(run('show', '--dir', folder, '--json').stdout)['card0']
        check('hog is shown', card['vram-used'] == 3 << 30 and
              card['clients'][0]['pid'] == hog.pid)
        # Any program sees the client in fdinfo. The hog's memory is untouched, so it costs almost nothing.
        code = ('import glob\nfor path in glob.glob("/proc/%d/fdinfo/*"):\n'
                ' print(open(path).read())' % hog.pid)
        text = subprocess.run([sys.executable, '-c', code], env=env, capture_output=True,
                              text=True, timeout=50, check=True).stdout
        check('fdinfo', 'drm-memory-vram:\t3145728 KiB' in text)
        used = sum(os.lstat(os.path.join(at, name)).st_blocks * 512
                   for at, _, names in os.walk(folder) for name in names)
        check('buffers are sparse', used < 8 << 20)
        hog.stdin.close()
        check('hog ends with its input', hog.wait(timeout=50) == 0)
        hog.stdout.close()
        card = json.loads(run('show', '--dir', folder, '--json').stdout)['card0']
        check('all is free', card['vram-used'] == 0 and not card['clients'])
        check('files of buffers are gone', not os.listdir(os.path.join(folder, 'card0-bo')))


def test_others_are_left_alone():
    begin = time.monotonic()
    result = run('run', '--', sys.executable, '-c',
                 'import os, mmap, tempfile\n'
                 'with tempfile.TemporaryFile() as f:\n'
                 '    f.write(b"x" * 8192); f.flush()\n'
                 '    m = mmap.mmap(f.fileno(), 8192); m[4096] = 65\n'
                 '    f.seek(0, 2); assert f.tell() == 8192\n'
                 'assert os.listdir("/proc/self/fd") and os.stat("/").st_ino\n'
                 'print(sorted(os.listdir("/dev/dri")))')
    check('an ordinary program', result.returncode == 0 and
          result.stdout == "['card0', 'renderD128']\n")
    check('nothing hangs', time.monotonic() - begin < 40)


for test in (test_run, test_signal_is_passed_on, test_wrong_use, test_help, test_folder,
             test_others_are_left_alone):
    test()
print(f'{n_failed} failed')
sys.exit(1 if n_failed else 0)
