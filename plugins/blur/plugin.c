/* blur: makes a part of frames coarse: blocks of 16 by 16 pixels show their mean, in grey (format 1) or colour (format 2).
 * A frame of another format, or one that does not fit into a megabyte, is dropped: it must not leave unblurred.
 * Configuration: x, y, width, height */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAME, 1048576)

enum { BLOCK = 16, GREY = 1, COLOUR = 2 };
static u32 x, y, width, height;

static int configure(const char *text, const char *end) {
    u64 side[4];
    for (int i = 0; i < 4; i++)
        side[i] = lm_number(&text, end, 0);
    if (side[2] == 0 || side[3] == 0 || side[0] + side[2] > 65535 || side[1] + side[3] > 65535)
        return 1;
    x = (u32)side[0], y = (u32)side[1], width = (u32)side[2], height = (u32)side[3];
    return 0;
}

LM_CONFIG(configure)

static u32 least(u32 a, u32 b) { return a < b ? a : b; }

static void decide(struct lm_request *request) {
    u32 wide = request->frame.whole_width, high = request->frame.whole_height;
    u32 depth = request->operation == GREY ? 1 : request->operation == COLOUR ? 3 : 0;
    u32 length = wide * high * depth;
    if (length == 0 || request->captured != length || request->length != length) {
        request->verdict = LM_DENY;
        request->code = 1;
        return;
    }
    u32 right = least(x + width, wide), lower = least(y + height, high);
    for (u32 top = y; top < lower; top += BLOCK)
        for (u32 left = x; left < right; left += BLOCK)
            for (u32 part = 0; part < depth; part++) {
                u32 to = least(left + BLOCK, right), bottom = least(top + BLOCK, lower), sum = 0;
                for (u32 row = top; row < bottom; row++)
                    for (u32 column = left; column < to; column++)
                        sum += request->data[(row * wide + column) * depth + part];
                u8 mean = (u8)(sum / ((to - left) * (bottom - top)));
                for (u32 row = top; row < bottom; row++)
                    for (u32 column = left; column < to; column++)
                        request->data[(row * wide + column) * depth + part] = mean;
            }
    request->verdict = LM_CHANGED;
}

LM_EACH(decide)
