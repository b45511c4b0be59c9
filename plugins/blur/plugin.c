/* blur: makes a part of frames coarse: blocks of 16 by 16 pixels show their mean, in grey (format 1) or colour (format 2).
 * A frame of another format, or one that does not fit into a megabyte, is dropped: it must not leave unblurred.
 * Configuration: x, y, width, height */
#include "lastmeter.h"

LM_PLUGIN(LM_FRAME, 1048576)

enum { BLOCK = 16, GREY = 1, COLOUR = 2 };
static struct lm_rectangle part;

static int configure(const char *text, const char *end) { return lm_read_rectangle(text, end, &part); }

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u32 wide = request->frame.whole_width, high = request->frame.whole_height;
    u32 depth = request->operation == GREY ? 1 : request->operation == COLOUR ? 3 : 0;
    u32 length = wide * high * depth;
    if (length == 0 || request->captured != length || request->length != length) {
        request->verdict = LM_DENY;
        request->code = 1;
        return;
    }
    u32 right = lm_least(part.x + part.width, wide), lower = lm_least(part.y + part.height, high);
    for (u32 top = part.y; top < lower; top += BLOCK)
        for (u32 left = part.x; left < right; left += BLOCK)
            for (u32 colour = 0; colour < depth; colour++) {
                u32 to = lm_least(left + BLOCK, right), bottom = lm_least(top + BLOCK, lower), sum = 0;
                for (u32 row = top; row < bottom; row++)
                    for (u32 column = left; column < to; column++)
                        sum += request->data[(row * wide + column) * depth + colour];
                u8 mean = (u8)(sum / ((to - left) * (bottom - top)));
                for (u32 row = top; row < bottom; row++)
                    for (u32 column = left; column < to; column++)
                        request->data[(row * wide + column) * depth + colour] = mean;
            }
    request->verdict = LM_CHANGED;
}

LM_EACH(decide)
