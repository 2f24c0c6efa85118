#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Programs' options agree with the shell completions and with brokerctl(1).

    completions.py FOLDER BROKERCTL.1 PROGRAM...

FOLDER has the files for bash, zsh and fish. Each installed shell must parse its files; bash must also
complete correctly.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile

LIMIT = 60 * int(os.environ.get('RBK_TEST_SLOW', '1'))
problems = []


def expect(condition, *what):
    if not condition:
        problems.append(' '.join(map(str, what)))


def read(*path):
    with open(os.path.join(*path), encoding='utf-8') as file:
        return file.read()


def help_of(program, *command):
    result = subprocess.run([program, *command, '--help'], stdout=subprocess.PIPE, timeout=LIMIT,
                            text=True, check=False)
    expect(result.returncode == 0, program, *command, '--help ended with', result.returncode)
    return result.stdout


def options_of(text):
    """Return the long options of a --help text, which are at the beginning of lines."""
    found = set()
    for line in re.findall(r'^ {2,8}(-.*)$', text, re.MULTILINE):
        # The head of a line ends at two spaces or where a sentence begins.
        head = re.split(r' {2,}|(?<=[^,]) (?=[a-z])', line)[0]
        found |= set(re.findall(r'--[a-z][a-z-]*', head))
    return found


def commands_of(text):
    part = re.search(r'^Commands:\n((?:  .*\n)+)', text, re.MULTILINE)
    return re.findall(r'^  ([a-z-]+) ', part.group(1), re.MULTILINE) if part else []


def bash_options(text):
    return {word.rstrip('=') for line in re.findall(r'compgen -W "([^"]*)"', text)
            for word in line.split() if word.startswith('--')}


def zsh_options(text):
    return set(re.findall(r"'(--[a-z-]+?)(?:=-?)?\[", text))


def fish_options(text):
    return {'--' + name for name in re.findall(r' -l ([a-z-]+)', text)}


def check_program(folder, program):
    name = os.path.basename(program)
    files = {form: read(folder, form.format(name)) for form in ('{}.bash', '_{}', '{}.fish')}
    text = help_of(program)
    options, commands = options_of(text), commands_of(text)
    for command in commands:
        options |= options_of(help_of(program, command))
    expect(len(options) > 4, name, 'has few options', options)
    for form, listed in (('{}.bash', bash_options), ('_{}', zsh_options), ('{}.fish', fish_options)):
        there = listed(files[form])
        expect(there == options, form.format(name), 'has not', sorted(options - there),
               'and has beside', sorted(there - options))
        for command in commands:
            expect(re.search(r'\b%s\b' % command, files[form]), form.format(name), 'has not',
                   command)
    for shell, form in (('bash', '{}.bash'), ('zsh', '_{}'), ('fish', '{}.fish')):
        if not shutil.which(shell):
            print(f'completions.py: {shell} is not installed, so its completions are not tried')
            continue
        result = subprocess.run([shell, '-n', os.path.join(folder, form.format(name))],
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=LIMIT,
                                text=True, check=False)
        expect(result.returncode == 0 and not result.stdout, shell, name, result.stdout)
    return commands


# Names that a broker may have. Clients choose those of plans.
HOSTILE = '$(touch was-run)`touch was-run`;x y'
STUB = r"""#!/bin/sh
# Print the names that brokerctl would print, and check how it was called.
for word; do case $word in
--socket=/x | --admin-socket=/x | --socket="$HOME"/x) ;;
--*socket=*) exit 1 ;;
--timeout=1) timeout=1 ;;
--tenant=*) of=${word#--tenant=}- ;;
names) names=1 ;;
*) kind=$word ;;
esac; done
[ "$timeout$names" = 11 ] || exit 1
case $kind in
tenants) printf '%s\n' web batch ;;
plans) printf '%s\n' "${of}net" '@HOSTILE@' ;;
devices) printf '%s\n' CPU GPU1 ;;
leases) printf '%s\n' 7 12 ;;
sessions) printf '%s\n' 3 ;;
esac
"""


def bash(folder, lines):
    """Return bash's completions of the last word of each line, of which bash makes three words of "--option=word"."""
    script = ('source "$0/$1.bash"; COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _$1 2>/dev/null; '
              'printf "%s\\n" "${COMPREPLY[@]}"')
    found = []
    for line in lines:
        words = [part for word in line.split(' ') for part in re.findall('=|[^=]+', word) or ['']]
        result = subprocess.run(['bash', '-c', script, folder, *words], stdout=subprocess.PIPE,
                                timeout=LIMIT, text=True, check=False)
        found.append(result.stdout.splitlines() if result.stdout.strip() else [])
    return found


