#pragma once
/* SPDX-License-Identifier: MIT */
/* The Vulkan layer of leases, for benches that enable it by name */

extern char lease_layer_name[];

/*
 * Set the environment so that the loader finds the layer of this program's build tree, if there is
 * one; otherwise it finds the installed layer. No program of this environment has the layer unless
 * it names it.
 */
void lease_layer_find(void);
