#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Generate completions of the programs' command lines for bash, zsh and fish.

    generate.py PROGRAMS.TXT OPTIONS.c KEYS.h FOLDER   writes FOLDER/NAME.bash, _NAME and NAME.fish of each program

OPTIONS.c is the table of brokerd's options, KEYS.h that of tenants' keys.
"""
import os
import re
import sys

OPTION = re.compile(r'(?:-(\w), )?--([a-z-]+)(\[)?(?:=((?:[^\]:]|:(?! ))+))?\]?: (.*)')


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
        # operands: one kind for each position; the last may be for all further ones, too
        self.options, self.commands, self.operands, self.repeats = [], [], [], False


# Kinds of objects of the running broker, with the operand of "brokerctl names" that lists them.
LIVE = {'TENANT': 'tenants', 'PLAN': 'plans', 'DEVICE': 'devices', 'SESSION': 'sessions', 'LEASE': 'leases'}


def words(kind):
    """Return the fixed words of the kind; None if it has no words."""
    if kind in ('FILE', 'DIR', 'TEXT', 'COMMAND', 'PROGRAM'):
        return None
    return [word for word in kind.split('|') if word not in LIVE]


def live(kind):
    """Return the operands of "brokerctl names" for the kind."""
    return [LIVE[word] for word in kind.split('|') if word in LIVE]


def by_word(kind):
    """Return pairs of a word and the kind after it, if the kind depends on the operand before."""
    if not re.fullmatch(r'\w+=[A-Z]+(,\w+=[A-Z]+)*', kind):
        return []
    return [tuple(part.split('=')) for part in kind.split(',')]


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
        elif kind == 'operands':
            scope.repeats = rest.endswith('...')
            scope.operands = ['|'.join(key + '=' for key in keys_of(keys)) if word == 'KEY' else word
                              for word in rest.removesuffix('...').split()]
        elif line == 'options of the table':
            scope.options += options_of(table)
        elif match:
            scope.options.append(Option(match))
        else:
            sys.exit(f'generate.py: line {number} is not understood: {line}')
    return programs


# ---- bash

BASH_LIVE = """# Offer what the running broker has: $1 is the operand of "brokerctl names". Clients choose names of plans, so that
# names are neither expanded nor left unquoted.
_@NAME@_live()
{
	local name i
	local -a where=()

	for ((i = 1; i + 2 < COMP_CWORD; i++)); do
		[[ ${COMP_WORDS[i]} == --socket || ${COMP_WORDS[i]} == --admin-socket ]] || continue
		name=${COMP_WORDS[i + 1]}
		if [[ $name == = ]]; then
			name=${COMP_WORDS[i + 2]}
		elif [[ $name == "~/"* ]]; then
			# The shell expands "~" only where it begins a word.
			name=$HOME${name:1}
		fi
		where+=("${COMP_WORDS[i]}=$name")
	done
	while IFS= read -r name; do
		[[ $name == "$cur"* ]] && COMPREPLY+=("$(printf %q "$name")")
	done < <(brokerctl "${where[@]}" --timeout=1 names "$@" 2>/dev/null)
}
"""

BASH_OPERANDS = """# Count the operands from word $1 on before the current word: n; the last of them: last. $2: options with a value.
_@NAME@_operands()
{
	local i

	n=0 last=
	for ((i = $1; i < COMP_CWORD; i++)); do
		case ${COMP_WORDS[i]} in
		-*)
			if [[ ${COMP_WORDS[i + 1]} == = ]]; then
				((i += 2))
			elif [[ " $2 " == *" ${COMP_WORDS[i]} "* ]]; then
				((i++))
			fi
			;;
		=) ((i++)) ;;
		*)
			last=${COMP_WORDS[i]}
			((n++))
			;;
		esac
	done
}
"""


def bash_candidates(kind, program):
    """Return lines of bash that add the candidates of a kind to COMPREPLY."""
    if kind == 'TEXT':
        return [':']
    actions = {'FILE': '-f', 'DIR': '-d', 'PROGRAM': '-c'}
    if kind in actions:
        return [f'COMPREPLY=($(compgen {actions[kind]} -- "$cur"))']
    if kind == 'COMMAND':
        kind = '|'.join(command.name for command in program.commands)
    lines = []
    if words(kind):
        lines.append(f'COMPREPLY=($(compgen -W "{" ".join(words(kind))}" -- "$cur"))')
    lines += [f'_{program.name}_live {names}' for names in live(kind)]
    if any(word.endswith('=') for word in words(kind)):
        lines.append('compopt -o nospace')
    return lines


def bash_operand(kind, program):
    if kind == 'PLAN':
        # The operand before is its tenant.
        return [f'_{program.name}_live plans --tenant="$last"']
    if not by_word(kind):
        return bash_candidates(kind, program)
    lines = ['case $last in']
    for word, then in by_word(kind):
        lines += [f'{word})'] + ['\t' + line for line in bash_candidates(then, program)] + ['\t;;']
    return lines + ['esac']


def bash_operands(scope, program):
    """Return bash for the operands of a scope, by position."""
    if len(scope.operands) == 1 and (scope.repeats or scope.operands == ['PROGRAM']):
        return bash_candidates(scope.operands[0], program)
    values = ' '.join(f'--{option.name}' + (f' -{option.letter}' if option.letter else '')
                      for option in scope.options if option.kind and not option.is_optional)
    first = '"$((i + 1))"' if program.commands else '1'
    lines = [f'_{program.name}_operands {first} "{values}"', 'case $n in']
    for number, kind in enumerate(scope.operands):
        is_rest = scope.repeats and number == len(scope.operands) - 1
        lines += [f'{"*" if is_rest else number})'] + ['\t' + line for line in bash_operand(kind, program)]
        lines.append('\t;;')
    return lines + ['esac']


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
    lines = bash_program(scope) if scope.operands == ['PROGRAM'] else []
    lines.append('case $prev in')
    for option in scope.options:
        if option.kind:
            names = f'--{option.name}' + (f' | -{option.letter}' if option.letter else '')
            lines.append(f'{names})')
            lines += ['\t' + line for line in bash_candidates(option.kind, program)]
            lines.append('\treturn')
            lines.append('\t;;')
    lines.append('esac')
    names = ' '.join(f'--{option.name}' + ('=' if option.kind and not option.is_optional else '')
                     for option in scope.options)
    lines += ['if [[ $cur == -* ]]; then',
              f'\tCOMPREPLY=($(compgen -W "{names}" -- "$cur"))',
              '\t[[ ${COMPREPLY[0]-} == *= ]] && compopt -o nospace']
    if scope.operands:
        # A value after "=" belongs to a key.
        lines += ['elif [[ -z $is_value ]]; then'] + ['\t' + line for line in bash_operands(scope, program)]
    lines.append('fi')
    return [indent + line for line in lines]


def has_live(program):
    """Return true if the program completes words that the running broker has."""
    kinds = [kind for scope in [program, *program.commands]
             for kind in [option.kind for option in scope.options if option.kind] + scope.operands]
    return any(live(part) for kind in kinds for part in [kind, *dict(by_word(kind)).values()])


def bash(program):
    function = '_' + program.name
    lines = [f'# bash completion for {program.name}: {program.summary}', '']
    if has_live(program):
        lines += BASH_LIVE.replace('@NAME@', program.name).split('\n')
    if any(scope.operands for scope in [program, *program.commands]):
        lines += BASH_OPERANDS.replace('@NAME@', program.name).split('\n')
    lines += [f'{function}()', '{',
              '\tlocal cur=${COMP_WORDS[COMP_CWORD]} prev=${COMP_WORDS[COMP_CWORD - 1]} command= i',
              '\tlocal IFS=$\' \\t\\n\' is_value= n last', '', '\tCOMPREPLY=()',
              '\t# bash takes "--option=word" for three words.',
              '\tif [[ $cur == = ]]; then', '\t\tcur= is_value=1',
              '\telif [[ $prev == = ]]; then', '\t\tprev=${COMP_WORDS[COMP_CWORD - 2]} is_value=1',
              '\tfi']
    if not program.commands:
        lines += bash_scope(program, program, '\t')
    else:
        takes = '|'.join(f'--{option.name}' for option in program.options if option.kind)
        lines += ['\tfor ((i = 1; i < COMP_CWORD; i++)); do', '\t\tcase ${COMP_WORDS[i]} in',
                  f'\t\t{takes})', '\t\t\t[[ ${COMP_WORDS[i + 1]-} == = ]] && ((i++))', '\t\t\t((i++))',
                  '\t\t\t;;', '\t\t-* | =) ;;', '\t\t*)', '\t\t\tcommand=${COMP_WORDS[i]}',
                  '\t\t\tbreak', '\t\t\t;;', '\t\tesac', '\tdone', '\tcase $command in', "\t'')"]
        commands = Scope(program.name, '')
        commands.options, commands.operands = program.options, ['COMMAND']
        lines += bash_scope(commands, program, '\t\t') + ['\t\t;;']
        for command in program.commands:
            lines += [f'\t{command.name})'] + bash_scope(command, program, '\t\t') + ['\t\t;;']
        lines.append('\tesac')
    lines += ['}', f'complete -F {function} {program.name}']
    return '\n'.join(lines) + '\n'


# ---- zsh

def zsh_quoted(text):
    return text.replace("'", "'\\''").replace('[', '(').replace(']', ')').replace(':', '\\:')


ZSH_LIVE = """# Offer what the running broker has.
_@NAME@_live() {
	local -a names
	names=(${(f)"$(brokerctl $where --timeout=1 names $@ 2>/dev/null)"})
	compadd -a names
}
local -a where
local word option
for word in $words[2,CURRENT-1]; do
	if [[ -n $option ]]; then
		# The shell expands "~" only where it begins a word.
		[[ $word == "~/"* ]] && word=$HOME$word[2,-1]
		where+=($option=${(Q)word})
		option=
	elif [[ $word == --(admin-|)socket ]]; then
		option=$word
	elif [[ $word == --(admin-|)socket=* ]]; then
		where+=(${(Q)word})
	fi
