/* The same function on the shares of several threads; the first share is the caller's. */
#include <pthread.h>

#include "work.h"

typedef void (*Function)(const Work *);
typedef struct {
    Function function;
    const Work *work;
} Task;

static void *start(void *task) {
    ((Task *)task)->function(((Task *)task)->work);
    return 0;
}

void run(Function function, const Work *works, int number) {
    pthread_t threads[64];
    Task tasks[64];
    for (int k = 1; k < number; k++) {
        tasks[k] = (Task){function, works + k};
        pthread_create(&threads[k], 0, start, &tasks[k]);
    }
    function(works);
    for (int k = 1; k < number; k++) pthread_join(threads[k], 0);
}
