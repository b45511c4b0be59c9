/* watermark: draws a number into the lower right corner of frames, grey or colour, so that a copy shows whose it is: eight bars,
 * thick for 1 and thin for 0, most significant first.
 * A frame that does not fit into a megabyte is dropped: it must not leave without the mark.
 * Configuration: the number, of 8 bits; the height of the bars in pixels */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAME, 1048576)

enum { BITS = 8, THIN = 2, THICK = 6, STEP = 10, MARGIN = 4 };
static u32 number, tall = 12;

static int configure(const char *text, const char *end) {
    u64 wanted = lm_number(&text, end, 0), high = lm_number(&text, end, 12);
    if (wanted > 255 || high == 0 || high > 1000)
        return 1;
    number = (u32)wanted, tall = (u32)high;
    return 0;
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u32 wide = request->frame.whole_width, high = request->frame.whole_height;
    u32 depth = request->operation == 1 ? 1 : 3, length = wide * high * depth;
    u32 right = MARGIN + BITS * STEP, lower = MARGIN + tall;
    if (request->captured != length || request->length != length || right > wide || lower > high) {
        request->verdict = LM_DENY;
        request->code = 1;
        return;
    }
    for (u32 bit = 0; bit < BITS; bit++) {
        u32 thick = number >> (BITS - 1 - bit) & 1 ? THICK : THIN;
        for (u32 y = MARGIN; y < lower; y++)
            for (u32 x = 0; x < STEP; x++) {
                /* At the lower right corner; dark between the bars, so that it shows on every ground. */
                u32 at = ((high - lower + y - MARGIN) * wide + wide - right + bit * STEP + x) * depth;
                for (u32 part = 0; part < depth; part++)
                    request->data[at + part] = x < thick ? 255 : 0;
            }
    }
    request->verdict = LM_CHANGED;
}

LM_EACH(decide)