done
"""


def zsh_calls(kind, program):
    """Return commands that offer the words, and the live names, of a kind."""
    keys = [word for word in words(kind) if word.endswith('=')]
    whole = [word for word in words(kind) if not word.endswith('=')]
    fixed = [f'compadd -- {" ".join(whole)}'] if whole else []
    # A value follows a key without a blank.
    fixed += [f'compadd -S "" -- {" ".join(keys)}'] if keys else []
    return '; '.join(fixed + [f'_{program.name}_live {names}' for names in live(kind)])


def zsh_kind(kind, name, program):
    if kind == 'FILE':
        return f':{name}:_files'
    if kind == 'DIR':
        return f':{name}:_files -/'
    if kind == 'TEXT':
        return f':{name}:'
    if kind == 'COMMAND':
        kind = '|'.join(command.name for command in program.commands)
    if by_word(kind):
        parts = [f'{word}) {zsh_calls(then, program)} ;;' for word, then in by_word(kind)]
        return f':{name}:{{case $words[CURRENT-1] in {" ".join(parts)} esac}}'
    if kind == 'PLAN':
        # The operand before is its tenant.
        return f':{name}:{{_{program.name}_live plans --tenant=$words[CURRENT-1]}}'
    if live(kind) or any(word.endswith('=') for word in words(kind)):
        return f':{name}:{{{zsh_calls(kind, program)}}}'
    offered = ' '.join(words(kind)).replace(':', '\\:')
    return f':{name}:({offered})'


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
    if scope.operands == ['PROGRAM']:
        return arguments + ["'(-)1:program: _command_names -e'", "'*::argument:_normal'"]
    for number, kind in enumerate(scope.operands, 1):
        is_rest = scope.repeats and number == len(scope.operands)
        arguments.append(f"'{'*' if is_rest else number}{zsh_kind(kind, 'argument', program)}'")
    return arguments


def zsh(program):
    lines = [f'#compdef {program.name}', f'# {program.summary}', '']
    if has_live(program):
        lines += ZSH_LIVE.replace('@NAME@', program.name).split('\n')
    if not program.commands:
        lines.append('_arguments -S \\\n\t' + ' \\\n\t'.join(zsh_arguments(program, program)))
        return '\n'.join(lines) + '\n'
    lines += ['local curcontext="$curcontext" state line', 'local -a subcommands', 'subcommands=(']
    lines += [f"\t'{command.name}:{zsh_quoted(command.summary)}'" for command in program.commands]
    lines += [')', '', '_arguments -C -S \\\n\t' + ' \\\n\t'.join(
        zsh_arguments(program, program) + ["'1:command:->command'", "'*::argument:->argument'"]),
        '', 'case $state in', 'command)', "\t_describe 'command' subcommands", '\t;;', 'argument)',
        '\tcase $words[1] in']
    for command in program.commands:
        lines += [f'\t{command.name})', '\t\t_arguments -S \\\n\t\t\t' + ' \\\n\t\t\t'.join(
            zsh_arguments(command, program)), '\t\t;;']
    lines += ['\tesac', '\t;;', 'esac']
    return '\n'.join(lines) + '\n'


# ---- fish

def fish_quoted(text):
    return "'" + text.replace('\\', '\\\\').replace("'", "\\'") + "'"


FISH_LIVE = """# Print what the running broker has: $argv is the operands of "brokerctl names".
function __@NAME@_live
    set --local where
    set --local option
    for word in (commandline -opc)[2..]
        if test -n "$option"
            # The shell expands "~" only where it begins a word.
            if string match -q -- '~/*' $word
                set word $HOME(string sub -s 2 -- $word)
            end
            set --append where $option=$word
            set option
        else if contains -- $word --socket --admin-socket
            set option $word
        else if string match -qr -- '^--(admin-)?socket=' $word
            set --append where $word
        end
    end
    brokerctl $where --timeout=1 names $argv 2>/dev/null
