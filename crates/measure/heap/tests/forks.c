/* Forks while other threads allocate and walk the dynamic linker's list, as unwinders and profilers do. Each child allocates and exits with
 * 0. forks COUNT: prints how many children hung and how many failed. */
#define _GNU_SOURCE
#include <link.h>
#include <poll.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* A child that does not hang ends at once. The limit is for a busy machine. */
enum { PATIENCE_MS = 20000 };

static volatile int stop;

static int each(struct dl_phdr_info *info, size_t size, void *data) {
    (void)info, (void)size, (void)data;
    for (volatile int turn = 0; turn < 200; turn++)
        ;
    return 0;
}

static void *walk(void *data) {
    while (!stop)
        dl_iterate_phdr(each, data);
    return NULL;
}

static void *allocate(void *data) {
    while (!stop)
        free(malloc(100));
    return data;
}

static void use(void) {
    void *aligned = NULL;
    char *block = calloc(3, 100);
    block = realloc(block, 5000);
    if (!block || posix_memalign(&aligned, 64, 100) != 0)
        _exit(1);
    free(aligned);
    free(block);
    _exit(0);
}

int main(int argc, char **argv) {
    int count = argc > 1 ? atoi(argv[1]) : 1, hung = 0, failed = 0;
    pthread_t threads[2];
    pthread_create(&threads[0], NULL, walk, NULL);
    pthread_create(&threads[1], NULL, allocate, NULL);
    for (int nth = 0; nth < count && hung == 0; nth++) {
        pid_t child = fork();
        if (child == 0)
            use();
        int status = 0;
        struct pollfd end = {.fd = (int)syscall(SYS_pidfd_open, child, 0), .events = POLLIN};
        if (end.fd < 0 || poll(&end, 1, PATIENCE_MS) != 1) {
            hung++;
            kill(child, SIGKILL);
        }
        waitpid(child, &status, 0);
        close(end.fd);
        failed += !hung && status != 0;
    }
    stop = 1;
    pthread_join(threads[0], NULL);
    pthread_join(threads[1], NULL);
    printf("hung %d, failed %d\n", hung, failed);
    return hung + failed != 0;
}
