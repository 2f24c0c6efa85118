# SPDX-License-Identifier: MIT
"""What the programs do while a call fails, and what must be true afterwards: see nth.py."""
import ctypes
import json
import os
import re
import select
import signal
import socket
import subprocess
import time

from page import Place  # noqa: F401

BUILD = ''
PATIENCE = 120
POLICY = """[broker]
exploration = 2%
[tenant small]
match-uid = 12345
vram-max = 0
[tenant default]
sessions-max = 8
"""
# Lines of brokerd's log that have nothing to do with a failure.
ORDINARY = re.compile(r'brokerd: (device 0: CPU|Vulkan is switched off|listening on|read .* again: nothing changed'
                      r'|tenant small: weight is 50|0 plans with 0 B leave|stopping: finishing|stopped$|the CPU is '
                      r'|serving metrics|the sandbox is off)')
LOST = re.compile(r'it ended this session$', re.MULTILINE)
SANITIZER = re.compile(r'Sanitizer|runtime error:')


def path(*parts):
    return os.path.join(BUILD, *parts)


LIBC = ctypes.CDLL(None)


def die_with_parent():
    LIBC.prctl(1, signal.SIGKILL)


def run(arguments, page=None, text='', **environment):
    """Return: (exit status, None for a hang, standard output, standard error)."""
    environment = {**os.environ, **environment}
    if page:
        environment['RBK_TEST_NTH'] = page.path
    try:
        done = subprocess.run(arguments, capture_output=True, text=True, timeout=PATIENCE, check=False, input=text,
                              env=environment, errors='replace', preexec_fn=die_with_parent)
    except subprocess.TimeoutExpired as end:
        return None, str(end.stdout or ''), str(end.stderr or '')
    return done.returncode, done.stdout, done.stderr


