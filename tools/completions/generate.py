#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Generate completions of the programs' command lines for bash, zsh and fish.

    generate.py PROGRAMS.TXT OPTIONS.c KEYS.h FOLDER   writes FOLDER/NAME.bash, _NAME and NAME.fish of each program

OPTIONS.c is the table of brokerd's options, KEYS.h that of tenants' keys.
"""
import os
import re
import sys

OPTION = re.compile(r'(?:-(\w), )?--([a-z-]+)(\[)?(?:=([^\]:]+))?\]?: (.*)')


class Option:
    def __init__(self, match):
        self.letter, self.name, optional, self.kind, self.help = match.groups()
        self.is_optional = bool(optional)

    def words(self):
        return words(self.kind) if self.kind else None


class Scope:
    """A program or a command."""

    def __init__(self, name, summary):
        self.name, self.summary = name, summary
        self.options, self.commands, self.operands = [], [], None


def words(kind):
    return None if kind in ('FILE', 'DIR', 'TEXT', 'COMMAND', 'PROGRAM') else kind.split('|')


def options_of(text):
    """Yield the options of a table in C: broker/daemon/options-table.c."""
    choices = {name: '|'.join(re.findall(r'\{"([^"]+)"', words)) for name, words in
               re.findall(r'struct option_choice (\w+)\[\] = \{(.*?)NULL, 0\}', text, re.DOTALL)}
    rows = text[text.index('option_rows[] = {'):]
    for row in re.findall(r'^\t\{("[a-z-]+", .*?)\},$', rows, re.DOTALL | re.MULTILINE):
        name, value, kind, brief = re.match(r'"([a-z-]+)", (NULL|"[^"]*"), \w+, &option_kind_(\w+),\s+"([^"]*)"',
                                            row).groups()
        words = re.search(r'\.choices = (\w+)', row)
        if words:
            value = f'[={choices[words[1]]}]' if value.startswith('"[') else f'={choices[words[1]]}'
        elif kind == 'flag':
            value = ''
        else:
            value = '=' + {'"PATH"': 'FILE', '"FILE"': 'FILE', '"DIR"': 'DIR'}.get(value, 'TEXT')
        yield Option(OPTION.fullmatch(f'--{name}{value}: {brief}'))


def keys_of(text):
    """Return the names of the tenants' keys in shm/policy-keys.h."""
    return re.findall(r'KEY\(\w+, "([a-z-]+)", ', text)


def parse(text, table, keys):
    """Return the programs. @table: C table of a program's options; @keys: C table of tenants' keys."""
    programs, scope = [], None
    for number, line in enumerate(text.splitlines(), 1):
        line = line.strip()
        if not line or line.startswith('#'):
            continue
        kind, _, rest = line.partition(' ')
        match = OPTION.fullmatch(line)
        if kind in ('program', 'command'):
            scope = Scope(*rest.split(': ', 1))
            if kind == 'program':
                programs.append(scope)
            else:
                programs[-1].commands.append(scope)
        elif line == 'operands keys of the table':
            scope.operands = '|'.join(key + '=' for key in keys_of(keys))
        elif kind == 'operands':
            scope.operands = rest
        elif line == 'options of the table':
            scope.options += options_of(table)
        elif match:
            scope.options.append(Option(match))
        else:
            sys.exit(f'generate.py: line {number} is not understood: {line}')
    return programs


# ---- bash

def bash_candidates(kind, program):
    if kind == 'FILE':
        return 'compgen -f -- "$cur"'
    if kind == 'DIR':
        return 'compgen -d -- "$cur"'
    if kind == 'PROGRAM':
        return 'compgen -c -- "$cur"'
    if kind == 'COMMAND':
        kind = '|'.join(command.name for command in program.commands)
    return f'compgen -W "{kind.replace("|", " ")}" -- "$cur"' if kind != 'TEXT' else ':'


