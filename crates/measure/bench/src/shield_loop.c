/* The writes of a shield and of its release, in a bare loop: the lower bound of the time.
 *
 * Reads lines from standard input: "m PATH" makes a directory, "r PATH" removes one, "w PATH<tab>TEXT" writes;
 * "-" ends the first half. Prints the nanoseconds that each half took. Ignores refused writes. */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define LINES_MAX 65536

struct line { char kind; char *path; char *text; size_t length; };
static struct line lines[LINES_MAX];

static long long now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return now.tv_sec * 1000000000LL + now.tv_nsec;
}

static long long take(size_t from, size_t to)
{
    long long start = now_ns();
    for (size_t at = from; at < to; at++) {
        struct line *line = &lines[at];
        if (line->kind == 'm') {
            mkdir(line->path, 0755);
        } else if (line->kind == 'r') {
            rmdir(line->path);
        } else {
            int fd = open(line->path, O_WRONLY | O_CLOEXEC);
            if (fd >= 0) {
                if (write(fd, line->text, line->length) < 0) { /* refused, as it may be */ }
                close(fd);
            }
        }
    }
    return now_ns() - start;
}

int main(void)
{
    char buffer[8192];
    size_t count = 0, half = 0;
    while (count < LINES_MAX && fgets(buffer, sizeof buffer, stdin)) {
        buffer[strcspn(buffer, "\n")] = 0;
        if (buffer[0] == '-') {
            half = count;
            continue;
        }
        struct line *line = &lines[count++];
        line->kind = buffer[0];
        line->path = strdup(buffer + 2);
        char *tab = strchr(line->path, '\t');
        if (tab) {
            *tab = 0;
            line->text = tab + 1;
            line->length = strlen(line->text);
        }
    }
    long long there = take(0, half);
    long long back = take(half, count);
    printf("%lld %lld\n", there, back);
    return 0;
}
