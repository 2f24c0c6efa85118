#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""brokertop in tmux.

    brokertop-tmux.py BROKERTOP BROKERD STATS_CLIENT LIBRARY_DIR RECORD_SCENE
    brokertop-tmux.py --update BROKERTOP BROKERD STATS_CLIENT LIBRARY_DIR RECORD_SCENE
                    draws the pictures anew that doc/operating.md has of it; doc/pictures/overview.py takes
                    the README's

With recorded pages the screen must equal the printed picture, at three sizes, with and without UTF-8
and colours, and a mouse is used. With a broker of three busy tenants the test types keys, at each of
these sizes and settings, and stops, kills and restarts the broker meanwhile. Skipped without tmux.
"""
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

from screen_svg import svg
from started import start, start_broker

UPDATES = sys.argv[1] == '--update'
TOP, BROKERD, CLIENT, LIBRARY_DIR, RECORD = sys.argv[1 + UPDATES:]
PICTURES = os.path.join(os.path.dirname(os.path.abspath(__file__)), '../../doc/pictures')
LIMIT = 60 * int(os.environ.get('RBK_TEST_SLOW', '1'))
ENVIRONMENT = {name: value for name, value in os.environ.items()
               if name not in ('LANG', 'LC_CTYPE', 'NO_COLOR', 'COLUMNS', 'LINES', 'TMUX')}
ENVIRONMENT |= {'LC_ALL': 'C.UTF-8', 'TZ': 'UTC', 'LD_LIBRARY_PATH': LIBRARY_DIR}
TENANTS = ('web', 'llm', 'batch')
# Each size, with and without UTF-8, with and without colours.
SETTINGS = ('', 'LC_ALL=C', 'NO_COLOR=1', 'LC_ALL=C NO_COLOR=1')
SCREENS = [(width, height, settings) for width, height in ((80, 24), (120, 40), (250, 70))
           for settings in SETTINGS]


def fail(*what):
    print('brokertop-tmux.py:', *what)
    sys.exit(1)


class Terminal:
    """A terminal in which brokertop runs."""

    n_terminals = 0

    def __init__(self, folder, width, height, *arguments, settings=''):
        # Each terminal has its own tmux server, because the previous server may still be ending.
        Terminal.n_terminals += 1
        socket = os.path.join(folder, f'tmux-{Terminal.n_terminals}')
        self.tmux = ['tmux', '-S', socket, '-u', '-f', '/dev/null']
        self.status = os.path.join(folder, 'status')
        command = ' '.join([settings, TOP, *arguments]) + f'; echo $? >{self.status}; exec cat'
        self.call('new-session', '-d', '-x', str(width), '-y', str(height), command)

    def call(self, *arguments):
        return subprocess.run([*self.tmux, *arguments], check=True, env=ENVIRONMENT, timeout=LIMIT,
                              stdout=subprocess.PIPE).stdout.decode()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.call('kill-server')

    def screen(self, *options):
        return self.call('capture-pane', '-p', *options).rstrip('\n').split('\n')

    def type(self, *keys):
        for key in keys:
            self.call('send-keys', key)

    def wait(self, condition, what):
        end = time.monotonic() + LIMIT
        while True:
            lines = self.screen()
            found = condition(lines)
            if found:
                return found
            if time.monotonic() > end:
                fail(what, 'does not come:\n' + '\n'.join(lines))
            time.sleep(0.05)

    def settled(self):
        """Return the screen of a recording once it is drawn: equal in two looks, half a second apart."""
        def is_drawn(lines):
            time.sleep(0.5)
            return lines if self.screen() == lines else None

        return self.wait(is_drawn, 'a screen that stays')

    def wait_for(self, text):
        return self.wait(lambda lines: any(text in line for line in lines), text)

    def wait_without(self, text):
        return self.wait(lambda lines: not any(text in line for line in lines), 'no ' + text)

    def quit(self):
        self.type('q')
        self.wait_ended()

    def wait_ended(self):
        end = time.monotonic() + LIMIT
        while not os.path.exists(self.status) or not open(self.status).read():
            if time.monotonic() > end:
                fail('it does not end')
            time.sleep(0.05)
        if open(self.status).read() != '0\n':
            fail('it ended with', open(self.status).read(), '\n'.join(self.screen()))
        os.unlink(self.status)


def printed(*arguments, **environment):
    done = subprocess.run([TOP, '--once', *arguments], check=True, timeout=LIMIT,
                          stdout=subprocess.PIPE, env={**ENVIRONMENT, **environment})
    return done.stdout.decode().rstrip('\n').split('\n')


def locale_of(settings):
    return {'LC_ALL': 'C'} if 'LC_ALL' in settings else {}


def has_colours(terminal):
    return '38;5;' in '\n'.join(terminal.screen('-e'))


def trimmed(lines):
    """Return the lines without the line of keys and the empty lines before it."""
    lines = [line.rstrip() for line in lines[:-1]]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def check_recorded(folder):
    path = os.path.join(folder, 'three.pages')
    subprocess.run([RECORD, 'three', '60', path], check=True, timeout=LIMIT)
    page = ['--page', path]
    for width, height, settings, options in (
            *((*screen, ()) for screen in SCREENS), (120, 40, '', ('--ascii',)),
            (120, 40, 'TERM=vt100', ('--ascii',))):
        wanted = printed(*page, f'--size={width}x{height - 1}', *options, **locale_of(settings))
        with Terminal(folder, width, height, *page, *options, settings=settings) as terminal:
            terminal.wait_for('1/60 playing')
            terminal.type('G')
            terminal.wait(lambda lines, wanted=wanted: trimmed(lines) == wanted,
                          f'{width}x{height} {settings} {options}:\n' + '\n'.join(wanted) + '\n')
            if has_colours(terminal) != (settings in ('', 'LC_ALL=C')):
                fail('colours with', settings, has_colours(terminal))
            check_leases(terminal, [*page, f'--size={width}x{height - 1}', *options],
                         locale_of(settings), has_colours(terminal))
            if (width, settings, options) == (80, '', ()):
                check_resized(terminal, page)
            terminal.quit()


def check_leases(terminal, arguments, environment, is_coloured):
    """The view equals the printed one, with coloured tenants."""
    wanted = printed(*arguments, '--view=leases', **environment)
    terminal.type('l')
    terminal.wait(lambda lines: trimmed(lines) == wanted, '\n'.join(wanted))
    row = next(line for line in terminal.screen('-e') if 'ffmpeg' in line)
    if ('38;5;' in row) != is_coloured:
        fail('colours of leases', is_coloured, row)
    terminal.type('1')
    terminal.wait_for('TASK ')


def check_resized(terminal, page):
    for width, height in ((130, 30), (60, 15), (80, 24)):
        terminal.call('resize-window', '-x', str(width), '-y', str(height))
        wanted = printed(*page, f'--size={width}x{height - 1}')
        terminal.wait(lambda lines, wanted=wanted: trimmed(lines) == wanted,
                      f'resized to {width}x{height}')
    terminal.call('resize-window', '-x', '60', '-y', '3')
    terminal.wait_for('the terminal must be 40x10 or more')
    terminal.call('resize-window', '-x', '20', '-y', '5')
    terminal.wait_for('needs 40x10 or more')
    # The message about the recording's end stays until a key is pressed.
    terminal.type('Escape')
    # The key that quits is always shown, and no figure is truncated.
    for width, height in ((40, 10), (60, 15), (80, 24)):
        terminal.call('resize-window', '-x', str(width), '-y', str(height))
        terminal.wait(lambda lines, width=width, height=height:
                      len(lines) == height and lines[-1].startswith(' F1Help')
                      and ' F10Quit' in lines[-1] and len(lines[-1]) <= width
                      and re.search(r' P99▾?$', next(line for line in lines if 'TENANT' in line)),
                      f'what fits into {width}x{height}')
        check_help(terminal)


def check_help(terminal):
    """The end of each sentence is visible, whatever the width."""
    terminal.type('?')
    seen = []
    terminal.wait_for('Views')
    for text in ('Tab for the next', 'all rows again', 'click on its heading', 'in the queue',
                 'lack of device memory'):
        for _ in range(100):
            seen = ' '.join(line.strip() for line in terminal.screen()[1:-1])
            if text in seen:
                break
            terminal.type('Down')
            time.sleep(0.02)
        else:
            fail('the help does not say', text, '\n'.join(terminal.screen()))
    terminal.type('Escape')
    terminal.wait_for('TENANT')


def check_pictures(folder):
    """The pictures of views in doc/operating.md equal the screen, with its colours."""
    path = os.path.join(folder, 'pictures.pages')
    subprocess.run([RECORD, 'three', '371', path], check=True, timeout=LIMIT)
    with Terminal(folder, 120, 30, '--page', path) as terminal:
        terminal.wait_for('1/371 playing')
        terminal.type('G')
        terminal.wait_for('this is the end')
        for name, keys, text in (('tenants', ('2',), 'F1Help'), ('plans', ('4',), 'SPEED-UP'),
                                 ('decisions', ('5',), 'PREDICTED'), ('tenant', ('2', 'Enter'), 'Tenant llm')):
            terminal.type(*keys)
            terminal.wait(lambda lines, text=text: any(text in line for line in lines) and
                          not any(line.startswith(' TASK ') for line in lines), text)
            picture = svg(terminal.screen('-e'), 120)
            place = os.path.join(PICTURES, f'brokertop-{name}.svg')
            if UPDATES:
                with open(place, 'w', encoding='utf-8') as file:
                    file.write(picture)
            with open(place, encoding='utf-8') as file:
                if file.read() != picture:
                    fail(place, 'is another picture than', '\n'.join(terminal.screen()))
        terminal.type('Escape')
        terminal.wait_without('Tenant llm')
        terminal.quit()


def mouse_keys(is_sgr, button, x, y, is_up=False):
    """Return what a modern or an old xterm sends for a button's press, or its release."""
    if is_sgr:
        return f'\033[<{button};{x + 1};{y + 1}' + ('m' if is_up else 'M')
    return f'\033[M{chr(32 + (3 if is_up else button))}{chr(32 + x + 1)}{chr(32 + y + 1)}'


