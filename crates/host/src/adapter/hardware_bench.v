// Messages of one length sent back to back; each activity is a counter of cycles with the model's duration. Prints
// the mean time from one message to the next, in picoseconds, without the first fifth.

module activity #(parameter CYCLES = 1) (
    input wire clock,
    input wire reset,
    input wire go,
    output wire done
);
    reg [63:0] spent;
    assign done = go && spent == CYCLES - 1;
    always @(posedge clock) spent <= reset || done ? 0 : spent + go;
endmodule

module bench #(
    parameter PERIOD = 4000, // clock period, in picoseconds
    parameter MESSAGES = 100,
    parameter LENGTH = 4096,
    parameter INTERFACE_CYCLES = 1,
    parameter TRANSFER_CYCLES = 1,
    parameter SETUP_CYCLES = 1,
    parameter SEND_CYCLES = 1
);
    reg clock = 0, reset = 1;
    wire full, transmit_ack;
    wire interface_go, interface_done, transfer_go, transfer_done;
    wire setup_go, setup_done, send_go, send_done;
    always #1 clock = !clock;
    initial #5 reset = 0;

    card card (
        .clock(clock), .reset(reset), .submit(!reset && !full), .length(LENGTH), .class_in(8'd0),
        .due(64'd0), .full(full), .transmit_ack(transmit_ack), .may_send(1'b1),
        .interface_go(interface_go), .interface_done(interface_done),
        .transfer_go(transfer_go), .transfer_done(transfer_done),
        .setup_go(setup_go), .setup_done(setup_done), .send_go(send_go), .send_done(send_done));
    activity #(.CYCLES(INTERFACE_CYCLES)) interface_is (
        .clock(clock), .reset(reset), .go(interface_go), .done(interface_done));
    activity #(.CYCLES(TRANSFER_CYCLES)) transfer_is (
        .clock(clock), .reset(reset), .go(transfer_go), .done(transfer_done));
    activity #(.CYCLES(SETUP_CYCLES)) setup_is (
        .clock(clock), .reset(reset), .go(setup_go), .done(setup_done));
    activity #(.CYCLES(SEND_CYCLES)) send_is (
        .clock(clock), .reset(reset), .go(send_go), .done(send_done));

    localparam LAST = MESSAGES - 1, FIRST = LAST / 5;
    reg [63:0] now = 0, since = 0;
    integer done = 0;
    always @(posedge clock) begin
        now <= now + 1;
        if (transmit_ack) begin
            done <= done + 1;
            if (done == FIRST) since <= now;
            if (done == LAST) begin
                $display("%0d", (now - since) * PERIOD / (LAST - FIRST));
                $finish;
            end
        end
    end
endmodule
