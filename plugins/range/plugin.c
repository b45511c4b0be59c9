/* range: a part of a disk, which begins at its block 0, and can be read only.
 * Configuration: first block, number of blocks, 1 if read only */
#include "lastmeter.h"

LM_PLUGIN(LM_BLOCK, 0)

static u64 first, blocks;
static u32 read_only;

static int configure(const char *text, const char *end) {
    u64 at = lm_number(&text, end, 0), length = lm_number(&text, end, 0);
    if (length == 0 || at + length < at)
        return 1;
    first = at;
    blocks = length;
    read_only = lm_number(&text, end, 0) != 0;
    return 0;
}

LM_CONFIG(configure)

static void decide(struct lm_request *request) {
    u32 operation = request->operation;
    int writes = operation == LM_WRITE || (operation >= LM_TRIM && operation <= LM_COMPARE_AND_WRITE);
    request->verdict = LM_DENY;
    if (read_only && writes) {
        request->code = 0x072700; /* data protect: write protected */
    } else if (request->block.lba > blocks || request->block.blocks > blocks - request->block.lba) {
        request->code = 0x052100; /* illegal request: LBA out of range */
    } else {
        request->verdict = LM_REMAP;
        request->block.lba += first;
    }
}

LM_EACH(decide)