def send(terminal, text):
    terminal.call('send-keys', '-H', *(f'{ord(key):x}' for key in text))


def mouse(terminal, is_sgr, button, x, y, times=1, then=''):
    """Send a button's press and release, so many times, and the keys after them, all at once."""
    keys = mouse_keys(is_sgr, button, x, y)
    if button < 64:
        keys += mouse_keys(is_sgr, button, x, y, is_up=True)
    send(terminal, times * keys + then)


def check_slow_click(terminal, is_sgr, x, y):
    """A recording plays on although a button is held, or is one that brokertop does not use."""
    def moment(lines):
        found = re.search(r'(\d+)/371 playing', '\n'.join(lines))
        return int(found[1]) if found else 0

    # First a release without its press, which another program had.
    for button, is_up in ((0, True), (0, False), (0, True), (1, False), (1, True), (2, False), (2, True)):
        # An event that arrives alone: the program has read the one before it.
        time.sleep(0.3)
        before = terminal.wait(moment, 'a moment')
        send(terminal, mouse_keys(is_sgr, button, x, y, is_up))
        terminal.wait(lambda lines, before=before: moment(lines) > before + 1,
                      f'a moment after {before}, button {button} {"up" if is_up else "down"},')


def check_mouse(folder):
    """A click selects a row, sorts by a column, or does what the key in the last line does."""
    path = os.path.join(folder, 'mouse.pages')
    subprocess.run([RECORD, 'many', '1', path], check=True, timeout=LIMIT)
    playing = os.path.join(folder, 'playing.pages')
    subprocess.run([RECORD, 'three', '371', playing], check=True, timeout=LIMIT)
    for settings, is_sgr in (('TERM=screen', False), ('TERM=xterm-256color', True)):
        if b'kmous=\\E[' + (b'<' if is_sgr else b'M') not in subprocess.run(
                ['infocmp', '-1', settings.split('=')[1]], stdout=subprocess.PIPE, check=True).stdout:
            print('not with', settings, 'whose mouse is another one here')
            continue
        with Terminal(folder, 90, 30, '--page', path, '--view=tenants', settings=settings) as terminal:
            def place(text, terminal=terminal):
                """Return the position of the text on the screen."""
                lines = terminal.screen()
                y = next(y for y, line in enumerate(lines) if text in line)
                return lines[y].index(text), y

            terminal.wait_for('the end')
            terminal.wait_for('TASKS/s')
            if terminal.call('display-message', '-p', '#{mouse_any_flag}').strip() != '1':
                fail('the terminal is not asked for its mouse')
            mouse(terminal, is_sgr, 0, *place('P99'))
            terminal.wait_for('P99▾')
            mouse(terminal, is_sgr, 0, *place('TASKS/s'))
            terminal.wait_for('TASKS/s▾')
            # Click into the second row.
            x, y = place('TENANT')
            name = terminal.settled()[y + 2].split()[0]
            mouse(terminal, is_sgr, 0, x, y + 2)
            terminal.type('Enter')
            terminal.wait_for(f'Tenant {name}')
            # Click on the name of another view, and then twice into its first row.
            mouse(terminal, is_sgr, 0, *place('2 Tenants'))
            terminal.wait_without(f'Tenant {name}')
            name = terminal.settled()[y + 1].split()[0]
            mouse(terminal, is_sgr, 0, x, y + 1, times=2)
            terminal.wait_for(f'Tenant {name}')
            terminal.type('Escape')
            terminal.wait_without(f'Tenant {name}')
            mouse(terminal, is_sgr, 0, x, y + 2)
            # Scroll down with the wheel until the rows move, then up again.
            first = terminal.screen()[y + 1]
            for _ in range(12):
                mouse(terminal, is_sgr, 65, 5, 10)
            terminal.wait(lambda lines, y=y, first=first: lines[y + 1] != first, 'the wheel, down')
            # Scroll one step further, to the row before the clicked one.
            for _ in range(13):
                mouse(terminal, is_sgr, 64, 5, 10)
            terminal.wait(lambda lines, y=y, first=first: lines[y + 1] == first, 'the wheel, up')
            # A key that arrives together with a click finds the clicked row selected.
            name = terminal.settled()[y + 4].split()[0]
            mouse(terminal, is_sgr, 0, x, y + 4, then='\r')
            terminal.wait_for(f'Tenant {name}')
            terminal.type('Escape')
            terminal.wait_without(f'Tenant {name}')
            mouse(terminal, is_sgr, 0, *place('F1Help'))
            terminal.wait_for('Views')
            terminal.type('Escape')
            terminal.wait_without('Views')
            mouse(terminal, is_sgr, 0, *place('F10Quit'))
            terminal.wait_ended()
        with Terminal(folder, 90, 30, '--page', playing, settings=settings) as terminal:
            terminal.wait_for('1/371 playing')
            terminal.type('+', '+')
            terminal.wait_for('playing 4x')
            check_slow_click(terminal, is_sgr, 10, 10)
            terminal.quit()


