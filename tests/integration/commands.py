# SPDX-License-Identifier: MIT
"""The commands in the documents: find them, and run each that can run in a test.

A command is a line of a block without a language, of an indented block, or of a literal display of a manual page,
whose first word is a program; and each `PROGRAM ARGUMENT` within a text, whose program is ours or in OTHERS. Outputs
and listings have other first words. Every command is run, unless a pattern of NOT_RUN matches the whole of it; each
pattern there must match a command. Of those that are not run, names of tests and paths of files are checked.
Manuals' sections EXAMPLES of programs are run by manuals.py.
"""
import glob
import json
import os
import re
import shutil
import subprocess

import onnxfile as onnx

from started import LIMIT, expect, start

# Patterns of commands that a test does not run, by the reason.
NOT_RUN = {
    'it builds, or runs tests or measurements, for minutes': (
        r'tools/(demo|test|package|install-deps)( .*)?', r'\.ci/run', r'meson (setup|install).*',
        r'CC=clang meson setup .*', r'ninja .*', r'build-fuzz/tests/fuzz/fuzz-plan .*', r'gcovr .*',
        r'python3 tests/fuzz/long\.py .*',
        r'build/tools/brokerbench( .*)?', r'brokerbench .*', r'(\S*/)?brokersim --all --check',
        r'build/tests/attack/attack (verify|all|entries|messages).*',
        r'build/tests/integration/(test-probes-\S+|run-queue-culprits)( .*)?', r'tests/soak/.*',
        r'build/tests/integration/test-kill soak',
        r'RBK_TEST_\S+=\S+ tests/soak/.*', r'python3 tests/models/spin\.py .*', r'build/tests/simulator/(faultsim .*|decisions)',
        r'tests/simulator/mutants\.py .*', r'tests/nth/nth\.py .*'),
    'it writes into the source tree': (
        r'build/tests/unit/test-metrics-page --write', r'python3 \S+ (--update|--write) .*', r'git ls-files .*',
        r'git diff tests/unit/data', r'.* \| python3 doc/operators\.py --update .*'),
    'it stops brokerd in a debugger': (
        r'gdb .*', r'FAULTSIM_ABORT=1 gdb .*'),
    "it restarts the broker, which other commands ask about the past; brokerctl.py runs it": (
        r'brokerctl restart( .*)?',),
    'no program has a lease; lease-slices.py runs it': (
        r'brokerctl why lease NAME',),
    'it requires systemd': (
        r'systemctl .*', r'journalctl .*', r'coredumpctl .*', r'systemd-run .*', r'systemd-analyze .*'),
    'it changes this machine, or requires root': (
        r'apt .*', r'apt-get .*', r'adduser .*', r'ldconfig', r'sysctl .*', r'ulimit .*', r'bpftool .*',
        r'echo \+dmem .*', r'(\S*/)?brokerctl (--socket \S+ )?gate on.*',
        r'ls ~/\.cache/.*', r'dpkg -x .*', r'rm -r /sys/fs/bpf/try'),
    'it requires an image of a container': (
        r'podman .*',),
    'it is a test that runs for seconds without an argument that shortens it': (
        r'build/tests/models/test-weak-memory',),
    'the tutorial is run by documents.py': (
        r'mkdir first-service', r'cd first-service', r'export .*', r'kill %1', r'cc tutorial-\d\.c .*', r'\./tutorial-\d'),
}
NOT_RUN = {re.compile(pattern): reason for reason, patterns in NOT_RUN.items() for pattern in patterns}
OURS = 'brokerd', 'brokerctl', 'brokertop', 'brokersim', 'brokerbench'
OTHERS = ('adduser', 'apt', 'apt-get', 'bpftool', 'cat', 'cc', 'cd', 'coredumpctl', 'cp', 'curl', 'dpkg', 'echo',
          'export', 'gcovr', 'gdb', 'git', 'journalctl', 'kill', 'ldconfig', 'ls', 'man', 'meson', 'mkdir', 'ninja',
          'podman', 'promtool', 'python3', 'rm', 'sed', 'sysctl', 'systemctl', 'systemd-analyze', 'systemd-run', 'ulimit')
IS_COMMAND = re.compile(rf'(?:[A-Z_]+=\S+ )*(?:{"|".join(OURS + OTHERS)}|\./[\w-]+|\.ci/run|'
                        r'(?:tools|tests|build\S*)/\S+)(?: [!-~]|$)')
