//! What `lastmeter why` makes of a measurement: ledger, verdict, what-ifs, and their wording.
//!
//! Nothing here measures; [`lastmeter_live`] does, and these functions turn its results into the
//! one output of every command.
//!
//! | module      | turns                                         | into                            |
//! |-------------|-----------------------------------------------|---------------------------------|
//! | `own`       | a transfer of our own and its stages          | a ledger                        |
//! | `model`     | the prediction of the same transfer           | a ledger to compare it with     |
//! | `observed`  | an observation of another program             | a ledger                        |
//! | `account`   | where the time of a command went              | stages, and states over time    |
//! | `datagrams` | what was read of UDP sockets                  | notes and counters              |
//! | `cause`     | what was read of a connection                 | its cause, by tests             |
//! | `pipeline`  | processes joined by pipes                     | the slowest of them             |
//! | `remote`    | what was seen at both ends of a connection    | one ledger                      |
//! | `truth`     | bottlenecks made on purpose                   | a score of the verdicts         |
//! | `interrupts`| how often the network interrupted the host    | a note                          |
//! | `waits`     | what waited, by the kernel's tracepoints      | a table, and notes              |
//! | `judgement` | what limited a transfer                       | the ledger's verdict            |
//! | `change`    | one change, by name (`mtu=4000`)              | another setting or another host |
//! | `trial`     | changes                                       | what they brought when applied  |
//! | `what_if`   | predictions and trials of changes             | what each buys, best first      |
//! | `beside`    | measured and predicted                        | text, side by side              |
//! | `explain`   | the name of a stage or figure                 | how it was measured             |
//! | `reach`     | profiles of hosts, and a rate                 | which of them carry it          |
//! | `ranking`   | predictions and measurements of a few changes | whether their order was right   |
//! | `host`      | a calibration                                 | a table, beside older hosts     |

pub mod account;
pub mod beside;
pub mod cause;
pub mod change;
pub mod datagrams;
pub mod explain;
pub mod host;
pub mod interrupts;
pub mod judgement;
pub mod model;
pub mod observed;
pub mod own;
pub mod pipeline;
pub mod ranking;
pub mod reach;
pub mod remote;
pub mod trial;
pub mod truth;
mod waits;
pub mod what_if;

/// A setting in words, for titles: what differs from the default.
pub(crate) fn words_of(setting: &lastmeter_live::transfer::Setting) -> String {
    use lastmeter_live::transfer::{CopyIn, Placement, Workload};
    let streams = match setting.streams {
        1 => String::new(),
        n => format!("{n} x "),
    };
    let mut words = vec![match setting.workload {
        Workload::Stream => format!("{streams}stream of {} messages", setting.message),
        Workload::RequestResponse => format!("{streams}request/response of {}", setting.message),
        Workload::SmallMessages => {
            format!("{streams}{} messages, each sent at once", setting.message)
        }
    }];
    words.push(format!("MTU {}", setting.mtu));
    words.push(if setting.offload { "GSO on" } else { "GSO off" }.to_owned());
    if setting.own_checksums {
        words.push("checksums by the processors".to_owned());
    }
    words.extend(setting.relay.and_then(|relay| relay.rate).map(|rate| format!("link of {rate}")));
    let buffers = [("send", setting.send_buffer), ("receive", setting.receive_buffer)];
    for (name, size) in buffers {
        words.extend(size.map(|size| format!("{name} buffer {size}")));
    }
    words.push(
        match setting.placement {
            Placement::SameCore => "both ends on one core",
            Placement::OtherCore => "ends on different cores",
            Placement::Free => "ends placed by the scheduler",
        }
        .to_owned(),
    );
    match setting.copy_in {
        CopyIn::Copy => {}
        CopyIn::ZeroCopy => words.push("MSG_ZEROCOPY".to_owned()),
        CopyIn::SendFile => words.push("sent by reference".to_owned()),
    }
    if !setting.copy_out {
        words.push("data not read".to_owned());
    }
    words.join(", ")
}
