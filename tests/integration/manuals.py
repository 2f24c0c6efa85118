#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Manual pages of programs: each option and key is described and exists, and each example runs.

    manuals.py DOC_DIR POLICY_KEYS_H SCENARIO_KEY_C SCENARIO MANIFEST BROKERD STATS_CLIENT PROGRAM...

POLICY_KEYS_H has the keys of a tenant, SCENARIO_KEY_C those of brokersim's scenarios. MANIFEST is the
Vulkan layer's, or empty. The test runs the examples as they are written, over a broker with the
tenants, the plan and the tasks that they mention. It ends examples that would run forever, which must
have printed output.
"""
import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import onnxfile as onnx
from completions import help_of, options_of
from started import start, start_broker

DOC, POLICY_KEYS, SCENARIO_KEYS, SCENARIO, MANIFEST, BROKERD, CLIENT, *PROGRAMS = [
    path and os.path.abspath(path) for path in sys.argv[1:]]
LIMIT = 120 * int(os.environ.get('RBK_TEST_SLOW', '1'))
SECTIONS = {'brokerd': '8'}
# Commands that run until they are ended, or for longer than a test may take.
ENDLESS = re.compile(r'watch|--follow|brokersim --all|brokertop (?!.*--(?:json|once|record))')
problems = []


def expect(condition, *what):
    if not condition:
        problems.append(' '.join(map(str, what)))


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def page_of(name):
    return read(os.path.join(DOC, f'{name}.{SECTIONS.get(name, "1")}'))


def check_options(program):
    """Options and page agree in both directions; completions.py checks the options of brokerctl's commands."""
    name = os.path.basename(program)
    text = page_of(name)
    described = {'--' + option for item in items_of(text, 'Fl') for option in re.findall(r' -([a-z][a-z-]+)', ' ' + item)}
    named = {'--' + option for line in re.findall(r'^\..*\bFl .*$', text, re.MULTILINE)
             for option in re.findall(r'(?<= )-([a-z][a-z-]+)', line)}
    offered = options_of(help_of(program))
    expect(len(offered) > 3, name, 'offers few options')
    for option in sorted(offered - described):
        expect(False, f'{name} has {option}, of which its page says nothing')
    if name != 'brokerctl':
        for option in sorted(named - set(re.findall(r'--[a-z][a-z-]*', help_of(program)))):
            expect(False, f"{name}'s page has {option}, of which its --help says nothing")


def items_of(text, macro):
    """Return the described items: .It Cm KEY , KEY , Xo and so on."""
    return re.findall(rf'^\.It {macro} ((?:.*Xo\n(?:\.[A-Z].*\n|[^.].*\n)*?\.Xc)|.*)$', text, re.MULTILINE)


def check_keys():
    explained = {word for item in items_of(read(os.path.join(DOC, 'brokerd.conf.5')), 'Cm')
                 for word in re.findall(r'\b[a-z][a-z-]+\b', item)}
    keys = set(re.findall(r'KEY\(\w+, "([a-z-]+)"', read(POLICY_KEYS)))
    expect(len(keys) > 15, 'few keys in', POLICY_KEYS)
    takes_value = set(re.findall(r'^  (?:.*, )?--([a-z-]+) (?=[A-Za-z])', help_of(BROKERD), re.MULTILINE))
    expect(len(takes_value) > 15, 'few options of brokerd take a value:', takes_value)
    keys |= {key for key in takes_value if key != 'config' and not key.startswith('test-')}
    for key in sorted(keys - explained):
        expect(False, f'brokerd.conf(5) does not explain {key}')


def check_scenario_keys():
    """Each key is described in the section of brokersim(1) for its section."""
    sections = dict(re.findall(r'^\.Ss SECTION \[(\w+).*\n((?:(?!\.S[sh]).*\n)*)', page_of('brokersim'), re.MULTILINE))
    keys = re.findall(r'\b(?:KEY|READ)\(([A-Z]+), "([a-z-]+)"', read(SCENARIO_KEYS))
    expect(len(keys) > 50, 'few keys in', SCENARIO_KEYS)
    for section, key in keys:
        words = ' '.join(re.findall(r'^\.(?:It )?Cm (.*)$', sections.get(section.lower(), ''), re.MULTILINE))
        expect(key in re.findall(r'[a-z-]+', words), f'brokersim(1) does not explain {key} of [{section.lower()}]')


def examples_of(name):
    text = page_of(name)
    part = text[text.index('.Sh EXAMPLES'):]
    part = part[:part.index('\n.Sh', 5)]
    return [line.replace('\\(dq', '"').removeprefix('$ ')
            for line in re.findall(r'^\.Dl (.*)$', part, re.MULTILINE)]