def check_played(folder):
    """Keys step through the moments of a recording, and its end is reported."""
    path = os.path.join(folder, 'short.pages')
    subprocess.run([RECORD, 'three', '5', path], check=True, timeout=LIMIT)

    def clock(lines):
        return re.search(r'\d\d:\d\d:\d\d$', lines[0].rstrip())[0]

    with Terminal(folder, 100, 24, '--page', path) as terminal:
        terminal.wait_for('1/5 playing')
        terminal.type('Space', 'g')
        terminal.wait_for('1/5 paused')
        first = clock(terminal.screen())
        terminal.type('Left')
        terminal.wait_for('this is the beginning')
        terminal.type('Right', 'Right')
        terminal.wait_for('3/5 paused')
        third = clock(terminal.screen())
        terminal.type('Left', 'Left', '2')
        terminal.wait_for('1/5 paused')
        terminal.wait_without(' TASK ')
        if not first == clock(terminal.screen()) < third:
            fail('the clock:', first, third, clock(terminal.screen()))
        if 'F7' in terminal.screen()[-1] or 'F10' not in terminal.screen()[-1]:
            fail('keys', terminal.screen()[-1])
        # A space in the filter's text does not reach the player.
        terminal.type('/', 'Space', 'Escape', '+', '+', '+', '+', '+', '+')
        terminal.wait_for('1/5 paused')
        terminal.type('Space')
        terminal.wait_for('this is the end of the recording')
        terminal.type('1')
        terminal.wait_for('5/5 the end')
        # The next terminal keeps the choice of columns.
        terminal.wait_for('/ MAX')
        terminal.type('F2', 'Down', 'Down', 'Down', 'Space', 'q')
        terminal.wait_without('/ MAX')
        terminal.quit()


