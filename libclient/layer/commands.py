#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the functions that pass recorded commands on to the current part of a command buffer.

    commands.py VK_XML OUTPUT

VK_XML is Vulkan's registry, of the version of the headers. The output has a function for each
vkCmd*() that cut.c does not define itself, the effect of each, and the names of the device
extensions whose commands are all known.
"""
import sys
from xml.etree import ElementTree

# Defined by cut.c.
OWN = {'vkCmdBindPipeline', 'vkCmdBindDescriptorSets', 'vkCmdPushConstants', 'vkCmdDispatch', 'vkCmdDispatchBase',
       'vkCmdDispatchBaseKHR', 'vkCmdDispatchIndirect', 'vkCmdExecuteCommands', 'vkCmdPushDescriptorSetKHR',
       'vkCmdPushDescriptorSetWithTemplateKHR'}
LABELS = {'vkCmdBeginDebugUtilsLabelEXT': 'CUT_BEGIN_LABEL', 'vkCmdEndDebugUtilsLabelEXT': 'CUT_END_LABEL',
          'vkCmdDebugMarkerBeginEXT': 'CUT_BEGIN_MARKER', 'vkCmdDebugMarkerEndEXT': 'CUT_END_MARKER'}


def names(element, attribute):
    return set(filter(None, element.get(attribute, '').split(',')))


def is_declared(element):
    """Return True for what vulkan_core.h declares without a macro."""
    return not element.get('platform') and 'vulkan' in (names(element, 'supported') or names(element, 'api') or {'vulkan'})


def required(element):
    """Return the commands that a version or an extension has."""
    return {command.get('name') for require in element.iterfind('require') if 'vulkan' in (names(require, 'api') or {'vulkan'})
            for command in require.iterfind('command')}


def effect(name, command):
    """Return the effect of a command on what may be cut (enum cut_effect)."""
    tasks = names(command, 'tasks')
    if name in LABELS:
        return LABELS[name]
    if 'Label' in name or 'Marker' in name and 'Performance' not in name:
        return 'CUT_NOTHING'
    if name.startswith('vkCmdBeginRendering'):
        return 'CUT_BEGIN_RENDERING'
    if name.startswith(('vkCmdBeginRenderPass', 'vkCmdBeginVideoCoding')):
        return 'CUT_BEGIN_PASS'
    if name.startswith('vkCmdBegin'):
        return 'CUT_BEGIN'
    if name.startswith('vkCmdEnd'):
        return 'CUT_END'
    # It executes what lies in memory, with state that is bound.
    if 'indirection' in tasks or 'GeneratedCommands' in name:
        return 'CUT_STATE'
    if tasks == {'action'} and command.get('renderpass') == 'outside':
        return 'CUT_ACTION'
    if tasks <= {'action', 'synchronization'} or command.get('renderpass') == 'inside' and tasks != {'state'}:
        return 'CUT_NOTHING'
    return 'CUT_STATE'


def parameters(command):
    """Return the declared parameters after the command buffer, and their names."""
    declared, passed = [], []
    for parameter in command.findall('param'):
        if 'vulkan' not in (names(parameter, 'api') or {'vulkan'}):
            continue
        text = ''.join(parameter.itertext())
        comment = parameter.find('comment')
        if comment is not None:
            text = text.replace(''.join(comment.itertext()), '')
        declared.append(' '.join(text.split()))
        passed.append(parameter.find('name').text)
    return declared[1:], passed[1:]


def main():
    registry = ElementTree.parse(sys.argv[1]).getroot()
    commands, aliases = {}, {}
    for command in registry.iterfind('commands/command'):
        if command.get('alias'):
            aliases[command.get('name')] = command.get('alias')
        elif 'vulkan' in (names(command, 'api') or {'vulkan'}):
            commands[command.find('proto/name').text] = command
    declared, extensions = set(), []
    for feature in registry.iterfind('feature'):
        if is_declared(feature):
            declared |= required(feature)
    for extension in registry.iterfind('extensions/extension'):
        mine = required(extension)
        if is_declared(extension):
            declared |= mine
        if extension.get('supported') != 'disabled' and not any(name.startswith('vkCmd') for name in mine - declared):
            extensions.append(extension.get('name'))
    with open(sys.argv[2], 'w', encoding='utf-8') as out:
        print('/* Written by commands.py. */\n#include "libclient/layer/cut.h"\n', file=out)
        table = []
        for name in sorted(name for name in declared if name.startswith('vkCmd') and name not in OWN):
            command = commands[aliases.get(name, name)]
            types, passed = parameters(command)
            result = command.find('proto/type').text
            arguments = ''.join(', ' + each for each in types)
            print(f'static VKAPI_ATTR {result} VKAPI_CALL forward_{name}(VkCommandBuffer commands_{arguments})\n{{\n'
                  f'\tconst struct cut_target target = cut_forward(commands_, {len(table)});\n\n'
                  f'\t{"" if result == "void" else "return "}((PFN_{name})target.function)('
                  f'{", ".join(["target.commands", *passed])});\n}}\n', file=out)
            table.append(f'\t{{"{name}", (PFN_vkVoidFunction)forward_{name}, {effect(name, command)}}},\n')
        print(f'const struct cut_command cut_commands[] = {{\n{"".join(table)}}};\n'
              f'const unsigned int n_cut_commands = {len(table)};\n', file=out)
        known = ''.join(f'\t"{name}",\n' for name in sorted(extensions))
        print(f'const char *const cut_extensions[] = {{\n{known}}};\n'
              f'const unsigned int n_cut_extensions = {len(extensions)};', file=out)


main()
