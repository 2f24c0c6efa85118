#pragma once
/* SPDX-License-Identifier: MIT */
/*
 * The kernel's names of types and maps, for programs that it runs
 *
 * They are declared by hand: <linux/types.h> includes processor-dependent headers, which are
 * missing for -target bpf.
 */

#include <stdbool.h>

typedef unsigned char __u8;
typedef unsigned short __u16;
typedef unsigned int __u32;
typedef unsigned long long __u64;
typedef signed char __s8;
typedef short __s16;
typedef int __s32;
typedef long long __s64;
typedef __u16 __be16;
typedef __u32 __be32;
typedef __u64 __be64;
typedef __u32 __wsum;
typedef __u32 u32;
typedef __u64 u64;
typedef __s32 s32;
typedef __s64 s64;

/* Part of the interface between programs and kernel: these values do not change. */
enum {
	BPF_MAP_TYPE_HASH = 1,
	BPF_MAP_TYPE_ARRAY = 2,
};