# zsh completes in its line editor only. Each line is completed to all its candidates at once.
ZSHRC = """fpath=(@FOLDER@ $fpath)
autoload -Uz compinit
compinit -D -u
insert-all() { compstate[insert]=all compstate[list]= }
complete-all() {
	local line
	while IFS= read -r line; do
		BUFFER=$line CURSOR=$#line comppostfuncs=(insert-all)
		zle complete-word
		print -r -- "$BUFFER" >>$ZDOTDIR/found
	done <$ZDOTDIR/lines
	exit
}
zle -N zle-line-init complete-all
"""
ZSH_TERMINAL = 'zmodload zsh/zpty && zpty zsh zsh -d -i && while zpty -r zsh; do :; done'


def zsh(folder, lines):
    home = os.environ['HOME']
    for name, text in (('.zshrc', ZSHRC.replace('@FOLDER@', folder)), ('lines', '\n'.join(lines) + '\n'), ('found', '')):
        with open(os.path.join(home, name), 'w', encoding='utf-8') as file:
            file.write(text)
    result = subprocess.run(['zsh', '-f', '-c', ZSH_TERMINAL], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, timeout=LIMIT, env=dict(os.environ, ZDOTDIR=home), check=False)
    found = read(home, 'found').splitlines()
    expect(len(found) == len(lines), 'zsh ended with', result.returncode, result.stdout.decode(errors='replace'))
    for line in found:
        expect(not line.endswith('= '), 'zsh adds a blank after "=":', line)
    return [[re.sub(r'^--[a-z-]+=', '', word) for word in re.findall(r'(?:\\.|\S)+', after[line.rindex(' ') + 1:])]
            if after != line else [] for line, after in zip(lines, found)]


def fish(folder, lines):
    script = f'source {folder}/brokerctl.fish; source {folder}/brokertop.fish; ' \
             'while read --line line; complete -C $line; echo ----; end'
    result = subprocess.run(['fish', '-c', script], input='\n'.join(lines) + '\n', stdout=subprocess.PIPE,
                            stderr=subprocess.STDOUT, timeout=LIMIT, text=True, check=False)
    return [[re.sub(r'^--[a-z-]+=(?=.)', '', line.split('\t')[0]) for line in part.splitlines()]
            for part in result.stdout.split('----\n')[:-1]]


CASES = (
    ('brokerctl sess', ['sessions']),
    ('brokerctl --socket=/x ten', ['tenants']),
    ('brokerctl --socket /x ten', ['tenants']),
    ('brokerctl --socket /x force-cpu o', ['on', 'off']),
    ('brokerctl tenants --sort=l', ['latency']),
    ('brokerctl watch pla', ['plans']),
    ('brokerctl set web vram-m', ['vram-max=']),
    ('brokerctl drain dev', ['device']),
    # Operands by position, from the running broker.
    ('brokerctl set w', ['web']),
    ('brokerctl --socket=/x set w', ['web']),
    ('brokerctl --socket /x set w', ['web']),
    ('brokerctl --socket ~/x set w', ['web']),
    ('brokerctl --admin-socket=/x set w', ['web']),
    ('brokerctl --socket=/y set w', []),
    ('brokerctl --socket /y set w', []),
    ('brokerctl --socket=~/x set w', []),
    ('brokerctl set web vram-max=1G weig', ['weight=']),
    ('brokerctl set we wei', ['weight=']),
    ('brokerctl drain device ', ['CPU', 'GPU1']),
    ('brokerctl drain tenant b', ['batch']),
    ('brokerctl drain --wait=5 tenant b', ['batch']),
    ('brokerctl evict ', ['web', 'batch']),
    ('brokerctl evict --device=G', ['GPU1']),
    ('brokerctl evict --device 1 web w', ['web-net']),
    ('brokerctl lease --vram 4G 1', ['12']),
    ('brokerctl why pl', ['plan']),
    ('brokerctl why ne', ['net']),
    ('brokerctl why tenant w', ['web']),
    ('brokerctl why task ', []),
    ('brokerctl why lease 1', ['12']),
    ('brokerctl names se', ['sessions']),
    ('brokerctl plans --tenant=b', ['batch']),
    ('brokertop -t b', ['batch']),
    ('brokertop --socket ~/x --tenant=w', ['web']),
    ('brokertop --view=p', ['plans']))