def run_ended(command, environment):
    """Run the command in a terminal until it has printed output, and for a moment longer."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe('bash', ['bash', '-c', 'exec ' + command if '|' not in command else command], environment)
    said, end = b'', time.monotonic() + LIMIT
    quiet_ok = '--follow' in command  # true if the command may print nothing, because nothing happened
    while time.monotonic() < end and not said:
        if select.select([terminal], [], [], 1)[0]:
            said += os.read(terminal, 65536)
        elif quiet_ok:
            break
    has_ended, status = os.waitpid(pid, os.WNOHANG)
    expect(has_ended == 0, command, 'ended with', status, said.decode(errors='replace'))
    expect(said or quiet_ok, command, 'says nothing')
    if not has_ended:
        os.killpg(pid, signal.SIGTERM)
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
    os.close(terminal)


def run_example(command, environment):
    if ENDLESS.search(command):
        run_ended(command, environment)
        return
    # No software device has as much memory as the example's card.
    command = command.replace('GiB', 'MiB') if ' exec ' in command else command
    result = subprocess.run(['bash', '-c', command], env=environment, stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT, check=False)
    expect(result.returncode == 0, command, 'ended with', result.returncode, result.stdout.decode(errors='replace'))


def write_files(folder):
    """Write the files that examples name, and the programs that they run."""
    nodes = [onnx.node('MatMul', ['x', 'w'], ['y'])]
    weights = onnx.tensor('w', onnx.FLOAT, [2, 2], [1, 2, 3, 4])
    dims = ['N', 2]
    onnx.write(folder + '/resnet.onnx', onnx.model(nodes, [('x', onnx.FLOAT, dims)], [('y', onnx.FLOAT, dims)],
                                                   [weights]))
    onnx.npy(folder + '/images.npy', onnx.FLOAT, [1, 2], [1, 1])
    onnx.npy(folder + '/logits.npy', onnx.FLOAT, [1, 2], [4, 6])
    shutil.copy(SCENARIO, folder)
    os.mkdir(folder + '/bin')
    for program in PROGRAMS:
        os.symlink(program, f'{folder}/bin/{os.path.basename(program)}')
    with open(folder + '/bin/llama-server', 'w', encoding='ascii') as file:
        file.write('#!/bin/sh\nexit 0\n')
    os.chmod(folder + '/bin/llama-server', 0o755)
    with open(folder + '/conf', 'w', encoding='ascii') as file:
        file.write(f'[tenant vision]\nmatch-uid = {os.getuid()}\n[tenant web]\nmatch-uid = 4242\n'
                   '[tenant batch]\nmatch-uid = 4243\n')
    if MANIFEST:
        layers = folder + '/share/vulkan/implicit_layer.d'
        os.makedirs(layers)
        shutil.copy(MANIFEST, layers)


def check_examples(folder):
    write_files(folder)
    os.chdir(folder)
    socket = folder + '/sock'
    environment = {**os.environ, 'PATH': f'{folder}/bin:{os.environ["PATH"]}', 'RINGBROKER_SOCKET': socket,
                   'XDG_DATA_DIRS': f'{folder}/share:/usr/share', 'TERM': 'xterm-256color', 'LC_ALL': 'C.UTF-8'}
    broker = start_broker([BROKERD, '--socket', socket, '--cache', folder, '--config', folder + '/conf',
                           '--gpu=software', '--device-memory=8GiB', '--calibration=none', '--contention=none'],
                          'log', LIMIT)
    has_gpu = 'llvmpipe' in read('log')
    client = start([CLIENT, socket, 'resnet'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    client.stdin.write('0 60\n')
    client.stdin.flush()
    expect(client.stdout.readline() == 'ok\n', 'the client failed')
    n_run = 0
    for program in PROGRAMS:
        name = os.path.basename(program)
        if name == 'brokerd':
            continue
        examples = examples_of(name)
        expect(examples, name, 'has no examples')
        for command in examples:
            if ('| jq' in command and not shutil.which('jq')) or (
                    not has_gpu and any(word in command for word in ('exec', 'device'))) or (
                        not MANIFEST and 'exec' in command):
                print('not run here:', command)
                continue
            run_example(command, environment)
            n_run += 1
            if 'drain device' in command:
                run_example(command.split('--wait')[0] + '--end', environment)
    print(n_run, 'examples run')
    client.stdin.close()
    client.wait(LIMIT)
    broker.send_signal(signal.SIGTERM)
    broker.wait(LIMIT)


def main():
    for program in {BROKERD, *PROGRAMS}:
        check_options(program)
    check_keys()
    check_scenario_keys()
    with tempfile.TemporaryDirectory(prefix='manuals-', dir='/tmp') as folder:
        check_examples(folder)
    for problem in problems:
        print('manuals.py:', problem)
    return 1 if problems else 0


sys.exit(main())
