/* Calls the library from a destructor of thread-local data, after the library's own data of that thread has been destroyed. A C++
 * thread_local object that closes its handles does this. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <tahti.h>
#include <unistd.h>

static pthread_key_t key;
static int wrong;

static void expect(int holds, const char *what) {
    if (holds)
        return;
    fprintf(stderr, "not so: %s\n", what);
    wrong = 1;
}

static void calls(const char *name) {
    tahti_reading reading = {.size = sizeof reading};
    tahti_reply reply = {.size = sizeof reply};
    tahti_turn turn = {.size = sizeof turn};
    tahti_exports *exports = tahti_export_open(name, 1);
    int index = tahti_export_double(exports, "value", "V", NULL);
    tahti_imports *imports = tahti_import_open(name);
    tahti_segment *segment = tahti_segment_create(name, 4096);
    tahti_mutex *mutex = tahti_mutex_create(NULL);
    tahti_barrier *barrier = tahti_barrier_create(NULL, 1);
    tahti_loops *loops = tahti_loops_new();
    expect(exports && imports && segment && loops && index == 0, "what can be made is made");
    expect(tahti_set_double(exports, index, 2.5, 7) == 0 && tahti_export_cycle(exports, 7, 0) == 0, "a value is exported");
    expect(tahti_import_get(imports, "value", &reading) == 0 && reading.as_double == 2.5, "a value is read");
    expect(tahti_import_get(imports, "none", &reading) == -1, "an unknown value is refused");
    expect(tahti_export_cycle(NULL, 1, 0) == -1 && tahti_frame_yield(NULL, &turn) == -1, "NULL is refused");
    expect(!tahti_frame_join("ending-none", "a", NULL, 1) && tahti_frame_trigger("ending-none") == -1, "no such frame");
    expect(!tahti_client_connect("ending-none", "a", 3) && tahti_client_next(NULL, &reply, 0) == -1, "no such server");
    expect(!tahti_import_open("ending-none") && !tahti_manager_connect("ending-none", "a", "b", 8), "no such names");
    expect(tahti_error() && strlen(tahti_error()) > 0, "there is a reason, or a text that there is none");
    tahti_loops_close(loops);
    tahti_barrier_close(barrier);
    tahti_mutex_close(mutex);
    tahti_segment_close(segment);
    tahti_import_close(imports);
}

/* Runs after all destructors of C++ and Rust. */
static void ends(void *data) {
    (void)data;
    char name[64];
    snprintf(name, sizeof name, "ending-late-%d", (int)getpid());
    calls(name);
}

static void *thread(void *data) {
    char name[64];
    snprintf(name, sizeof name, "ending-first-%d", (int)getpid());
    calls(name);
    pthread_setspecific(key, data);
    return NULL;
}

int main(void) {
    pthread_t id;
    if (pthread_key_create(&key, ends) != 0 || pthread_create(&id, NULL, thread, &key) != 0 || pthread_join(id, NULL) != 0)
        return 2;
    return wrong;
}