def check_hostile(folder):
    path = os.path.join(folder, 'hostile.pages')
    subprocess.run([RECORD, 'hostile', '3', path], check=True, timeout=LIMIT)
    with Terminal(folder, 120, 40, '--page', path) as terminal:
        terminal.wait_for('TENANT')
        if any('/ MAX' in line for line in terminal.screen()):
            fail('the choice of columns is not kept', '\n'.join(terminal.screen()))
        terminal.type('F2', 'Down', 'Down', 'Down', 'Space', 'q')
        terminal.wait_for('/ MAX')
        for keys, text in ((('2', 'F5'), 'Tenants'), (('3',), 'SESSION'), (('4',), 'STATE'),
                           (('5',), 'PREDICTED'), (('6',), 'GRANTED'),
                           (('Enter',), 'Granted memory'), (('2', 'Down', 'Enter'), 'Tenant ')):
            terminal.type(*keys)
            terminal.wait_for(text)
        if terminal.call('display-message', '-p', '#{pane_title}').strip() == 'owned':
            fail('a name has set the title')
        # Escape must arrive alone: together with the next key it would be an escape sequence.
        terminal.type('Escape')
        terminal.wait_without('Tenant ')
        terminal.quit()


class Load:
    """A tenant's client, which is always at work."""

    def __init__(self, folder, broker, name):
        self.process = start([os.path.join(folder, name), broker.socket, name],
                             stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                             env=ENVIRONMENT, stderr=subprocess.DEVNULL)
        threading.Thread(target=self.work, daemon=True).start()

    def work(self):
        try:
            while True:
                self.process.stdin.write('20 2\n')
                self.process.stdin.flush()
                if not self.process.stdout.readline():
                    return
                time.sleep(0.02)
        except (OSError, ValueError):
            return

    def stop(self):
        self.process.kill()
        self.process.wait(LIMIT)