end
"""

FISH_AT = """# True if the current word is operand $argv[2] of command $argv[1]: a number from 0, with + for further ones; -1 for the
# command itself. A word for $argv[3] must be the operand before. $argv[4..] are the options with a value.
function __@NAME@_at
    set --local n -1
    set --local last
    set --local skips 0
    for word in (commandline -opc)[2..]
        if test $skips = 1
            set skips 0
        else if contains -- $word $argv[4..] --socket --admin-socket --timeout
            set skips 1
        else if not string match -q -- '-*' $word
            if test $n = -1
                test $word = $argv[1]
                or return 1
            end
            set n (math $n + 1)
            set last $word
        end
    end
    test -z "$argv[3]" -o "$argv[3]" = "$last"
    or return 1
    if string match -q -- '*+' $argv[2]
        test $n -ge (string trim -r -c + $argv[2])
    else
        test $n = $argv[2]
    end
end
"""


def fish_values(kind, program):
    """Return the candidates of a kind as fish takes them with -a; None if they are no words."""
    if kind == 'COMMAND':
        return ' '.join(command.name for command in program.commands)
    if words(kind) is None:
        return None
    calls = [f'(__{program.name}_live {names})' for names in live(kind)]
    return ' '.join(words(kind) + calls)


def fish_scope(scope, program, condition):
    lines = []
    begin = f'complete -c {program.name}' + (f' -n {fish_quoted(condition)}' if condition else '')
    for option in scope.options:
        line = begin + (f' -s {option.letter}' if option.letter else '') + f' -l {option.name}'
        if option.words() is not None:
            line += f' -x -a {fish_quoted(fish_values(option.kind, program))}'
        elif option.kind == 'DIR':
            line += " -x -a '(__fish_complete_directories)'"
        elif option.kind == 'FILE':
            line += ' -r -F'
        elif option.kind:
            line += ' -x'
        lines.append(f'{line} -d {fish_quoted(option.help)}')
    if scope.operands == ['PROGRAM']:
        lines.append(f"{begin} -F -a '(__fish_complete_command)'")
        return lines
    values = ' '.join(f'--{option.name}' for option in scope.options if option.kind and not option.is_optional)
    for number, kind in enumerate(scope.operands):
        is_rest = scope.repeats and number == len(scope.operands) - 1
        at = f'__{program.name}_at {scope.name} {number}{"+" if is_rest else ""}'

        def where(word):
            if not program.commands or scope is program:
                return begin
            return f'complete -c {program.name} -n ' + fish_quoted(f'{at} "{word}" {values}'.rstrip())

        if kind == 'FILE':
            lines.append(f"{where('')} -F")
        elif kind == 'PLAN':
            # The operand before is its tenant.
            lines.append(f"{where('')} -a '(__{program.name}_live plans --tenant=(commandline -opc)[-1])'")
        elif by_word(kind):
            lines += [f'{where(word)} -a {fish_quoted(fish_values(then, program))}' for word, then in by_word(kind)]
        elif fish_values(kind, program) is not None:
            lines.append(f"{where('')} -a {fish_quoted(fish_values(kind, program))}")
    return lines


def fish(program):
    lines = [f'# fish completion for {program.name}: {program.summary}',
             f'complete -c {program.name} -f']
    if has_live(program):
        lines += FISH_LIVE.replace('@NAME@', program.name).split('\n')
    none = ''
    if program.commands:
        lines += FISH_AT.replace('@NAME@', program.name).split('\n')
        none = f'__{program.name}_at "" -1'
    lines += fish_scope(program, program, none)
    for command in program.commands:
        lines.append(f'complete -c {program.name} -n {fish_quoted(none)} -a {command.name} '
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
