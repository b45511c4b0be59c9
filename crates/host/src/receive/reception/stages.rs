//! The stages of reception in the books: what they are called, and what they are for.

use lastmeter_base::StageId;

/// The role of stages that receive: interrupts, polls and the protocol.
pub const RECEPTION: &str = "reception";
/// The role of the stage that stands for what the packets are for.
pub const APPLICATION: &str = "application";

/// Something for each stage of reception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages<T = StageId> {
    /// Entering and leaving interrupt handlers.
    pub interrupt: T,
    /// Turning to a thread.
    pub switch: T,
    /// The first command of a packet.
    pub accept: T,
    /// The transfer into the host's memory.
    pub transfer: T,
    /// The last command of a packet: the protocol stack.
    pub protocol: T,
    /// The application's work.
    pub application: T,
    /// Looking at interfaces that have nothing.
    pub polling: T,
}

/// What a stage of reception is called in the books.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Behind the name of its host.
    pub name: &'a str,
    /// What it is for.
    pub role: &'static str,
    /// Whether the processor serves it.
    pub on_cpu: bool,
}

impl<'a> Stages<Named<'a>> {
    /// Those of a host whose profile names none of them.
    pub const NAMES: Stages<Named<'static>> = {
        const fn on_cpu(name: &'static str, role: &'static str) -> Named<'static> {
            Named { name, role, on_cpu: true }
        }
        let transfer = Named { name: "adapter transfer", role: "transfer", on_cpu: false };
        Stages {
            interrupt: on_cpu("reception: interrupt entry", RECEPTION),
            switch: on_cpu("thread switch", "switch"),
            accept: on_cpu("reception: first command", RECEPTION),
            transfer,
            protocol: on_cpu("reception: protocol", RECEPTION),
            application: on_cpu("application", APPLICATION),
            polling: on_cpu("reception: polling", RECEPTION),
        }
    };
}

impl<T> Stages<T> {
    /// Something else for each, in order.
    pub fn map<U>(self, mut to: impl FnMut(T) -> U) -> Stages<U> {
        Stages {
            interrupt: to(self.interrupt),
            switch: to(self.switch),
            accept: to(self.accept),
            transfer: to(self.transfer),
            protocol: to(self.protocol),
            application: to(self.application),
            polling: to(self.polling),
        }
    }
}
