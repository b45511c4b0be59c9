/* tcp-mss: clamps the maximum segment size that SYNs announce (RFC 9293, 3.7.1) to what a tunnel leaves.
 * Configuration: the largest MSS in bytes */
#include "lastmeter.h"

LM_PLUGIN(LM_PACKET, 128)

static u32 most = 1360;

static int configure(const char *text, const char *end) {
    u64 number = lm_number(&text, end, most);
    if (number < 64 || number > 65535)
        return 1;
    most = (u32)number;
    return 0;
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u8 *data = request->data;
    u32 header = lm_ipv4(request, 20);
    request->verdict = LM_ALLOW;
    if (!header || data[9] != 6 || !lm_first(request) || !(data[header + 13] & 2))
        return;
    u32 at = header + 20, end = header + (data[header + 12] >> 4) * 4u;
    end = end < request->captured ? end : request->captured;
    while (at + 1 < end && data[at] != 0) {
        if (data[at] == 1) {
            at++;
            continue;
        }
        u32 length = data[at + 1];
        if (length < 2 || at + length > end)
            return;
        if (data[at] == 2 && length == 4) {
            u32 size = lm_u16(data + at + 2);
            if (size <= most)
                return;
            /* The checksum is over pairs of bytes; an option may begin within one. */
            u32 pair = at + 2 - ((at + 2 - header) & 1), last = at + 3 - ((at + 3 - header) & 1);
            u32 before = lm_u16(data + pair), before_last = lm_u16(data + last);
            lm_put16(data + at + 2, most);
            lm_checksum(data + header + 16, before, lm_u16(data + pair));
            if (last != pair)
                lm_checksum(data + header + 16, before_last, lm_u16(data + last));
            request->verdict = LM_CHANGED;
            return;
        }
        at += length;
    }
}

LM_EACH(decide)