PARTS = 'vulkan', 'amdgpu', 'bpf', 'metrics', 'onnx', 'bench'  # options of the build
FENCE = re.compile(r'^( *)```(\w*)\n(.*?)^ *```$', re.MULTILINE | re.DOTALL)
INDENTED = re.compile(r'(?<=\n\n)(?:    .*\n|\n(?=    ))+')
ENDLESS = re.compile(r'--follow|brokerctl watch|brokertop --json$')
# Changes of commands before they are run: a test has other names, less time and a smaller device.
CHANGES = (
    (r'^(sudo )', ''), (r' &$', ''), (r' \| (less|head -80)$', ''),
    (r'\bTENANT\b', 'web'), (r'\bPROGRAM( ARGUMENT\.\.\.)?', 'true'), (r'task NUMBER', 'task $TASK'),
    # The lease lasts for the command.
    (r'^brokerctl (.*)\blease (|sleep |sleep --hold |wake )NUMBER(.*)', r"brokerctl exec --vram=1MiB -- sh -c "
     r"'brokerctl \1lease \2$RINGBROKER_LEASE\3'"),
    (r'why plan score\b', 'why plan resnet'), (r'--(seconds|wait)=\d+', r'--\1=1'), (r' -n 6\b', ' -n 2'),
    (r'(exec .*)GiB(.*)GiB', r'\1MiB\2MiB'), (r'(exec .*)GiB', r'\1MiB'),
    (r'/tmp/(brokerd|b)\.sock', '$RINGBROKER_SOCKET'), (r'/(tmp|run/ringbroker)/metrics\.sock', '$PWD/../metrics.sock'),
    (r'/tmp/|/etc/prometheus/', '$PWD/'), (r'/usr/share/ringbroker/metrics/', 'doc/metrics/'), (r'vram-reserve=512MiB', 'vram-reserve=16MiB'), (r'--svg=/tmp', '--svg=$PWD'),
    (r'--svg=doc/plots', '--svg=$PWD/plots'), (r'RBK_SCHEDULES=\d+', 'RBK_SCHEDULES=1'), (r'\$\(pidof brokerd\)', '$BROKERD'),
    (r'^(\S*brokertop)(?!.*--(once|json|record))(?= |$)', r'\1 --once'),
    # A second broker would take seconds: its options and files are checked.
    (r'^(\S*brokerd)(?! --(?:version|help|list-devices|check-config))(?= |$)', r'\1 --check-config'),
    (r'--list-devices$', '--list-devices --cache=none --calibration=none'),
    (r' --config=brokerd\.conf', ' --config=doc/examples/brokerd.conf'),
)
# Commands that undo others, so that the commands after these see the broker as before.
UNDO = ((r'brokerctl drain (tenant|device) (\S+)(?!.*--end).*', r'brokerctl drain \1 \2 --end'),
        (r'brokerctl force-cpu on', 'brokerctl force-cpu off'),
        (r'brokerctl log-level debug', 'brokerctl log-level info'),
        (r'(brokerctl set \S+) ([\w-]+)=.*', r'\1 \2=default'), (r'(.* set default) ([\w-]+)=.*', r'\1 \2=default'))
# Statuses other than 0: problems of the machine, no card, the end by a signal.
STATUS = {'brokerctl check': (0, 1), 'build/tests/support/vulkan-statistics': (0, 77),
          'brokerctl decisions --follow': (130,), 'brokertop --json': (0, 130)}
LAYER = '/libclient/layer/built/ringbroker_lease.json'
# Outputs that do not depend on the machine.
OUTPUTS = {'./first-program': '0 11 22 33 on device 0\n', './a.out': '0 11 22 33 on device 0\n'}


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def lines_of(text):
    """Return the commands of a block, without prompts and comments; a backslash or a pipe continues a line."""
    text = re.sub(r'(\\|\|)\n +', lambda match: '' if match[1] == '\\' else '| ', text)
    found = []
    for line in text.splitlines():
        line = re.sub(r'^[$#] (?=[\w./])', '', line.strip())
        line = re.sub(r'  +#.*$|\s+# .*$', '', line).strip()
        if IS_COMMAND.match(line):
            found += re.split(r' && |; ', line)
    return found


