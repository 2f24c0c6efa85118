#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokerd --list-devices, over simulated cards, also as doc/operating.md shows it.

    list-devices.py AMDGPU-SIM BROKERD
"""
import json
import os
import pwd
import re
import subprocess
import sys

import simulated

SIM, BROKERD = sys.argv[1:3]
GIB = simulated.GIB


class Cards(simulated.Cards):
    def __init__(self, *cards):
        super().__init__(SIM, *cards)

    def list(self, option, *arguments):
        """Return its standard output and standard error."""
        done = subprocess.run([BROKERD, option, '--cache=none', *arguments], check=True,
                              env=self.environment, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, timeout=120)
        return done.stdout.decode(), done.stderr.decode()

    def devices(self):
        return json.loads(self.list('--list-devices=json')[0])['devices']


def line_of(text, start):
    lines = [line.split() for line in text.splitlines() if line.strip().startswith(start)]
    assert len(lines) == 1, (start, text)
    return lines[0]


def check_rx_580():
    with Cards('polaris10,vram=8GiB') as cards:
        cards.control('set', 'card0', 'temperature=71', 'load=80', 'power=120',
                      'other-vram=1GiB', 'evictions=12', 'mem-load=absent')
        with cards.hog('card0', '--vram', '2GiB', '--gtt', '512MiB') as pid:
            text, _ = cards.list('--list-devices')
    assert 'device 0: CPU' in text
    assert 'device 1: AMD Radeon RX 580 Series (RADV POLARIS10)' in text
    assert line_of(text, 'VRAM')[1:3] == ['8.00', 'GiB'], text
    assert 3.0 <= float(line_of(text, 'VRAM')[5]) < 3.1, text
    assert line_of(text, 'visible VRAM')[2:4] == ['256.0', 'MiB'], text
    assert line_of(text, 'GTT')[1:3] == ['16.00', 'GiB'], text
    assert line_of(text, 'temperature') == ['temperature', '71.0', 'C'], text
    assert line_of(text, 'load') == ['load', '80', '%'], text
    assert line_of(text, 'memory load') == ['memory', 'load', '-'], text
    assert line_of(text, 'power') == ['power', '120.0', 'W'], text
    assert line_of(text, 'evictions') == ['evictions', '12'], text
    row = line_of(text, f'{pid} ')
    assert row[2:] == ['amdgpu-sim', '2.00', 'GiB', '512.0', 'MiB', '-'], text
    assert any(line.split()[2:3] == ['brokerd'] for line in text.splitlines()), text


def check_document():
    """The lines that the document shows are there in this order, but for process ids and sizes below 1 GiB."""
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../doc/operating.md')
    with open(path, encoding='utf-8') as file:
        block = re.search(r'^  ```\n(  device 1: .*?)^  ```$', file.read(), re.MULTILINE | re.DOTALL)[1]
    with Cards('polaris10,vram=8GiB') as cards:
        cards.control('set', 'card0', 'temperature=62', 'load=80')
        with cards.hog('card0', '--vram', '1GiB'):
            text, _ = cards.list('--list-devices')

    def plain(line):
        line = re.sub(r'\d+(\.\d+)? MiB', 'N MiB', line).replace(pwd.getpwuid(os.getuid()).pw_name, 'root')
        return re.sub(r'^ *\d+ (?=root )', 'PID ', line).split()

    lines = iter([plain(line) for line in text.splitlines()])
    for line in block.splitlines():
        assert line.strip() == '...' or plain(line) in lines, (line, text)


def check_apu():
    with Cards('raven') as cards:
        with cards.hog('card0', '--gtt', '1GiB') as pid:
            cpu, apu = cards.devices()
    assert cpu['kind'] == 'cpu' and 'vram' not in cpu
    assert cpu['tiles'] == {} and list(apu['tiles']) == ['MatMul', 'Conv', 'MatMul_float16'], apu['tiles']
    assert list(apu['tiles']['Conv']) == ['large', 'small', 'few_rows', 'few_columns'], apu
    assert apu['tiles']['MatMul']['large'] == '64x128', apu
    assert apu['tiles']['MatMul_float16']['few_rows'] == '16x64', apu
    assert apu['kind'] == 'gpu' and 'RAVEN' in apu['name'], apu
    assert apu['is_integrated'] is True
    for field in ('total', 'usable', 'used', 'own'):
        assert apu['pool'][field] == apu['vram'][field] + apu['gtt'][field], apu
    assert apu['gtt']['used'] >= GIB > apu['gtt']['own'], apu
    process = [p for p in apu['processes'] if p['pid'] == pid]
    assert len(process) == 1 and process[0]['gtt_bytes'] == GIB, apu
    assert process[0]['uid'] == os.getuid() and process[0]['command'] == 'amdgpu-sim'


def check_two_cards():
    with Cards('polaris10,vram=8GiB', 'navi21') as cards:
        cards.control('set', 'card0', 'temperature=40')
        cards.control('set', 'card1', 'temperature=absent', 'load=absent', 'other-vram=3GiB')
        with cards.hog('card1', '--vram', '1GiB') as pid:
            _, one, two = cards.devices()
    if 'POLARIS10' not in one['name']:
        one, two = two, one
    assert 'POLARIS10' in one['name'] and 'NAVI21' in two['name']
    assert one['pci'] != two['pci'] and one['source'] == two['source'] == 'amdgpu'
    assert one['vram']['total'] == 8 * GIB and two['vram']['total'] == 16 * GIB
    assert one['temperature_millicelsius'] == 40000
    # An unknown figure is null, not 0.
    assert two['temperature_millicelsius'] is None and two['load_percent'] is None
    assert one['vram']['used'] < GIB and two['vram']['used'] >= 4 * GIB
    assert pid in [p['pid'] for p in two['processes']]
    assert pid not in [p['pid'] for p in one['processes']]
    names = {p['command'] for p in one['processes']}
    assert names == {'brokerd'}, names


def check_unused_card():
    """A card that exists but is not selected."""
    with Cards('polaris10,vram=8GiB') as cards:
        text, errors = cards.list('--list-devices', '--gpu=none')
        assert 'device 0: CPU' in text and 'device 1' not in text
        assert 'is not used' in errors, errors


def check_any():
    """Real cards are listed if they exist, else software devices, and never both."""
    with Cards('polaris10,vram=8GiB') as cards:
        text, _ = cards.list('--list-devices=json', '--gpu=any', '--calibration=none')
    assert [device['kind'] for device in json.loads(text)['devices']] == ['cpu', 'gpu'], text
    kinds = {}
    for mode in ('auto', 'software', 'any'):
        done = subprocess.run([BROKERD, '--list-devices=json', f'--gpu={mode}', '--calibration=none'],
                              check=True, stdout=subprocess.PIPE, timeout=60)
        kinds[mode] = [device['kind'] for device in json.loads(done.stdout)['devices']]
    assert kinds['any'] == (kinds['auto'] if len(kinds['auto']) > 1 else kinds['software']), kinds


def check_profiles():
    """Profiles are listed for the CPU at least, and only on request."""
    with Cards('polaris10,vram=8GiB') as cards:
        cpu = cards.devices()[0]['profile']
        text, _ = cards.list('--list-devices', '--gpu=none')
        unasked = json.loads(cards.list('--list-devices=json', '--calibration=none')[0])
        plain, _ = cards.list('--list-devices', '--calibration=none')
        watts = json.loads(cards.list('--list-devices=json', '--gpu=none', '--workers=2',
                                      '--cpu-watts=95')[0])['devices'][0]['profile']
    assert cpu['servers'] >= 1 and cpu['link_up_bytes_per_s'] is None, cpu
    assert cpu['matmul_flops_per_s'] > 10**7 and cpu['memory_bytes_per_s'] > 10**7, cpu
    assert cpu['task_ns'] >= 0 and cpu['node_ns'] >= 0, cpu
    assert cpu['active_milliwatts'] is None and watts['active_milliwatts'] == 47500, watts
    line = line_of(text, 'profile')
    assert line[1] == 'matmul' and line[3:5] == ['GFLOP/s,', 'memory'], text
    assert line_of(text, 'link') == ['link', '-'], text
    assert [device['profile'] for device in unasked['devices']] == [None, None], unasked
    assert plain.count('profile              -') == 2, plain


def check_refusal():
    done = subprocess.run([BROKERD, '--list-devices=xml'], check=False, stdout=subprocess.PIPE,
                          stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 2 and done.stdout == b'', done
    assert b'text or json' in done.stderr, done
    with open('/dev/full', 'wb') as full:
        done = subprocess.run([BROKERD, '--list-devices', '--gpu=none'], check=False,
                              stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert done.returncode == 1 and b'cannot write' in done.stderr, done


for check in (check_rx_580, check_document, check_apu, check_two_cards, check_unused_card, check_any,
              check_profiles, check_refusal):
    check()
    print(check.__name__, 'passed', flush=True)