class Broker:
    def __init__(self, folder):
        self.socket = os.path.join(folder, 'sock')
        for name in (self.socket, self.socket + '.admin'):
            if os.path.exists(name):
                os.unlink(name)
        self.process = start_broker(
            [BROKERD, '--socket', self.socket, '--cache', folder, '--config', folder + '/conf',
             '--gpu', 'none', '--test-device', '1ms', '--contention', 'none', '--spin', '0'],
            folder + '/log', LIMIT, env=ENVIRONMENT)
        self.loads = [Load(folder, self, name) for name in TENANTS]

    def kill(self):
        self.process.kill()
        self.process.wait(LIMIT)
        for load in self.loads:
            load.stop()


def rate_of(lines, tenant):
    """Return the tasks per second in the tenant's row; 0 if there is none."""
    head = next((line for line in lines if 'TENANT' in line and 'TASKS/s' in line), None)
    row = next((line for line in lines if re.match(rf' {tenant} ', line)), None)
    if not head or not row:
        return 0
    end = head.index('TASKS/s') + len('TASKS/s') + ('TASKS/s▾' in head or 'TASKS/sv' in head)
    return float(row[end - 8:end].strip(' –-k') or 0)


def all_work(lines):
    return all(rate_of(lines, tenant) > 0 for tenant in TENANTS)


