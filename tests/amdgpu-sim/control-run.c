/* SPDX-License-Identifier: MIT */
/*
 * Running programs over the simulator
 */
#include "control.h"
#include <errno.h>
#include <ftw.h>
#include <glob.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/wait.h>
#include <unistd.h>

/* Free memory below which buffers are on disk. */
#define SHM_BYTES_MIN (1ull << 30)

static volatile sig_atomic_t child_pid;

static void pass_on(int signal_number)
{
	int saved = errno;

	if (child_pid > 0)
		kill(child_pid, signal_number);
	errno = saved;
}

/* Return the first manifest of a Vulkan driver that matches, malloc()ed, or NULL. */
static char *find_manifest(const char *name)
{
	static const char *const folders[] = {"/etc/vulkan/icd.d", "/usr/local/share/vulkan/icd.d",
					      "/usr/share/vulkan/icd.d"};
	char *found = NULL;

	for (unsigned i = 0; i < sizeof(folders) / sizeof(folders[0]) && !found; i++) {
		char pattern[256];
		glob_t matches;

		snprintf(pattern, sizeof(pattern), "%s/%s*.json", folders[i], name);
		if (glob(pattern, 0, NULL, &matches))
			continue;
		found = strdup(matches.gl_pathv[0]);
		globfree(&matches);
	}
	return found;
}

static int set_drivers(bool with_lavapipe)
{
	char *radv, *lavapipe, *list = NULL;
	int r = 0;

	if (getenv("VK_DRIVER_FILES") || getenv("VK_ICD_FILENAMES"))
		return 0;
	radv = find_manifest("radeon_icd");
	lavapipe = with_lavapipe ? find_manifest("lvp_icd") : NULL;
	if (radv || lavapipe) {
		r = asprintf(&list, "%s%s%s", radv ? radv : "", radv && lavapipe ? ":" : "",
			     lavapipe ? lavapipe : "");
		/* The loader of Vulkan 1.3.207 knows the first name, older loaders the second. */
		if (r >= 0 && !setenv("VK_DRIVER_FILES", list, 1))
			r = setenv("VK_ICD_FILENAMES", list, 1);
	}
	free(list);
	free(radv);
	free(lavapipe);
	return r < 0 ? -ENOMEM : 0;
}

/* Set @name to its value, @separator and @more. */
static int append(const char *name, const char *separator, const char *more)
{
	const char *old = getenv(name);
	char *value;
	int r;

	if (old && strstr(old, more))
		return 0;
	if (asprintf(&value, "%s%s%s", old ? old : "", old && old[0] ? separator : "", more) < 0)
		return -ENOMEM;
	r = setenv(name, value, 1);
	free(value);
	return r ? -errno : 0;
}

/* Set the environment of a program over the simulator in @sim. */
static int set_environment(bool with_lavapipe)
{
	char library[SIM_PATH_MAX];
	ssize_t n;
	int r;

	n = readlink("/proc/self/exe", library, sizeof(library) - 32);
	if (n < 0)
		return -errno;
	library[n] = '\0';
	strcpy(strrchr(library, '/'), "/libamdgpu-sim.so");
	r = append("LD_PRELOAD", ":", library);
	/* The simulator's library precedes the sanitizer's, which works anyway. */
	if (!r)
		r = append("ASAN_OPTIONS", ":", "verify_asan_link_order=0");
	if (!r && setenv("AMDGPU_SIM_DIR", sim.dir, 1))
		r = -errno;
	return r ? r : set_drivers(with_lavapipe);
}

int control_env(const char *dir, bool with_lavapipe)
{
	static const char *const names[] = {"AMDGPU_SIM_DIR", "LD_PRELOAD", "ASAN_OPTIONS",
					    "VK_DRIVER_FILES", "VK_ICD_FILENAMES"};
	int r = set_environment(with_lavapipe);

	if (r)
		return control_failed(dir, r);
	for (unsigned i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		const char *value = getenv(names[i]);

		if (value)
			printf("%s=%s\n", names[i], value);
	}
	return 0;
}

static int remove_entry(const char *path, const struct stat *about, int type, struct FTW *at)
{
	return remove(path) ? -1 : 0;
}

/* Make a folder in memory if there is room, else in the folder for temporary files. */
static char *make_temporary(void)
{
	const char *base = getenv("TMPDIR");
	struct statvfs about;
	char *dir;

	if (!base || !base[0]) {
		base = "/tmp";
		if (!statvfs("/dev/shm", &about) && !access("/dev/shm", W_OK) &&
		    (uint64_t)about.f_bavail * about.f_bsize >= SHM_BYTES_MIN)
			base = "/dev/shm";
	}
	if (asprintf(&dir, "%s/amdgpu-sim-XXXXXX", base) < 0)
		return NULL;
	if (mkdtemp(dir))
		return dir;
	free(dir);
	return NULL;
}

/*
 * Start @command and wait for its end.
 * Return: its exit status, 128 + signal, or 127 if it did not start.
 */
static int wait_for_command(char **command)
{
	struct sigaction action = {.sa_handler = pass_on};
	sigset_t signals, old;
	int status;
	pid_t pid;

	/* Block the signals until the child exists, so that none is lost. */
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigaddset(&signals, SIGHUP);
	sigprocmask(SIG_BLOCK, &signals, &old);
	pid = fork();
	if (pid < 0)
		return control_failed("fork", -errno);
	if (!pid) {
		sigprocmask(SIG_SETMASK, &old, NULL);
		execvp(command[0], command);
		fprintf(stderr, "amdgpu-sim: %s: %s\n", command[0], strerror(errno));
		_exit(127);
	}
	child_pid = pid;
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGINT, &action, NULL);
	sigaction(SIGHUP, &action, NULL);
	sigprocmask(SIG_SETMASK, &old, NULL);
	while (waitpid(pid, &status, 0) < 0) {
		if (errno != EINTR)
			return control_failed("waitpid", -errno);
	}
	child_pid = 0;
	return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

int control_run(const struct control_run *run, char **command)
{
	char *temporary = NULL;
	int r;

	if (!run->dir) {
		temporary = make_temporary();
		if (!temporary)
			return control_failed("temporary folder", -errno);
	} else if (mkdir(run->dir, 0777) && errno != EEXIST) {
		return control_failed(run->dir, -errno);
	}
	r = control_init(run->dir ? run->dir : temporary, run->cards, run->n_cards);
	if (!r) {
		r = set_environment(run->with_lavapipe);
		r = r ? control_failed("environment", r) : wait_for_command(command);
	}
	if (temporary)
		nftw(temporary, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
	free(temporary);
	return r;
}