def of_markdown(text):
    """Return the commands of a document. "brokerctl NAME" within a text may be a name: "--help" is appended."""
    found = []
    for _, language, block in FENCE.findall(text):
        if language == 'console':
            block = ''.join(re.findall(r'^\$ .*\n', block, re.MULTILINE))
        if language in ('', 'console'):
            found += lines_of(block)
    text = FENCE.sub('', text)
    for block in INDENTED.findall(text):
        found += lines_of(re.sub(r'^    ', '', block, flags=re.MULTILINE))
    for code in re.findall(r'`([^`\n]+)`', INDENTED.sub('', text)):
        if not IS_COMMAND.match(code) or ' ' not in code or code.endswith('...'):
            continue
        is_name = re.fullmatch(r'brokerctl (run|exec|set|why|run --check|run --device=\w+)', code)
        found += [code.split(' --')[0] + ' --help'] if is_name else lines_of(code)
    return found


def of_manual(text, has_examples):
    """Return the commands of the displays of a manual page; @has_examples: with those of the section EXAMPLES."""
    if not has_examples:
        text = re.sub(r'^\.Sh EXAMPLES\n(?:(?!\.Sh ).*\n)*', '', text, flags=re.MULTILINE)
    text = text.replace('\\e\n', '\\\n').replace('\\(dq', '"')
    blocks = re.findall(r'^\.Bd -literal.*\n((?:(?!\.Ed).*\n)*)', text, re.MULTILINE)
    blocks += re.findall(r'^\.Dl (.*\n)', text, re.MULTILINE)
    return [command for block in blocks for command in lines_of(block)]


def all_commands(root):
    """Return {command: the first document with it}."""
    found = {}
    for path in [*sorted(glob.glob(root + '/*.md')), *sorted(glob.glob(root + '/doc/*.md'))]:
        for command in of_markdown(read(path)):
            found.setdefault(command, os.path.relpath(path, root))
    for path in sorted(glob.glob(root + '/doc/*.[1578]') + glob.glob(root + '/doc/*.in')):
        is_program = os.path.basename(path).split('.')[0] in OURS
        for command in of_manual(read(path), not is_program):
            found.setdefault(command, os.path.relpath(path, root))
    return found


# Tests that exist only where their program is installed: mandoc.
OPTIONAL_TESTS = ('man-pages',)