# A client's name of a plan is data, and is quoted where it is offered.
QUOTED = r'\$\(touch\ was-run\)\`touch\ was-run\`\;x\ y'
CASES_OF = {
    'bash': (
        ('brokerctl --ti', ['--timeout=']),
        ('brokerctl tenants --so', ['--sort=']),
        ('brokerctl set web vram-max=', []),
        ('brokerctl drain tenant web ', []),
        ('brokerctl watch plans ', []),
        ('brokerctl force-cpu on ', []),
        ('brokerctl why plan $', [QUOTED]),
        ('brokerctl exec --vram 4G --no', ['--no-layer']),
        ('brokerctl exec --vram 4G readon', ['readonly']),
        ('brokerctl exec --vram=4G -- readon', ['readonly']),
        ('brokerctl exec --vram 4G -- ls --no', []),
        ('brokerctl exec ls --vram /et', ['/etc']),
        ('brokerd --gpu s', ['software', 'software:2'])),
    'zsh': (
        ('brokerctl why plan ', ['net', QUOTED]),
        ('brokerctl exec --vram 4G run-only-st', ['run-only-stub']),
        ('brokerctl exec -- run-only-st', ['run-only-stub'])),
    'fish': (
        ('brokerctl why plan ', ['net', HOSTILE]),
        ('brokerctl exec --vram 4G run-only-st', ['run-only-stub'])),
}


def words_of(program, commands):
    """Return command lines that end where a fixed word is due, with the words that --help has there."""
    cases = []
    for command in commands:
        text = help_of(program, command)
        options = re.findall(r'^  --([a-z-]+)=([a-z-]+(?:\|[a-z-]+)+)$', text, re.MULTILINE)
        keys = re.search(r'^      KEY: (.*)$', text, re.MULTILINE)
        if keys:
            options.append(('sort', keys[1].replace(' ', '|')))
        # A letter shows that a shell filters, and keeps zsh's answer in one word.
        for option, words in options:
            for first in {word[0] for word in words.split('|')}:
                cases.append((f'brokerctl {command} --{option}={first}',
                              [word for word in words.split('|') if word.startswith(first)]))
    expect(len(cases) > 40, 'few words in --help', cases)
    return cases


def check_completed(folder, in_help):
    with tempfile.TemporaryDirectory() as home:
        for name in ('brokerctl', 'run-only-stub'):
            stub = os.path.join(home, name)
            with open(stub, 'w', encoding='utf-8') as file:
                file.write(STUB.replace('@HOSTILE@', HOSTILE))
            os.chmod(stub, 0o755)
        os.environ.update(HOME=home, PATH=home + ':' + os.environ['PATH'])
        for shell in (bash, zsh, fish):
            if not shutil.which(shell.__name__):
                continue
            cases = CASES + CASES_OF[shell.__name__] + in_help
            for (line, expected), found in zip(cases, shell(folder, [line for line, _ in cases])):
                expect(sorted(found) == sorted(expected), f'{shell.__name__} completes "{line}" to', found)
        expect(not os.path.exists('was-run'), 'a name of a plan was run')


def check_page(page, program, commands):
    """Each command of brokerctl and each of its options is described."""
    text = read(page)
    described = text[text.index('.Sh DESCRIPTION'):]
    for command in commands:
        part = re.search(r'^\.It Cm %s\b.*\n((?:(?!\.It Cm ).*\n)*)' % command, described,
                         re.MULTILINE)
        expect(part, 'brokerctl(1) does not describe', command)
        for option in options_of(help_of(program, command)):
            expect(re.search(r'Fl -%s\b' % option[2:], described),
                   'brokerctl(1) does not describe', option, 'of', command)
            synopses = re.findall(r'^\.Cm %s\b((?:(?!\.Nm).*\n)*)' % command, text, re.MULTILINE)
            expect(synopses and (option == '--help' or any(f'Fl -{option[2:]}' in forms for forms in synopses)),
                   'the synopsis of brokerctl(1) has not', option, 'of', command)
    for option in options_of(help_of(program)):
        expect(f'It Fl -{option[2:]}' in described, 'brokerctl(1) does not describe', option)


def main():
    folder, page, *programs = sys.argv[1:]
    in_help = []
    for program in programs:
        commands = check_program(folder, program)
        if os.path.basename(program) == 'brokerctl':
            expect(len(commands) > 15, 'few commands', commands)
            check_page(page, program, commands)
            in_help = words_of(program, commands)
    check_completed(folder, tuple(in_help))
    for problem in problems:
        print('completions.py:', problem)
    return 1 if problems else 0


if __name__ == '__main__':
    sys.exit(main())
