//! A skeleton of an adapter's firmware, in C, from its description (E-50, E-78, E-126).
//!
//! Stages, each with queues in front, as in Fig 4.4. A `delay(...)` represents what the hardware does, with its
//! cost in the model. To build the adapter, replace each `delay` with code that starts the hardware, and call
//! `STAGE_done` on completion.
//!
//! Source: Indiresan 1997, §4.3.4, Fig 4.4; §5.3, "END as a prototype"; §8.2.

use super::description::{Description, Discipline, InterfaceKind, Side, TransferMode};
use lastmeter_base::{Bytes, Duration, PerByte};
use std::fmt::Write;

/// A stage: its name, what it starts in the hardware, and the responses to the host at its end.
struct Stage {
    name: &'static str,
    works: Vec<String>,
    says: Vec<&'static str>,
}

/// The program text.
///
/// ```
/// use lastmeter_host::adapter::{description::Description, firmware};
/// let program = firmware::skeleton(&Description::plain("a card"));
/// assert!(program.contains("void transfer_do(void)") && program.contains("respond("));
/// ```
pub fn skeleton(card: &Description) -> String {
    let stages = stages(card);
    let mut text = format!(
        "/* {}: from its description. Each delay() represents work of the hardware. */\n\
         struct message;\nextern void q_insert(int stage, int queue, struct message *);\n\
         extern struct message *q_next(int stage); /* {} */\n\
         extern int queue_of(const struct message *);\n\
         extern void delay(struct message *, void (*done)(struct message *), const char *what);\n\
         extern void respond(struct message *, const char *what);\n\n\
         static int idle[{}] = {{ {} }};\n\n",
        card.what.replace("*/", "* /"),
        order(card),
        stages.len(),
        vec!["1"; stages.len()].join(", ")
    );
    for stage in &stages {
        let _ = writeln!(text, "void {0}_do(void);\nvoid {0}_done(struct message *);", stage.name);
    }
    let _ = writeln!(
        text,
        "\nvoid transmit_request(struct message *message)\n{{\n    q_insert(0, \
         queue_of(message), message);\n    {}_do();\n}}",
        stages[0].name
    );
    for (at, stage) in stages.iter().enumerate() {
        text += &one(stage, at, stages.get(at + 1).map(|next| next.name));
    }
    text
}

fn one(stage: &Stage, at: usize, next: Option<&str>) -> String {
    let name = stage.name;
    let mut text = format!(
        "\nvoid {name}_do(void)\n{{\n    struct message *message;\n\n    if (!idle[{at}] || \
         !(message = q_next({at})))\n        return;\n    idle[{at}]--;\n    delay(message, \
         {name}_done, \"{}\");\n}}\n\nvoid {name}_done(struct message *message)\n{{\n",
        stage.works.join("; ")
    );
    for word in &stage.says {
        let _ = writeln!(text, "    respond(message, \"{word}\");");
    }
    if let Some(next) = next {
        let after = at + 1;
        let _ =
            writeln!(text, "    q_insert({after}, queue_of(message), message);\n    {next}_do();");
    }
    text + &format!("    idle[{at}]++;\n    {name}_do();\n}}\n")
}

/// The discipline, in words.
fn order(card: &Description) -> String {
    let discipline = match card.queueing.discipline {
        Discipline::Fifo => "first come",
        Discipline::Priority => "highest class first",
        Discipline::Edd => "earliest due date first",
    };
    let queues = card.queueing.queues;
    format!("of {queues} queue{}: {discipline}", if queues == 1 { "" } else { "s" })
}

/// The three stages and what each does; costs are those of the description.
fn stages(card: &Description) -> Vec<Stage> {
    let says = |wanted: &[&str]| -> Vec<&'static str> {
        let sent = card.transmission().into_iter();
        let own = sent.filter(|(side, word)| *side == Side::Adapter && wanted.contains(word));
        own.map(|(_, word)| word).collect()
    };
    let (transfer, network) = (&card.transfer, &card.network);
    let mut interface = vec![match card.host.kind {
        InterfaceKind::Mailbox => "read the command mailbox".to_owned(),
        InterfaceKind::Fifo => "read the command FIFO".to_owned(),
        InterfaceKind::Rings => format!("fetch {} descriptors", card.host.batch.fetch),
    }];
    cost(&mut interface, "per message", card.host.per_message);
    let mut moved = vec![match transfer.mode {
        TransferMode::Dma => format!("DMA in blocks of {}", transfer.block),
        TransferMode::Pio => "wait for the host's programmed I/O".to_owned(),
        TransferMode::Hybrid => format!("DMA beyond {}", transfer.pio_max),
    }];
    cost(&mut moved, "per transfer", transfer.setup);
    cost(&mut moved, "per block", transfer.per_block);
    by_byte(&mut moved, transfer.small, transfer.per_byte_small, transfer.per_byte);
    let mut sent = vec![match network.rate {
        Some(rate) => format!("send at {rate}"),
        None => format!("send frames of {}", network.frame),
    }];
    cost(&mut sent, "per message", network.setup + network.processing);
    cost(&mut sent, "per frame", network.per_frame);
    vec![
        Stage { name: "interface", works: interface, says: says(&["write ack"]) },
        Stage { name: "transfer", works: moved, says: says(&["address ack"]) },
        Stage {
            name: "network",
            works: sent,
            says: says(&["transmit ack", "write back", "interrupt"]),
        },
    ]
}

fn cost(works: &mut Vec<String>, of: &str, time: Duration) {
    if !time.is_zero() {
        works.push(format!("{time} {of}"));
    }
}

fn by_byte(works: &mut Vec<String>, small: Bytes, first: PerByte, then: PerByte) {
    if small > Bytes::ZERO {
        works.push(format!("{first} up to {small}"));
    }
    if then != PerByte::ZERO {
        works.push(format!("{then} beyond"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::description::cim;
    use super::*;

    #[test]
    fn e_78_each_stage_has_do_and_done_and_the_responses_are_those_of_fig_5_1() {
        let text = skeleton(&cim());
        for stage in ["interface", "transfer", "network"] {
            assert_eq!(text.matches(&format!("{stage}_do(void)\n{{")).count(), 1, "{text}");
            assert!(text.contains(&format!("delay(message, {stage}_done, ")), "{text}");
        }
        assert_eq!(text.matches("delay(message").count(), 3);
        let said: Vec<&str> = text
            .lines()
            .filter_map(|line| {
                line.trim().strip_prefix("respond(message, \"")?.strip_suffix("\");")
            })
            .collect();
        assert_eq!(said, ["write ack", "address ack", "transmit ack"]);
        assert_eq!(text.matches('{').count(), text.matches('}').count());
        let simple = skeleton(&cim().with_simple_interface());
        assert_eq!(simple.matches("respond(message").count(), 1);
    }

    #[test]
    fn e_50_a_stage_follows_the_listing_of_fig_4_4() {
        // Lines 8 to 25: take a free resource and begin the delay; when done, begin the next stage, free the
        // resource and take the next message of this stage.
        let text = skeleton(&cim());
        let from = text.find("void transfer_done(struct message *message)").unwrap_or(0);
        let body = &text[from..from + text[from..].find("}\n").unwrap_or(0)];
        let at = |what: &str| body.find(what).unwrap_or_else(|| panic!("{what}: {body}"));
        assert!(at("q_insert(2") < at("network_do()"));
        assert!(at("network_do()") < at("idle[1]++") && at("idle[1]++") < at("transfer_do()"));
    }
}