class Commands:
    """Runs commands in a folder with links to the source tree and the build tree."""

    def __init__(self, root, build, folder, programs, broker):
        self.root, self.build, self.folder, self.broker = root, build, folder, broker
        self.n_tasks = 0  # that the client has run
        os.mkdir(folder)
        os.mkdir(folder + '/bin')
        os.mkdir(folder + '/plots')
        for name in os.listdir(root):
            if name != '.git' and not name.startswith('build'):
                os.symlink(os.path.join(root, name), os.path.join(folder, name))
        os.symlink(build, folder + '/build')
        for program in programs:
            os.symlink(program, f'{folder}/bin/{os.path.basename(program)}')
        dims, weights = ['N', 2], onnx.tensor('w', onnx.FLOAT, [2, 2], [1, 2, 3, 4])
        onnx.write(folder + '/model.onnx', onnx.model(
            [onnx.node('MatMul', ['x', 'w'], ['y'])], [('x', onnx.FLOAT, dims)], [('y', onnx.FLOAT, dims)], [weights]))
        onnx.npy(folder + '/x.npy', onnx.FLOAT, [1, 2], [1, 1])
        onnx.npy(folder + '/wanted.npy', onnx.FLOAT, [1, 2], [4, 6])
        layers = folder + '/share/vulkan/implicit_layer.d'
        os.makedirs(layers)
        if os.path.exists(build + LAYER):
            shutil.copy(build + LAYER, layers)
        # A build without some parts lacks tests and programs that documents name.
        options = {option['name']: option['value'] for option in self.introspect('buildoptions')}
        self.is_full = all(options[name] == 'enabled' for name in PARTS)
        tests = self.introspect('tests')
        self.tests = {test['name'] for test in tests}
        self.suites = {suite.split(':')[-1] for test in tests for suite in test['suite']}
        self.built = {os.path.relpath(name, build)
                      for target in self.introspect('targets') for name in target['filename']}

    def introspect(self, what):
        """Return what meson knows of the build."""
        return json.loads(read(f'{self.build}/meson-info/intro-{what}.json'))

    def check_names(self, command, path):
        """Check tests, suites and files that a command names."""
        if not self.is_full:
            return
        for suite in re.findall(r'--suite (\S+)', command):
            expect(suite in self.suites, path, 'names the suite', suite, 'which does not exist:', command)
        test = re.match(r'(?:\w+=\S+ )*meson test (-C build\S* )?(.*)', command)
        if test and '|' not in command:
            words = re.sub(r'--(suite|setup|repeat|num-processes) \S+', '', test[2]).split()
            missing = [word for word in words if not word.startswith('-') and word not in self.tests
                       and word not in OPTIONAL_TESTS]
            expect(not missing or '--suite soak' in command or '-card' in command,
                   path, 'names tests that do not exist:', *missing)
        for name in re.findall(r'(?<![\w/.=-])(?:tools|tests|doc|build)/[\w./-]+', command):
            is_there = '*' in command or name in self.built or os.path.exists(os.path.join(self.root, name))
            if name.startswith('build/'):
                is_there = name[6:] in self.built or os.path.exists(os.path.join(self.build, name[6:]))
            expect(is_there, path, 'names', name, 'which does not exist:', command)

    def run(self, command, path):
        """Run a command, changed for the test, and that which undoes it."""
        changed = command
        for pattern, replacement in CHANGES:
            changed = re.sub(pattern, replacement, changed)
        if '| jq' in changed and not shutil.which('jq'):
            changed = changed.split(' | jq')[0]
        env = dict(os.environ, RINGBROKER_SOCKET=self.broker.socket, BROKERD=str(self.broker.pid), LC_ALL='C.UTF-8',
                   TASK=str(self.n_tasks),
                   PATH=f'{self.folder}/bin:{os.environ["PATH"]}',
                   PKG_CONFIG_PATH=os.path.join(self.build, 'meson-uninstalled'), XDG_CACHE_HOME=self.folder,
                   XDG_DATA_DIRS=f'{self.folder}/share:/usr/share', LD_LIBRARY_PATH=os.path.join(self.build, 'libclient'))
        if ENDLESS.search(changed):
            changed = 'timeout --preserve-status -s INT 1 ' + changed
        result = subprocess.run(['bash', '-o', 'pipefail', '-c', changed], cwd=self.folder, env=env,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                timeout=LIMIT, check=False)
        output = result.stdout.decode(errors='replace')
        expect(result.returncode in STATUS.get(command, (0,)), f'{path}: "{command}", run as "{changed}", ended with',
               result.returncode, output)
        expect(OUTPUTS.get(command, output) == output, path, command, 'prints', output)
        if '--svg=doc/plots' in command and 'bound: exact' in output:
            for name in os.listdir(self.folder + '/plots'):
                expect(read(f'{self.folder}/plots/{name}') == read(f'{self.root}/doc/plots/{name}'), command, 'draws another',
                       name)
        for pattern, replacement in UNDO:
            if re.fullmatch(pattern, changed):
                changed = re.sub(pattern, replacement, changed)
                subprocess.run(['bash', '-c', changed], cwd=self.folder, env=env, stdout=subprocess.DEVNULL,
                               check=True)
                break


def check(root, build, folder, broker, programs, client, has):
    """Run all commands with the broker. @client: stats-client. @has(command): false if this build or machine lacks
    something for it."""
    rig = Commands(root, build, folder, programs, broker)
    process = start([client, broker.socket, 'resnet'], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def run_tasks():
        process.stdin.write('0 60\n')
        process.stdin.flush()
        expect(process.stdout.readline() == 'ok\n', 'the client failed')
        rig.n_tasks += 60

    run_tasks()
    unused, n_run, n_not_run = set(NOT_RUN), 0, 0
    for command, path in all_commands(root).items():
        rig.check_names(command, path)
        reasons = [pattern for pattern in NOT_RUN if pattern.fullmatch(command)]
        unused -= set(reasons)
        if reasons or 'meson test' in command or not has(command):
            n_not_run += 1
            continue
        if ' why ' in command:
            run_tasks()
        rig.run(command, path)
        n_run += 1
    links = re.findall(r'runbook_url: (.*)#', read(folder + '/ringbroker.rules.yml'))
    expect(links and set(links) == {'https://docs.example.org/runbooks'}, 'the links of alerts become', *set(links))
    process.stdin.close()
    process.stdout.close()
    process.wait(LIMIT)
    expect(not unused, 'NOT_RUN has patterns that no document needs:', *(pattern.pattern for pattern in unused))
    print(f'{n_run} commands of the documents run, {n_not_run} only looked at')
