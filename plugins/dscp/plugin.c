/* dscp: marks packets of IPv4 and IPv6 with a DSCP; ECN stays.
 * Configuration: the DSCP, 0 to 63 */
#include "lastmeter.h"

LM_PLUGIN(LM_PACKET, 64)

static u32 dscp;

static int configure(const char *text, const char *end) {
    u64 number = lm_number(&text, end, 0);
    if (number > 63)
        return 1;
    dscp = (u32)number;
    return 0;
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u8 *data = request->data;
    request->verdict = LM_ALLOW;
    if (lm_ipv4(request, 0)) {
        u32 before = lm_u16(data);
        data[1] = (u8)(dscp << 2 | (data[1] & 3));
        lm_checksum(data + 10, before, lm_u16(data));
        request->verdict = LM_CHANGED;
    } else if (request->captured >= 40 && data[0] >> 4 == 6) {
        /* Version, 6 bits of DSCP, 2 of ECN, 4 of the flow label. */
        lm_put16(data, (lm_u16(data) & 0xf03f) | dscp << 6);
        request->verdict = LM_CHANGED;
    }
}

LM_EACH(decide)