def bash_program(scope):
    """Return bash that delegates to another program's completion, if the operands are a program."""
    takes = ' | '.join(f'--{option.name}' for option in scope.options if option.kind)
    return ['for ((i++; i < COMP_CWORD; i++)); do', '\tcase ${COMP_WORDS[i]} in', f'\t{takes})',
            '\t\t[[ ${COMP_WORDS[i + 1]-} == = ]] && ((i++))', '\t\t((i++))', '\t\t;;',
            '\t--)', '\t\t((i++))', '\t\tbreak', '\t\t;;', '\t-* | =) ;;', '\t*) break ;;', '\tesac',
            'done',
            'if ((i < COMP_CWORD)) || [[ ${COMP_WORDS[COMP_CWORD - 1]} == -- ]]; then',
            '\tif declare -F _command_offset >/dev/null; then', '\t\t_command_offset "$i"',
            '\telif ((i < COMP_CWORD)); then', '\t\tCOMPREPLY=($(compgen -f -- "$cur"))',
            '\telse', '\t\tCOMPREPLY=($(compgen -c -- "$cur"))', '\tfi', '\treturn', 'fi']


def bash_scope(scope, program, indent):
    """Return bash for the options and operands of a command, or of a program without commands."""
    lines = bash_program(scope) if scope.operands == 'PROGRAM' else []
    lines.append('case $prev in')
    for option in scope.options:
        if option.kind:
            names = f'--{option.name}' + (f' | -{option.letter}' if option.letter else '')
            lines.append(f'{names})')
            lines.append(f'\tCOMPREPLY=($({bash_candidates(option.kind, program)}))')
            lines.append('\treturn')
            lines.append('\t;;')
    lines.append('esac')
    names = ' '.join(f'--{option.name}' + ('=' if option.kind and not option.is_optional else '')
                     for option in scope.options)
    lines += ['if [[ $cur == -* ]]; then',
              f'\tCOMPREPLY=($(compgen -W "{names}" -- "$cur"))',
              '\t[[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace']
    if scope.operands:
        lines += ['else', f'\tCOMPREPLY=($({bash_candidates(scope.operands, program)}))']
        if '=' in scope.operands:
            lines.append('\tcompopt -o nospace')
    lines.append('fi')
    return [indent + line for line in lines]


def bash(program):
    function = '_' + program.name
    lines = [f'# bash completion for {program.name}: {program.summary}', '', f'{function}()', '{',
             '\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= i',
             '\tlocal IFS=$\' \\t\\n\'', '', '\tCOMPREPLY=()',
             '\t# bash takes "--option=word" for three words.',
             '\tif [[ $cur == = ]]; then', '\t\tcur=',
             '\telif [[ $prev == = ]]; then', '\t\tprev=${COMP_WORDS[COMP_CWORD - 2]}', '\tfi']
    if not program.commands:
        lines += bash_scope(program, program, '\t')
    else:
        takes = '|'.join(f'--{option.name}' for option in program.options if option.kind)
        lines += ['\tfor ((i = 1; i < COMP_CWORD; i++)); do', '\t\tcase ${COMP_WORDS[i]} in',
                  f'\t\t{takes})', '\t\t\t[[ ${COMP_WORDS[i + 1]-} == = ]] && ((i++))', '\t\t\t((i++))',
                  '\t\t\t;;', '\t\t-* | =) ;;', '\t\t*)', '\t\t\tcommand=${COMP_WORDS[i]}',
                  '\t\t\tbreak', '\t\t\t;;', '\t\tesac', '\tdone', '\tcase $command in', "\t'')"]
        commands = Scope(program.name, '')
        commands.options, commands.operands = program.options, 'COMMAND'
        lines += bash_scope(commands, program, '\t\t') + ['\t\t;;']
        for command in program.commands:
            lines += [f'\t{command.name})'] + bash_scope(command, program, '\t\t') + ['\t\t;;']
        lines.append('\tesac')
    lines += ['}', f'complete -F {function} {program.name}']
    return '\n'.join(lines) + '\n'


# ---- zsh

def zsh_quoted(text):
    return text.replace("'", "'\\''").replace('[', '(').replace(']', ')').replace(':', '\\:')


def zsh_kind(kind, name, program):
    if kind == 'FILE':
        return f':{name}:_files'
    if kind == 'DIR':
        return f':{name}:_files -/'
    if kind == 'TEXT':
        return f':{name}:'
    if kind == 'COMMAND':
        kind = '|'.join(command.name for command in program.commands)
    return f':{name}:({kind.replace("|", " ")})'


