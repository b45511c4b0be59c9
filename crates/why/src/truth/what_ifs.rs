//! The what-ifs that are scored.

use crate::cause::Lift;

/// A made bottleneck, and a change.
pub struct WhatIf {
    /// For `--case`.
    pub name: &'static str,
    /// The made bottleneck.
    pub case: &'static str,
    /// How bad it is, from 1.
    pub severity: u32,
    /// The change; `None` is the one that the verdict names.
    pub lift: Option<Lift>,
    /// Seconds of looking, before and with the change.
    pub seconds: f64,
    /// The connection's youth is what limits, so it is looked at from its start.
    pub young: bool,
}

const fn of(name: &'static str, case: &'static str, severity: u32) -> WhatIf {
    WhatIf { name, case, severity, lift: None, seconds: 3.0, young: false }
}

const fn with(name: &'static str, case: &'static str, severity: u32, lift: Lift) -> WhatIf {
    WhatIf { lift: Some(lift), ..of(name, case, severity) }
}

/// Looked at for long: few events decide.
const fn long(one: WhatIf) -> WhatIf {
    WhatIf { seconds: 12.0, ..one }
}

const fn young(one: WhatIf) -> WhatIf {
    WhatIf { young: true, ..one }
}

/// All of them: those whose change is made from outside, those of the programs, of the path, of messages.
pub(super) const WHAT_IFS: &[WhatIf] = &[
    of("send-buffer", "send-buffer", 2),
    of("send-buffer-long", "send-buffer-long", 3),
    of("receive-buffer", "receive-buffer", 2),
    of("receive-buffer-long", "receive-buffer-long", 3),
    of("pacing-cap", "pacing-cap", 2),
    of("no-delay", "nagle", 2),
    of("no-delay-near", "nagle", 1),
    of("affinity", "one-core", 1),
    of("affinity-sender-hog", "sender-hog", 2),
    of("affinity-receiver-hog", "receiver-hog", 2),
    of("quota-sender", "sender-quota", 1),
    of("quota-receiver", "receiver-quota", 2),
    of("half-sleep", "sender-sleeps", 1),
    of("half-sleep-far", "sender-sleeps-far", 2),
    of("half-computing", "sender-computes", 2),
    of("half-computing-far", "sender-computes-far", 1),
    of("half-cipher", "sender-encrypts", 1),
    of("faster-disk", "sender-disk", 2),
    of("faster-pipe", "sender-pipe", 1),
    of("half-sleep-receiver", "receiver-sleeps-far", 1),
    of("half-computing-receiver", "receiver-computes-far", 1),
    of("faster-disk-receiver", "receiver-disk", 2),
    of("faster-pipe-receiver", "receiver-pipe", 2),
    of("faster-link", "link", 1),
    of("faster-link-far", "link-far", 2),
    of("faster-link-bbr", "link-bbr", 2),
    of("faster-link-many", "link-many", 2),
    of("faster-link-queue", "queue", 2),
    of("larger-contract", "policer", 1),
    of("larger-contract-bbr", "policer-bbr", 2),
    with("connections-full-link", "link-far", 1, Lift::Connections(4)),
    WhatIf { seconds: 2.0, ..young(of("connections-delay", "delay", 1)) },
    young(long(of("connections-slow-start", "slow-start", 2))),
    long(of("connections-loss", "loss", 1)),
    long(with("less-loss", "loss", 1, Lift::Loss(0.25))),
    with("bbr-loss", "loss", 1, Lift::Bbr),
    with("half-delay-buffer", "receive-buffer-long", 2, Lift::Trip(0.5)),
    with("half-delay-requests", "round-trips", 2, Lift::Trip(0.5)),
    of("two-requests", "round-trips-large", 1),
    of("larger-messages", "small-messages", 1),
    of("keep-open", "connections", 1),
    long(of("no-look-ups", "names", 1)),
    of("faster-datagram-reader", "datagrams-unread", 1),
];