def check_broker(folder):
    with open(os.path.join(folder, 'conf'), 'w', encoding='utf-8') as conf:
        for name in TENANTS:
            path = os.path.join(folder, name)
            shutil.copy(CLIENT, path)
            conf.write(f'[tenant {name}]\nmatch-exe = {path}\n')
    with Terminal(folder, 120, 40, '--socket', folder + '/sock', '-d', '0.2') as terminal:
        terminal.wait_for('no broker')
        broker = Broker(folder)
        terminal.wait(all_work, 'three tenants at work')
        terminal.wait_without('no broker')
        check_keys(terminal)
        for screen in SCREENS:
            check_live(folder, *screen)
        check_change(terminal)
        check_streams(folder)
        broker.process.send_signal(signal.SIGSTOP)
        terminal.wait_for('does not answer')
        terminal.type('2')
        terminal.wait_without(' TASK ')
        # A terminal that starts now shows that the broker exists, and its figures once the broker continues.
        with Terminal(folder, 120, 40, '--socket', folder + '/sock') as late:
            late.wait_for(f'the broker (process {broker.process.pid}) is running, but did not answer')
            broker.process.send_signal(signal.SIGCONT)
            late.wait(all_work, 'three tenants, after it had hung')
            late.quit()
        terminal.wait_without('does not answer')
        broker.kill()
        terminal.wait_for('brokerd is gone')
        terminal.wait_for('web')
        terminal.type('1')
        terminal.wait_for('TASK ')
        broker = Broker(folder)
        terminal.wait_without('brokerd is gone')
        terminal.wait(all_work, 'work after a new start')
        terminal.quit()
        check_recorded_death(folder, broker)


def check_live(folder, width, height, settings):
    """Another terminal shows the same tenants and takes the same keys."""
    with Terminal(folder, width, height, '--socket', folder + '/sock', '-d', '0.2',
                  settings=settings) as terminal:
        terminal.wait(all_work, f'three tenants at work, {width}x{height} {settings}')
        lines = terminal.screen()
        if len(lines) != height or max(map(len, lines)) > width:
            fail(f'{width}x{height} {settings}:', '\n'.join(lines))
        if ''.join(lines).isascii() != ('LC_ALL=C' in settings):
            fail('characters with', settings, '\n'.join(lines))
        if has_colours(terminal) != ('NO_COLOR' not in settings):
            fail('colours with', settings)
        check_keys(terminal)
        terminal.quit()


def check_streams(folder):
    """Without standard output brokertop fails, and prints nothing into the connection."""
    for arguments in ('--once', '--json -n 2 -d 0.1'):
        done = subprocess.run(f'{TOP} --socket {folder}/sock {arguments} <&- >&-', shell=True,
                              stderr=subprocess.PIPE, timeout=LIMIT, env=ENVIRONMENT, check=False)
        if done.returncode != 1 or b'cannot write' not in done.stderr:
            fail('without standard output', done)


def check_recorded_death(folder, broker):
    """A recording of a broker that dies meanwhile reports that, and keeps the moments before."""
    path = os.path.join(folder, 'recorded')
    with subprocess.Popen([TOP, '--socket', folder + '/sock', '--record', path, '-n', '100000',
                           '-d', '0.1'], stderr=subprocess.PIPE, env=ENVIRONMENT) as recorder:
        end = time.monotonic() + LIMIT
        while not os.path.exists(path) or os.path.getsize(path) == 0:
            if time.monotonic() > end:
                fail('nothing is recorded')
            time.sleep(0.02)
        broker.kill()
        _, error = recorder.communicate(timeout=LIMIT)
        if recorder.returncode != 3 or b'stopped answering' not in error:
            fail('the recording of a dead broker', recorder, error)
    if not any('web' in line for line in printed('--page', path)):
        fail('what was recorded cannot be shown')