def zsh_arguments(scope, program):
    arguments = []
    for option in scope.options:
        text = f'[{zsh_quoted(option.help)}]'
        kind = zsh_kind(option.kind, option.name, program) if option.kind else ''
        if option.is_optional:
            kind = ':' + kind
        sign = '=-' if option.is_optional else '=' if option.kind else ''
        if option.letter:
            arguments.append(f"'-{option.letter}{'+' if option.kind else ''}{text}{kind}'")
        arguments.append(f"'--{option.name}{sign}{text}{kind}'")
    if scope.operands == 'PROGRAM':
        arguments += ["'(-)1:program:_command_names -e'", "'*::argument:_normal'"]
    elif scope.operands:
        arguments.append(f"'*{zsh_kind(scope.operands, 'argument', program)}'")
    return arguments


def zsh(program):
    lines = [f'#compdef {program.name}', f'# {program.summary}', '']
    if not program.commands:
        lines.append('_arguments -S \\\n\t' + ' \\\n\t'.join(zsh_arguments(program, program)))
        return '\n'.join(lines) + '\n'
    lines += ['local curcontext="$curcontext" state line', 'local -a commands', 'commands=(']
    lines += [f"\t'{command.name}:{zsh_quoted(command.summary)}'" for command in program.commands]
    lines += [')', '', '_arguments -C -S \\\n\t' + ' \\\n\t'.join(
        zsh_arguments(program, program) + ["'1:command:->command'", "'*::argument:->argument'"]),
        '', 'case $state in', 'command)', "\t_describe 'command' commands", '\t;;', 'argument)',
        '\tcase $words[1] in']
    for command in program.commands:
        lines += [f'\t{command.name})', '\t\t_arguments -S \\\n\t\t\t' + ' \\\n\t\t\t'.join(
            zsh_arguments(command, program)), '\t\t;;']
    lines += ['\tesac', '\t;;', 'esac']
    return '\n'.join(lines) + '\n'


# ---- fish

def fish_quoted(text):
    return "'" + text.replace('\\', '\\\\').replace("'", "\\'") + "'"


def fish_scope(scope, program, condition):
    lines = []
    begin = f'complete -c {program.name}' + (f' -n {fish_quoted(condition)}' if condition else '')
    for option in scope.options:
        line = begin + (f' -s {option.letter}' if option.letter else '') + f' -l {option.name}'
        if option.words():
            line += f' -x -a {fish_quoted(" ".join(option.words()))}'
        elif option.kind == 'DIR':
            line += " -x -a '(__fish_complete_directories)'"
        elif option.kind == 'FILE':
            line += ' -r -F'
        elif option.kind:
            line += ' -x'
        lines.append(f'{line} -d {fish_quoted(option.help)}')
    if scope.operands == 'FILE':
        lines.append(f'{begin} -F')
    elif scope.operands == 'PROGRAM':
        lines.append(f"{begin} -F -a '(__fish_complete_command)'")
    elif scope.operands == 'COMMAND':
        lines.append(f'{begin} -a {fish_quoted(" ".join(c.name for c in program.commands))}')
    elif scope.operands:
        lines.append(f'{begin} -a {fish_quoted(" ".join(words(scope.operands)))}')
    return lines


def fish(program):
    lines = [f'# fish completion for {program.name}: {program.summary}',
             f'complete -c {program.name} -f']
    none = '__fish_use_subcommand' if program.commands else ''
    lines += fish_scope(program, program, none)
    for command in program.commands:
        lines.append(f'complete -c {program.name} -n {none} -a {command.name} '
                     f'-d {fish_quoted(command.summary)}')
        lines += fish_scope(command, program, f'__fish_seen_subcommand_from {command.name}')
    return '\n'.join(lines) + '\n'


def read(path):
    with open(path, encoding='utf-8') as file:
        return file.read()


def main(programs, table, keys, folder):
    programs = parse(read(programs), read(table), read(keys))
    for program in programs:
        for name, text in ((f'{program.name}.bash', bash(program)), (f'_{program.name}', zsh(program)),
                           (f'{program.name}.fish', fish(program))):
            with open(os.path.join(folder, name), 'w', encoding='utf-8') as file:
                file.write(text)


if __name__ == '__main__':
    main(*sys.argv[1:])