class Broker:
    """A brokerd in a folder. Problems that it causes go to a list."""

    def __init__(self, folder, problems, program='broker/brokerd', page=None, options=()):
        self.problems = problems
        self.socket = os.path.join(folder, 'brokerd.sock')
        self.log_path = os.path.join(folder, 'log')
        self.policy = os.path.join(folder, 'policy')
        self.folder = folder
        self.start(program, page, options)

    def start(self, program, page, options):
        with open(self.policy, 'w', encoding='ascii') as policy:
            policy.write(POLICY)
        environment = dict(os.environ)
        if page:
            environment['RBK_TEST_NTH'] = page.path
            # The wrappers that count calls make others themselves, in all threads.
            options = ('--sandbox', 'off', *options)
        with open(self.log_path, 'ab') as log:
            self.process = subprocess.Popen(
                [path(program), '--socket', self.socket, '--cache', os.path.join(self.folder, 'cache'),
                 '--config', self.policy, '--calibration', 'none', '--contention', 'stat',
                 '--reactor-task', '0', '--workers', '2', '--no-pin',
                 '--metrics', 'unix:' + os.path.join(self.folder, 'metrics'), *options],
                stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=environment,
                preexec_fn=die_with_parent)

    def log(self):
        with open(self.log_path, encoding='utf-8', errors='replace') as log:
            return log.read()

    def wait_ready(self):
        """Return: true if the broker listens, false if it has ended."""
        # The line that says so may be the one that is not written.
        late = time.monotonic() + 2
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            if self.process.poll() is not None:
                return False
            if 'listening on' in self.log() or (time.monotonic() > late and self.accepts()):
                return True
            time.sleep(0.002)
        self.problems.append('brokerd neither starts nor ends')
        self.process.kill()
        self.process.wait()
        return False

    def accepts(self):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            return connection.connect_ex(self.socket) == 0

    def is_alive(self):
        return self.process.poll() is None

    def has_no_admin(self):
        """Return: true if brokerd has said that it serves clients only."""
        return 'there is no socket for administrators' in self.log()

    def held(self):
        """Descriptors and threads of the process."""
        proc = f'/proc/{self.process.pid}'
        n = 0
        for fd in os.listdir(proc + '/fd'):
            try:
                n += not os.readlink(f'{proc}/fd/{fd}').startswith('/proc/')
            except OSError:
                pass
        return n, len(os.listdir(proc + '/task'))

    def ctl(self, *arguments, seconds=PATIENCE // 2):
        return run([path('tools/brokerctl/brokerctl'), '--socket', self.socket, '--timeout', str(seconds),
                    *arguments])

    def charges(self):
        """What tenants are charged, and what exists; None if the broker does not answer."""
        status, text, said = self.ctl('stats', '--json')
        if status:
            self.problems.append(f'brokerctl stats: exit status {status}: {said}')
            return None
        total = {}
        for record in map(json.loads, text.splitlines()):
            if record['type'] == 'broker':
                total.update({key: record[key] for key in ('sessions', 'rings', 'arenas', 'plans', 'in_flight',
                                                           'host_bytes', 'device_bytes')})
            if record['type'] == 'tenant':
                total[record['tenant']] = (record['host_used'], record['arena_bytes'],
                                           sum(device['memory_used'] + device['gtt_used']
                                               for device in record['devices']))
        return total

    def metrics(self, seconds):
        """Return: the answer of the metrics endpoint; empty if there is none."""
        answer = b''
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(seconds)
            try:
                connection.connect(os.path.join(self.folder, 'metrics'))
                connection.sendall(b'GET /metrics HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n')
                while part := connection.recv(1 << 16):
                    answer += part
            except OSError:
                pass
        return answer

    def settled(self):
        """Return what a broker holds after its clients have left: descriptors and threads; charges."""
        charges = held = None
        end = time.monotonic() + PATIENCE / 2
        while time.monotonic() < end:
            now = self.charges(), self.held()
            if now[0] and now[0]['sessions'] == 1 and now[0]['default'][0] == 0 and now == (charges, held):
                break
            charges, held = now
            time.sleep(0.05)
        return held, charges

    def check_balance(self, expected):
        """Wait until charges and resources are back at what they were without a failure."""
        end = time.monotonic() + PATIENCE / 2
        held, charges = expected
        while True:
            now = self.charges(), self.held()
            if now[0] is None:
                return
            if now[0] == charges and now[1][0] <= held[0] and now[1][1] <= held[1]:
                return
            if time.monotonic() > end:
                break
            time.sleep(0.02)
        if now[0] != charges:
            self.problems.append(f'charges: {now[0]}, and not {charges}')
        else:
            self.problems.append(f'descriptors and threads: {now[1]}, and not {held}')

    def check_end(self):
        """Judge the end of a process that has ended by itself."""
        status = self.process.returncode
        if status < 0:
            self.problems.append(f'brokerd was ended by {signal.Signals(-status).name}')

    def sentences(self):
        """The lines of the log about something unusual."""
        return [line for line in self.log().splitlines() if not ORDINARY.match(line)]

    def stop(self):
        if not self.is_alive():
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            status = self.process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self.problems.append('brokerd does not stop')
            self.process.kill()
            self.process.wait()
            return
        if status:
            self.problems.append(f'brokerd stopped with {status}')


class Scene:
    """A scenario: programs in a folder, and a page that is armed in parts of it."""

    def __init__(self, folder, page):
        self.folder, self.page = folder, page
        self.problems, self.said = [], []
        self.broker = None

    def report(self):
        return '\n'.join([*self.said, self.broker.log() if self.broker else ''])

    def patience(self):
        """Environment of clients: a call that fails for ever may end in a timeout, which had better be soon."""
        return {'NTH_SECONDS': '3'} if self.page.is_persistent else {}

    def note(self, what, outcome):
        status, _, said = outcome
        if said.strip() or status:
            self.said.append(f'[{what}: {status}] {said.strip()}')
        if SANITIZER.search(said):
            self.problems.append(f'{what}: a finding of a sanitizer')

    def check_client(self, what, outcome, may_fail, highest=1):
        """Judge a client: it ends by itself, and says what failed."""
        self.note(what, outcome)
        status, _, said = outcome
        if status is None:
            self.problems.append(f'{what} hangs')
        elif status < 0:
            self.problems.append(f'{what} was ended by signal {-status}')
        elif status > highest or (status and not may_fail):
            self.problems.append(f'{what} ended with {status}')
        elif status and not said.strip():
            self.problems.append(f'{what} failed without a sentence')

    def play(self):
        try:
            self.act()
        finally:
            if self.broker and self.broker.is_alive():
                self.broker.process.kill()
                self.broker.process.wait()
        # The library itself only knows that the connection has ended, unless it adds a reason.
        if self.broker and not self.broker.sentences() and LOST.search('\n'.join(self.said)):
            self.problems.append('brokerd ended a session without a sentence')
        if self.broker and SANITIZER.search(self.broker.log()):
            self.problems.append('brokerd: a finding of a sanitizer')
        return self.problems


class BrokerScene(Scene):
    """brokerd's calls fail while it starts, serves, and stops; a plan of the client is cut into segments."""
    options = ('--gpu', 'none', '--cut', '3')
    environment = {}
    expected = None
    clean = None

    @classmethod
    def program(cls):
        return path('tests/nth/nth-brokerd')

    def use(self, may_fail):
        client = path('tests/nth/nth-client')
        broker = self.broker
        environment = {**self.environment, **(self.patience() if may_fail else {})}
        seconds = int(environment.get('NTH_SECONDS', PATIENCE // 2))
        for name, arguments in (('client', []), ('lasting client', ['lasting'])):
            outcome = run([client, broker.socket, *arguments], **environment)
            self.check_client(name, outcome, may_fail)
            if not broker.is_alive() or 'ETIME' in outcome[2]:
                return
        if not broker.metrics(seconds) and not may_fail:
            self.problems.append('brokerd answers no question for metrics')
        if broker.has_no_admin() or not may_fail:
            return
        for command in (['status', '--json'], ['set', 'small', 'weight=50'], ['evict', 'small']):
            if broker.is_alive():
                self.check_client(f'brokerctl {command[0]}', broker.ctl(*command, seconds=seconds), may_fail, 5)

    def reload(self, may_fail):
        broker = self.broker
        n = len(re.findall('policy|again', broker.log()))
        broker.process.send_signal(signal.SIGHUP)
        end = time.monotonic() + (1 if may_fail else PATIENCE)
        while time.monotonic() < end and broker.is_alive():
            if len(re.findall('policy|again', broker.log())) > n:
                return
            time.sleep(0.002)
        if not may_fail and broker.is_alive():
            self.problems.append('brokerd does not reload')

    def act(self):
        self.page.arm()
        self.broker = broker = Broker(self.folder, self.problems, 'tests/nth/nth-brokerd', self.page,
                                      self.options)
        if not broker.wait_ready():
            broker.check_end()
            self.check_sentence()
            return
        self.use(True)
        if broker.is_alive():
            self.reload(True)
        self.page.arm(False)
        if re.search('cannot serve metrics|for --metrics', broker.log()):
            # brokerd has listened, and then ends for want of this part.
            broker.process.wait(PATIENCE)
            broker.check_end()
            self.check_sentence()
            return
        if not broker.is_alive():
            broker.check_end()
            self.problems.append(f'brokerd has ended with {broker.process.returncode}')
            return
        self.use(False)
        self.reload(False)
        if not broker.is_alive():
            self.problems.append(f'brokerd has ended with {broker.process.returncode}')
            return
        if self.expected is None:
            type(self).expected = broker.settled()
        elif not broker.has_no_admin():
            broker.check_balance(self.expected)
        self.page.arm()
        broker.stop()
        self.page.arm(False)

    def check_sentence(self):
        status = self.broker.process.returncode
        lines = [line for line in self.broker.log().splitlines() if not line.startswith(' ')]
        if status not in (1, 2) and status >= 0:
            self.problems.append(f'brokerd did not start, with status {status}')
        if not lines:
            self.problems.append('brokerd did not start, without a sentence')


class GpuScene(BrokerScene):
    """The same with a software device and leases."""
    options = ('--gpu', 'software', '--device-memory', '64MiB')
    environment = {'NTH_LEASE': '1'}
    expected = None


class LibraryScene(Scene):
    """The library's calls fail in a client."""

    @classmethod
    def program(cls):
        return path('tests/nth/nth-library')

    def act(self):
        self.broker = broker = Broker(self.folder, self.problems, options=('--gpu', 'none'))
        if not broker.wait_ready():
            self.problems.append('brokerd does not start')
            return
        run([path('tests/nth/nth-client'), broker.socket])
        before = broker.settled()
        self.client()
        self.page.arm(False)
        self.check_client('next client', run([path('tests/nth/nth-client'), broker.socket]), False)
        broker.check_balance(before)
        broker.stop()

    def client(self):
        self.page.arm()
        self.check_client('client', run([self.program(), self.broker.socket], self.page, **self.patience()), True)


class LastingScene(LibraryScene):
    """The library's calls fail in a client whose broker is killed."""

    def client(self):
        self.page.arm()
        client = subprocess.Popen([self.program(), self.broker.socket, 'surviving'], text=True, errors='replace',
                                  stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                  env={**os.environ, 'RBK_TEST_NTH': self.page.path, **self.patience()})
        if select.select([client.stdout], [], [], PATIENCE)[0] and client.stdout.readline():
            self.broker.process.kill()
            self.broker.process.wait()
            with open(self.broker.log_path, 'w', encoding='ascii'):
                pass
            self.broker.start('broker/brokerd', None, ('--gpu', 'none'))
            self.broker.wait_ready()
        try:
            out, said = client.communicate('go on\n', PATIENCE)
            outcome = client.returncode, out, said
        except subprocess.TimeoutExpired:
            client.kill()
            client.communicate()
            outcome = None, '', ''
        self.check_client('client', outcome, True)


class ControlScene(Scene):
    """The calls of brokerctl fail."""
    commands = ['status', 'status --json', 'devices', 'devices --capabilities', 'tenants', 'sessions', 'plans',
                'reasons', 'stats', 'stats --json', 'decisions', 'contention', 'why default', 'leases', 'names tenants',
                'set small weight=50', 'set small', 'evict small', 'drain tenant small', 'drain --status tenant small',
                'drain --end tenant small', 'force-cpu on', 'force-cpu off', 'force-cpu status', 'log-level info',
                'log-level', 'reset-stats', 'trace --seconds=0.1', 'check']

    @classmethod
    def program(cls):
        return path('tests/nth/nth-brokerctl')

    def act(self):
        self.broker = broker = Broker(self.folder, self.problems, options=('--gpu', 'none'))
        if not broker.wait_ready():
            self.problems.append('brokerd does not start')
            return
        run([path('tests/nth/nth-client'), broker.socket])
        before = broker.settled()
        self.page.arm()
        for command in self.commands:
            n = self.page.n_failed
            outcome = run([self.program(), '--socket', broker.socket, *command.split()], self.page)
            self.judge(command, outcome, self.page.n_failed > n)
        self.page.arm(False)
        self.check_client('next client', run([path('tests/nth/nth-client'), broker.socket]), False)
        broker.check_balance(before)
        broker.stop()

    def judge(self, command, outcome, has_failed):
        status, shown, said = outcome
        if command == 'check':
            # Its findings are its output.
            said = said or shown.strip()[-200:].replace('\n', ' ')
        if status is None:
            self.problems.append(f'brokerctl {command} hangs')
            return
        if has_failed or status:
            self.note(f'brokerctl {command}', outcome)
        if SANITIZER.search(said):
            self.problems.append('a finding of a sanitizer')
        if status < 0:
            self.problems.append(f'brokerctl {command} was ended by signal {-status}')
        elif status and not has_failed:
            self.problems.append(f'brokerctl {command} ended with {status}')
        elif status and len(said.strip().splitlines()) != 1:
            self.problems.append(f'brokerctl {command} failed with {len(said.splitlines())} sentences')


class LayerScene(Scene):
    """The calls of the Vulkan layer fail in a program that knows nothing of leases."""
    commands = ['device', 'budget', 'alloc 1048576 3', 'exportable 1048576', 'free 0', 'alloc 1073741824', 'budget',
                'free-all', 'destroy', 'device', 'alloc 4096 2', 'free-all']

    @classmethod
    def program(cls):
        return path('tests/nth/libnth-layer.so')

    def manifests(self):
        """Write the loader's files. Return: the environment of a program with a lease."""
        folders = {kind: os.path.join(self.folder, 'share/vulkan', kind + '_layer.d')
                   for kind in ('implicit', 'explicit')}
        with open(path('libclient/layer/built/ringbroker_lease.json'), encoding='ascii') as file:
            lease = json.load(file)
        lease['layer']['library_path'] = self.program()
        card = {'name': 'VK_LAYER_RINGBROKER_fake_card', 'type': 'GLOBAL', 'api_version': '1.3.239',
                'library_path': path('tests/support/fake-card-layer.so'), 'implementation_version': '1',
                'description': 'a card'}
        for kind, layer in (('implicit', lease), ('explicit', {'file_format_version': '1.2.0', 'layer': card})):
            os.makedirs(folders[kind])
            with open(os.path.join(folders[kind], 'layer.json'), 'w', encoding='ascii') as file:
                json.dump(layer, file)
        drivers = [os.path.join('/usr/share/vulkan/icd.d', name)
                   for name in sorted(os.listdir('/usr/share/vulkan/icd.d')) if name.startswith('lvp')]
        return {'XDG_DATA_DIRS': os.path.join(self.folder, 'share') + ':/usr/share', 'HOME': self.folder,
                'VK_DRIVER_FILES': drivers[0], 'VK_ICD_FILENAMES': drivers[0], 'NODEVICE_SELECT': '1',
                'RINGBROKER_VULKAN_LEASE': '1', 'RINGBROKER_LEASE_VRAM': '64MiB',
                'RINGBROKER_SOCKET': self.broker.socket, 'VK_INSTANCE_LAYERS': 'VK_LAYER_RINGBROKER_fake_card'}

    def act(self):
        self.broker = broker = Broker(self.folder, self.problems,
                                      options=('--gpu', 'software', '--device-memory', '256MiB'))
        if not broker.wait_ready():
            self.problems.append('brokerd does not start')
            return
        environment = self.manifests()
        run([path('tests/nth/nth-client'), broker.socket], NTH_LEASE='1')
        before = broker.settled()
        self.page.arm()
        status, shown, said = run([path('tests/support/lease-client')], self.page, '\n'.join(self.commands) + '\n',
                                  **environment)
        self.page.arm(False)
        self.said.append(f'[program: {status}] {shown.strip()}\n{said.strip()}')
        if status is None:
            self.problems.append('the program hangs')
        elif status:
            self.problems.append(f'the program ended with {status}')
        if SANITIZER.search(said):
            self.problems.append('a finding of a sanitizer')
        refused = re.findall(r'result=(-\d+)', shown)
        # An allocation of more than the lease is refused; all else succeeds, or a result or the layer says why not.
        if not refused and not said.strip():
            self.problems.append('the program is not held to its lease, without a sentence')
        if self.page.n_failed == 0 and refused != ['-2']:
            self.problems.append(f'{refused} without a failure')
        broker.check_balance(before)
        broker.stop()


SCENES = {'brokerd': BrokerScene, 'gpu': GpuScene, 'library': LibraryScene, 'lasting': LastingScene,
          'brokerctl': ControlScene, 'layer': LayerScene}
