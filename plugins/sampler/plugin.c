/* sampler: sends a copy of every n-th packet to an interface, where a capture (pcapng) is written; the packet itself is not delayed.
 * Configuration: n, interface */
#include "lastmeter.h"

LM_PLUGIN(LM_PACKET, 0)

static u64 every = 100, seen;
static u32 interface;

static int configure(const char *text, const char *end) {
    u64 number = lm_number(&text, end, every), to = lm_number(&text, end, 0);
    if (number == 0 || to > 65535)
        return 1;
    every = number;
    interface = (u32)to;
    return 0;
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    int is_sample = ++seen % every == 0;
    request->verdict = is_sample ? LM_CLONE : LM_ALLOW;
    request->code = interface;
}

LM_EACH(decide)
