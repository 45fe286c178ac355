/* Linked lists. */
#ifndef TAHTI_ELL_LIB_H
#define TAHTI_ELL_LIB_H
#include "epicsTypes.h"
#include <stdlib.h>

typedef struct ELLNODE {
    struct ELLNODE *next;
    struct ELLNODE *previous;
} ELLNODE;
typedef struct ELLLIST {
    ELLNODE node; /* next: the first, previous: the last */
    int count;
} ELLLIST;
#define ELLNODE_INIT {NULL, NULL}
#define ELLLIST_INIT {ELLNODE_INIT, 0}

TAHTI_BEGIN
TAHTI_UNUSED static inline void ellInit(ELLLIST *list) {
    list->node.next = list->node.previous = NULL;
    list->count = 0;
}
TAHTI_UNUSED static inline int ellCount(const ELLLIST *list) { return list->count; }
TAHTI_UNUSED static inline ELLNODE *ellFirst(const ELLLIST *list) { return list->node.next; }
TAHTI_UNUSED static inline ELLNODE *ellLast(const ELLLIST *list) { return list->node.previous; }
TAHTI_UNUSED static inline ELLNODE *ellNext(const ELLNODE *node) { return node->next; }
TAHTI_UNUSED static inline ELLNODE *ellPrevious(const ELLNODE *node) { return node->previous; }
TAHTI_UNUSED static inline void ellInsert(ELLLIST *list, ELLNODE *before, ELLNODE *node) {
    node->previous = before;
    node->next = before ? before->next : list->node.next;
    if (node->next)
        node->next->previous = node;
    else
        list->node.previous = node;
    if (before)
        before->next = node;
    else
        list->node.next = node;
    list->count++;
}
TAHTI_UNUSED static inline void ellAdd(ELLLIST *list, ELLNODE *node) { ellInsert(list, list->node.previous, node); }
TAHTI_UNUSED static inline void ellDelete(ELLLIST *list, ELLNODE *node) {
    if (node->previous)
        node->previous->next = node->next;
    else
        list->node.next = node->next;
    if (node->next)
        node->next->previous = node->previous;
    else
        list->node.previous = node->previous;
    list->count--;
}
TAHTI_UNUSED static inline ELLNODE *ellGet(ELLLIST *list) {
    ELLNODE *node = list->node.next;
    if (node)
        ellDelete(list, node);
    return node;
}
TAHTI_END
#endif
