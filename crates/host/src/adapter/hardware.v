// Control logic of an adapter's transmit path: queues, stages, memory arbitration. The engines that move and send
// data are outside: each activity runs while its `_go` is high and raises `_done` in its last cycle.
//
//   submit --> [ waiting ] --> interface --> [ waiting ] --> transfer --> [ waiting ] --> set-up, send
//   full, dropped              write_ack                     address_ack                  transmit_ack

`default_nettype none

// Queues of messages, by number. With ROUND = 1 round robin over classes, otherwise the highest class first.
module waiting #(
    parameter SLOTS = 2,
    parameter WIDTH = 1,
    parameter QUEUES = 1,
    parameter ROUND = 1
) (
    input wire clock,
    input wire reset,
    input wire push,
    input wire [WIDTH-1:0] slot,
    input wire [7:0] class_in,
    input wire pop,
    output reg some,
    output reg [WIDTH-1:0] first
);
    reg [WIDTH-1:0] queue [0:QUEUES*SLOTS-1];
    integer head [0:QUEUES-1];
    integer count [0:QUEUES-1];
    integer turn, into, from, at;

    always @* begin
        into = class_in < QUEUES ? class_in : QUEUES - 1;
        from = 0;
        some = 0;
        for (at = 0; at < QUEUES; at = at + 1)
            if (!some && count[ROUND ? (turn + at) % QUEUES : QUEUES - 1 - at] != 0) begin
                some = 1;
                from = ROUND ? (turn + at) % QUEUES : QUEUES - 1 - at;
            end
        first = queue[from * SLOTS + head[from]];
    end

    integer each;
    always @(posedge clock)
        if (reset) begin
            turn <= 0;
            for (each = 0; each < QUEUES; each = each + 1) begin
                head[each] <= 0;
                count[each] <= 0;
            end
        end else begin
            if (push) queue[into * SLOTS + (head[into] + count[into]) % SLOTS] <= slot;
            if (pop) begin
                head[from] <= (head[from] + 1) % SLOTS;
                turn <= (from + 1) % QUEUES;
            end
            for (each = 0; each < QUEUES; each = each + 1)
                count[each] <= count[each] + (push && into == each) - (pop && from == each);
        end
endmodule

// The same by due date within the highest class: one comparator for each place but one.
module waiting_by_due #(
    parameter SLOTS = 2,
    parameter WIDTH = 1,
    parameter QUEUES = 1
) (
    input wire clock,
    input wire reset,
    input wire push,
    input wire [WIDTH-1:0] slot,
    input wire [7:0] class_in,
    input wire [63:0] due_in,
    input wire pop,
    output reg some,
    output reg [WIDTH-1:0] first
);
    reg here [0:SLOTS-1];
    reg [7:0] class_of [0:SLOTS-1];
    reg [63:0] due [0:SLOTS-1];
    reg [63:0] arrival [0:SLOTS-1];
    reg [63:0] arrivals;
    wire [7:0] queue_in = class_in < QUEUES ? class_in : QUEUES - 1;
    // The best so far: complement of its class, due date, order of arrival.
    reg [135:0] best;
    integer at;

    always @* begin
        some = 0;
        first = 0;
        best = 0;
        for (at = 0; at < SLOTS; at = at + 1)
            if (here[at] && (!some || {~class_of[at], due[at], arrival[at]} < best)) begin
                some = 1;
                first = at;
                best = {~class_of[at], due[at], arrival[at]};
            end
    end

    integer each;
    always @(posedge clock)
        if (reset) begin
            arrivals <= 0;
            for (each = 0; each < SLOTS; each = each + 1) here[each] <= 0;
        end else begin
            if (pop) here[first] <= 0;
            if (push) begin
                here[slot] <= 1;
                class_of[slot] <= queue_in;
                due[slot] <= due_in;
                arrival[slot] <= arrivals;
                arrivals <= arrivals + 1;
            end
        end
endmodule

// One of the two, by DISCIPLINE: 0 first come, first served; 1 highest class first; 2 earliest due date first.
module stage_queue #(
    parameter SLOTS = 2,
    parameter WIDTH = 1,
    parameter QUEUES = 1,
    parameter DISCIPLINE = 0
) (
    input wire clock,
    input wire reset,
    input wire push,
    input wire [WIDTH-1:0] slot,
    input wire [7:0] class_in,
    input wire [63:0] due_in,
    input wire pop,
    output wire some,
    output wire [WIDTH-1:0] first
);
    generate
        if (DISCIPLINE == 2)
            waiting_by_due #(.SLOTS(SLOTS), .WIDTH(WIDTH), .QUEUES(QUEUES)) by_due (
                .clock(clock), .reset(reset), .push(push), .slot(slot), .class_in(class_in),
                .due_in(due_in), .pop(pop), .some(some), .first(first));
        else
            waiting #(.SLOTS(SLOTS), .WIDTH(WIDTH), .QUEUES(QUEUES), .ROUND(DISCIPLINE == 0)) by_class (
                .clock(clock), .reset(reset), .push(push), .slot(slot), .class_in(class_in),
                .pop(pop), .some(some), .first(first));
    endgenerate
endmodule

module adapter #(
    parameter DEPTH = 1,              // messages in flight at once
    parameter WIDTH = 1,              // bits of their numbers
    parameter MEMORY = 8388608,       // bytes of buffers
    parameter DROPS = 0,              // 1: a message without a buffer is dropped; 0: it waits outside
    parameter STAGES = 3,             // of interface, transfer, network: how many are concurrent
    parameter IN_TURN = 0,            // 1: nothing else goes on while it sends
    parameter BANKS = 1,              // of memory
    parameter PREEMPTIBLE = 0,        // 1: the network pre-empts a transfer at the memory
    parameter PROCESSOR_MAX = 0,      // longest transfer by programmed I/O, in bytes
    parameter INTERFACE_QUEUES = 1,
    parameter INTERFACE_DISCIPLINE = 0,
    parameter TRANSFER_QUEUES = 1,
    parameter TRANSFER_DISCIPLINE = 0,
    parameter NETWORK_QUEUES = 1,
    parameter NETWORK_DISCIPLINE = 0
) (
    input wire clock,
    input wire reset,
    // From the host: a message, accepted in this cycle unless `full`.
    input wire submit,
    input wire [31:0] length,
    input wire [7:0] class_in,
    input wire [63:0] due,
    output wire full,
    output reg dropped,
    // To the host, each for one cycle, with the number of the message.
    output reg write_ack,
    output reg address_ack,
    output reg transmit_ack,
    output reg [WIDTH-1:0] written,
    output reg [WIDTH-1:0] moved,
    output reg [WIDTH-1:0] sent,
    // The network: whether it may be used, and whether there is nothing to send.
    input wire may_send,
    output wire nothing_to_send,
    // The activities.
    output wire interface_go,
    input wire interface_done,
    output wire transfer_go,
    output wire [31:0] transfer_length,
    input wire transfer_done,
    output wire setup_go,
    input wire setup_done,
    output wire send_go,
    output wire [31:0] send_length,
    input wire send_done
);
    localparam NOBODY = 0, INTERFACE = 1, TRANSFER = 2, NETWORK = 3;

    reg [31:0] lengths [0:DEPTH-1];
    reg [7:0] classes [0:DEPTH-1];
    reg [63:0] dues [0:DEPTH-1];
    reg [63:0] used;
    integer outstanding, fresh;

    // The message that each stage works on.
    reg interfacing, transferring, preparing, sending;
    reg [WIDTH-1:0] in_interface, in_transfer, in_network;
    assign transfer_length = lengths[in_transfer];
    assign send_length = lengths[in_network];

    // Who holds the processor, and who the memory. At the memory the network goes before a transfer, and a
    // transfer before a command.
    wire by_processor = transfer_length <= PROCESSOR_MAX && STAGES > 2;
    wire network_asks = IN_TURN ? preparing || sending : BANKS == 1 && sending;
    wire transfer_asks = transferring && !by_processor;
    wire interface_asks = interfacing && STAGES < 3;
    reg [1:0] holder, holds, worker, works;
    always @* begin
        if (network_asks && (holder == NETWORK || (PREEMPTIBLE && !IN_TURN))) holds = NETWORK;
        else if (transfer_asks && holder == TRANSFER) holds = TRANSFER;
        else if (interface_asks && holder == INTERFACE) holds = INTERFACE;
        else if (network_asks) holds = NETWORK;
        else if (transfer_asks) holds = TRANSFER;
        else if (interface_asks) holds = INTERFACE;
        else holds = NOBODY;
        if (STAGES < 3) works = NOBODY;
        else if (interfacing && worker == INTERFACE) works = INTERFACE;
        else if (transferring && by_processor) works = TRANSFER;
        else if (interfacing) works = INTERFACE;
        else works = NOBODY;
    end
    assign interface_go = interfacing && (STAGES < 3 ? holds == INTERFACE : works == INTERFACE);
    assign transfer_go = transferring && (by_processor ? works == TRANSFER : holds == TRANSFER);
    assign setup_go = preparing && (!IN_TURN || holds == NETWORK);
    assign send_go = sending && (!network_asks || holds == NETWORK);

    // A number for a message: one never used so far, or a free one.
    wire again;
    wire [WIDTH-1:0] returned;
    wire no_memory = used + length > MEMORY;
    assign full = outstanding >= DEPTH || (!DROPS && no_memory);
    wire taken = submit && !full && !no_memory;
    wire [WIDTH-1:0] number = again ? returned : fresh;
    waiting #(.SLOTS(DEPTH), .WIDTH(WIDTH)) free (
        .clock(clock), .reset(reset), .push(send_done), .slot(in_network), .class_in(8'd0),
        .pop(taken && again), .some(again), .first(returned));

    wire commanded, present, ready;
    wire [WIDTH-1:0] next_command, next_transfer, next_message;
    wire begin_interface = (!interfacing || interface_done) && commanded;
    wire begin_transfer = (!transferring || transfer_done) && present;
    wire idle = !preparing && (!sending || send_done);
    wire begin_network = idle && ready && may_send;
    assign nothing_to_send = idle && !ready;
    stage_queue #(.SLOTS(DEPTH), .WIDTH(WIDTH), .QUEUES(INTERFACE_QUEUES),
                  .DISCIPLINE(INTERFACE_DISCIPLINE)) commands (
        .clock(clock), .reset(reset), .push(taken), .slot(number), .class_in(class_in),
        .due_in(due), .pop(begin_interface), .some(commanded), .first(next_command));
    stage_queue #(.SLOTS(DEPTH), .WIDTH(WIDTH), .QUEUES(TRANSFER_QUEUES),
                  .DISCIPLINE(TRANSFER_DISCIPLINE)) transfers (
        .clock(clock), .reset(reset), .push(interface_done), .slot(in_interface),
        .class_in(classes[in_interface]), .due_in(dues[in_interface]),
        .pop(begin_transfer), .some(present), .first(next_transfer));
    stage_queue #(.SLOTS(DEPTH), .WIDTH(WIDTH), .QUEUES(NETWORK_QUEUES),
                  .DISCIPLINE(NETWORK_DISCIPLINE)) messages (
        .clock(clock), .reset(reset), .push(transfer_done), .slot(in_transfer),
        .class_in(classes[in_transfer]), .due_in(dues[in_transfer]),
        .pop(begin_network), .some(ready), .first(next_message));

    always @(posedge clock) begin
        dropped <= !reset && submit && !full && no_memory;
        write_ack <= !reset && interface_done;
        address_ack <= !reset && transfer_done;
        transmit_ack <= !reset && send_done;
        written <= in_interface;
        moved <= in_transfer;
        sent <= in_network;
        if (reset) begin
            {interfacing, transferring, preparing, sending} <= 4'd0;
            {in_interface, in_transfer, in_network} <= {3 * WIDTH{1'b0}};
            {holder, worker} <= 4'd0;
            used <= 0;
            outstanding <= 0;
            fresh <= 0;
        end else begin
            // A stage that is done requests the next message.
            holder <= (holds == INTERFACE && interface_done) || (holds == TRANSFER && transfer_done)
                      || (holds == NETWORK && send_done) ? NOBODY : holds;
            worker <= (works == INTERFACE && interface_done) || (works == TRANSFER && transfer_done)
                      ? NOBODY : works;
            if (taken) begin
                lengths[number] <= length;
                classes[number] <= class_in;
                dues[number] <= due;
                if (!again) fresh <= fresh + 1;
            end
            used <= used + (taken ? length : 32'd0) - (send_done ? send_length : 32'd0);
            outstanding <= outstanding + taken - send_done;
            interfacing <= begin_interface || (interfacing && !interface_done);
            transferring <= begin_transfer || (transferring && !transfer_done);
            preparing <= begin_network || (preparing && !setup_done);
            sending <= setup_done || (sending && !send_done);
            if (begin_interface) in_interface <= next_command;
            if (begin_transfer) in_transfer <= next_transfer;
            if (begin_network) in_network <= next_message;
        end
    end
endmodule
