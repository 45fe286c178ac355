/* A debugger of the tests: debugger PID. Attaches to the thread, which stops it, and prints "attached". Detaches at the
 * end of its input. */
#include <stdio.h>
#include <stdlib.h>
#include <sys/ptrace.h>
#include <sys/types.h>
#include <sys/wait.h>

int main(int argc, char **argv) {
    pid_t pid = argc > 1 ? atoi(argv[1]) : 0;
    if (ptrace(PTRACE_ATTACH, pid, NULL, NULL) != 0 || waitpid(pid, NULL, __WALL) != pid) {
        perror("attach");
        return 1;
    }
    puts("attached");
    fflush(stdout);
    while (getchar() != EOF) { }
    return ptrace(PTRACE_DETACH, pid, NULL, NULL) != 0;
}
