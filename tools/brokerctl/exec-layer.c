/* SPDX-License-Identifier: MIT */
/*
 * brokerctl exec: is the lease layer installed?
 *
 * A Vulkan loader that does not find the layer, or is told to disable it, continues without a
 * message. The program could then use the whole device in addition to its lease. This file
 * therefore repeats the loader's search in advance: the same folders in the same order, and the
 * same environment variables.
 */
#include <dirent.h>
#include <dlfcn.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exec.h"
#include "monitor/text.h"

#define LAYER  "VK_LAYER_RINGBROKER_lease"
#define FOLDER "vulkan/implicit_layer.d"

enum { MANIFEST_BYTES = 16 << 10 };

static const char *variable(const char *name, const char *otherwise)
{
	const char *value = getenv(name);

	return value && value[0] ? value : otherwise;
}

/* Copy the value of "library_path" in @text to @ret. */
static bool find_library(const char *text, char *ret, size_t bytes)
{
	const char *at = strstr(text, "\"library_path\""), *end;

	at = at ? strchr(at + strlen("\"library_path\""), ':') : NULL;
	at = at ? strchr(at, '"') : NULL;
	end = at ? strchr(at + 1, '"') : NULL;
	if (!end || (size_t)(end - at) > bytes)
		return false;
	snprintf(ret, bytes, "%.*s", (int)(end - at - 1), at + 1);
	return true;
}

/*
 * Return true if the file is the lease layer's manifest. @library receives the path of its library,
 * resolved as the loader does.
 */
static bool is_manifest(const char *folder, const char *name, char *library, size_t bytes)
{
	char path[EXEC_PATH_BYTES], text[MANIFEST_BYTES], written[EXEC_PATH_BYTES / 2];
	size_t length;
	FILE *file;

	snprintf(path, sizeof(path), "%.3000s/%.1000s", folder, name);
	file = fopen(path, "re");
	if (!file)
		return false;
	length = fread(text, 1, sizeof(text) - 1, file);
	text[length] = '\0';
	fclose(file);
	if (!strstr(text, "\"" LAYER "\"") || !find_library(text, written, sizeof(written)))
		return false;
	/*
	 * A name without a slash is left to the dynamic linker; a relative path is relative to the
	 * manifest's folder.
	 */
	if (!strchr(written, '/') || written[0] == '/')
		snprintf(library, bytes, "%s", written);
	else
		snprintf(library, bytes, "%.2000s/%s", folder, written);
	return true;
}

/*
 * Search one folder for the layer's manifest.
 * Return: true if found, with its path in @path.
 */
static bool search_folder(const char *folder, char *path, size_t bytes, char *library,
			  size_t library_bytes)
{
	DIR *dir = opendir(folder);
	struct dirent *entry;
	bool is_found = false;

	while (dir && !is_found && (entry = readdir(dir))) {
		if (fnmatch("*.json", entry->d_name, 0) != 0 ||
		    !is_manifest(folder, entry->d_name, library, library_bytes))
			continue;
		snprintf(path, bytes, "%.3000s/%.1000s", folder, entry->d_name);
		is_found = true;
	}
	if (dir)
		closedir(dir);
	return is_found;
}

struct search {
	char path[EXEC_PATH_BYTES], library[EXEC_PATH_BYTES];
	bool is_found;
};

/* @list: folders separated by colons; @below is appended to each. */
static void search_list(struct search *search, const char *list, const char *below)
{
	char folder[EXEC_PATH_BYTES];

	while (list && *list && !search->is_found) {
		size_t length = strcspn(list, ":");

		snprintf(folder, sizeof(folder), "%.*s%s%s", (int)length, list, below[0] ? "/" : "",
			 below);
		if (length > 0)
			search->is_found = search_folder(folder, search->path, sizeof(search->path),
							 search->library, sizeof(search->library));
		list += length + (list[length] == ':');
	}
}

static void search_home(struct search *search, const char *name, const char *below_home)
{
	const char *home = variable("HOME", NULL), *given = variable(name, NULL);
	char folder[EXEC_PATH_BYTES];

	if (given)
		search_list(search, given, FOLDER);
	else if (home) {
		snprintf(folder, sizeof(folder), "%.2000s/%s", home, below_home);
		search_list(search, folder, FOLDER);
	}
}

static void search_all(struct search *search)
{
	const char *only = variable("VK_IMPLICIT_LAYER_PATH", NULL);

	if (only) {
		search_list(search, only, "");
		return;
	}
	search_list(search, variable("VK_ADD_IMPLICIT_LAYER_PATH", ""), "");
	search_home(search, "XDG_CONFIG_HOME", ".config");
	search_list(search, variable("XDG_CONFIG_DIRS", "/etc/xdg"), FOLDER);
	search_list(search, "/usr/local/etc:/etc", FOLDER);
	search_home(search, "XDG_DATA_HOME", ".local/share");
	search_list(search, variable("XDG_DATA_DIRS", "/usr/local/share:/usr/share"), FOLDER);
}

/* Return true if a loader's variable lists the layer: names with wildcards, separated by commas. */
static bool is_listed(const char *list)
{
	char name[128];

	while (list && *list) {
		size_t length = strcspn(list, ",");

		snprintf(name, sizeof(name), "%.*s", (int)length, list);
		if (strcmp(name, "~all~") == 0 || strcmp(name, "~implicit~") == 0 ||
		    fnmatch(name, LAYER, FNM_CASEFOLD) == 0)
			return true;
		list += length + (list[length] == ',');
	}
	return false;
}

enum exec_layer exec_layer_find(char ret_text[EXEC_TEXT_BYTES], const char **ret_mend)
{
	struct search search = {.is_found = false};
	void *library;

	/* The loader checks only whether the variable is set. */
	if (getenv("RINGBROKER_VULKAN_LEASE_DISABLE")) {
		snprintf(ret_text, EXEC_TEXT_BYTES,
			 "RINGBROKER_VULKAN_LEASE_DISABLE is set, which turns the layer off");
		*ret_mend = "unset RINGBROKER_VULKAN_LEASE_DISABLE";
		return EXEC_LAYER_OFF;
	}
	if (is_listed(getenv("VK_LOADER_LAYERS_DISABLE")) &&
	    !is_listed(getenv("VK_LOADER_LAYERS_ALLOW"))) {
		snprintf(ret_text, EXEC_TEXT_BYTES, "VK_LOADER_LAYERS_DISABLE turns the layer off");
		*ret_mend = "unset VK_LOADER_LAYERS_DISABLE";
		return EXEC_LAYER_OFF;
	}
	search_all(&search);
	if (!search.is_found) {
		*ret_mend = "apt-get install ringbroker-vulkan-layer";
		snprintf(ret_text, EXEC_TEXT_BYTES,
			 "the Vulkan layer (package ringbroker-vulkan-layer) is not installed: no "
			 "manifest of " LAYER " is where loaders look, such as /usr/share/" FOLDER);
		return EXEC_LAYER_ABSENT;
	}
	library = dlopen(search.library, RTLD_LAZY | RTLD_LOCAL);
	if (!library) {
		*ret_mend = "apt-get install --reinstall ringbroker-vulkan-layer";
		snprintf(ret_text, EXEC_TEXT_BYTES,
			 "the Vulkan layer of %.200s cannot be loaded: %.200s",
			 text_name(search.path), text_name(dlerror()));
		return EXEC_LAYER_BROKEN;
	}
	dlclose(library);
	*ret_mend = "";
	snprintf(ret_text, EXEC_TEXT_BYTES, "%.400s", text_name(search.path));
	return EXEC_LAYER_WORKS;
}
