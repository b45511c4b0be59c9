/* NAME: drops packets to TCP port 23. */
#include "lastmeter.h"

LM_PLUGIN(LM_PACKET, 64)

static void decide(struct lm_request *request) {
    u32 header = lm_ipv4(request, 4);
    int is_telnet = header && lm_first(request) && request->data[9] == 6 &&
                    lm_u16(request->data + header + 2) == 23;
    request->verdict = is_telnet ? LM_DENY : LM_ALLOW;
    request->code = is_telnet ? 1 : 0;
}

LM_EACH(decide)