def check_keys(terminal):
    terminal.type('F1')
    terminal.wait_for('Views')
    terminal.type('Escape')
    terminal.wait_without('Views')
    terminal.type('F4', 'w', 'e', 'Enter')
    terminal.wait(lambda lines: rate_of(lines, 'web') > 0 and not rate_of(lines, 'llm'),
                  'the filter')
    # The filter stays visible, so that a user who forgot it does not search for the other tenants.
    terminal.wait_for('filter "we": 1 of ')
    terminal.type('F4', 'Escape')
    terminal.wait(all_work, 'all')
    terminal.type('d')
    terminal.wait(lambda lines: sum('large' in line for line in lines) > 5, 'decisions')
    terminal.type('p')
    terminal.wait(lambda lines: sum('large' in line for line in lines) == 3, 'plans')
    terminal.type('/', 'l', 'l', 'm', 'Enter', 'Enter')
    terminal.wait_for('fingerprint')
    terminal.wait_for('tenant llm')
    terminal.type('Escape')
    terminal.wait_without('fingerprint')
    terminal.type('l')
    terminal.wait_for('GRANTED')
    terminal.type('s')
    terminal.wait_for('PID')
    # q leaves the help, Shift-Tab leads to the tenants, and Delete removes their filter.
    terminal.type('h')
    terminal.wait_for('Views')
    terminal.type('q')
    terminal.wait_for('PID')
    terminal.type('BTab')
    terminal.wait(all_work, 'the tenants')
    terminal.type('f', 'w', 'e', 'Enter')
    terminal.wait_for('filter "we": 1 of ')
    terminal.type('DC')
    terminal.wait_without('filter "we"')
    terminal.type('1')
    terminal.wait(all_work, 'the overview')


def check_change(terminal):
    """The user who runs the broker is an administrator."""
    terminal.type('/', 'w', 'e', 'b', 'Enter', 'F7', '6', '4', 'M', 'i', 'B', 'Enter')
    terminal.wait_for('Set vram-max of tenant web to 64MiB?')
    terminal.type('n')
    terminal.wait_for('nothing was changed')
    terminal.type('F7', '1', 'x', 'Enter', 'y')
    terminal.wait(lambda lines: '1x' in lines[-1] and 'y/n' not in lines[-1]
                  and 'tenant web is' not in lines[-1], 'a refusal')
    terminal.type('F7', '6', '4', 'M', 'i', 'B', 'Enter', 'y')
    terminal.wait_for('vram-max of tenant web is 64MiB')
    terminal.type('F8')
    terminal.wait_for('Evict all plans of tenant web')
    terminal.type('y')
    terminal.wait_for('of tenant web evicted')
    # A plan's detail sheet shows that plan; a decision's sheet shows its tenant.
    terminal.type('p', '/', 'l', 'l', 'm', 'Enter', 'Enter')
    terminal.wait_for('fingerprint')
    terminal.type('F8')
    terminal.wait_for('Evict plan llm of tenant llm')
    terminal.type('n')
    terminal.wait_for('nothing was changed')
    terminal.type('Escape', 'd', '/', 'b', 'a', 't', 'Enter')
    terminal.wait_for('PREDICTED')
    terminal.type('F9')
    terminal.wait_for('Drain tenant batch')
    terminal.type('n', '1')
    terminal.wait_for('TASK ')
    terminal.type('/', 'w', 'e', 'b', 'Enter')
    terminal.type('F9')
    terminal.wait_for('Drain tenant web')
    terminal.type('y')
    # The mark behind the name is a triangle where there is no room for the word.
    terminal.wait(lambda lines: any(re.match(r' web (\(drained\)|▲)', line) for line in lines), 'drained')
    terminal.type('F9')
    terminal.wait_for('End draining of tenant web')
    terminal.type('y')
    terminal.wait(lambda lines: not any(re.match(r' web (\(drained\)|▲)', line) for line in lines),
                  'not drained')
    terminal.wait(all_work, 'work after draining')


def main():
    if not shutil.which('tmux'):
        print('skipped: there is no tmux')
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        # The columns are not those of the user who runs the test.
        ENVIRONMENT['XDG_CONFIG_HOME'] = folder
        check_pictures(folder)
        if UPDATES:
            return
        check_recorded(folder)
        check_mouse(folder)
        check_played(folder)
        check_hostile(folder)
        check_broker(folder)
    print('brokertop-tmux: well')


main()
