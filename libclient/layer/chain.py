#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Write the sizes of the structures that may extend VkDeviceCreateInfo.

    chain.py VK_XML OUTPUT

VK_XML is Vulkan's registry, of the version of the headers.
"""
import sys
from xml.etree import ElementTree


def is_vulkan(apis):
    return 'vulkan' in (apis or 'vulkan').split(',')


def main():
    registry = ElementTree.parse(sys.argv[1])
    lines = []
    for struct in registry.iterfind("types/type[@category='struct']"):
        kind = struct.find('member').get('values') if struct.find('member') is not None else None
        if kind and 'VkDeviceCreateInfo' in struct.get('structextends', '').split(','):
            lines.append((kind, struct.get('name')))
    # vulkan_core.h declares none of Vulkan SC, and those of platforms only with a macro.
    declared = {kind.get('name') for source in (*registry.iterfind('feature'), *registry.iterfind('extensions/extension'))
                if not source.get('platform') and is_vulkan(source.get('supported') or source.get('api'))
                for require in source.iterfind('require') if is_vulkan(require.get('api'))
                for kind in require.iterfind('type')}
    with open(sys.argv[2], 'w') as out:
        out.write('/* Written by chain.py: the structures that extend VkDeviceCreateInfo. */\n#define CHAIN_STRUCTS(X) \\\n')
        out.write(' \\\n'.join(f'\tX({kind}, {name})' for kind, name in lines if name in declared) + '\n')


main()
