//! The stages of reception in the books: their names and roles.

use lastmeter_base::StageId;

/// The role of stages that receive: interrupts, polls and the protocol.
pub const RECEPTION: &str = "reception";
/// The role of the stage that represents the application's use of the packets.
pub const APPLICATION: &str = "application";

/// One value for each stage of reception.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stages<T = StageId> {
    /// Entering and leaving interrupt handlers.
    pub interrupt: T,
    /// Switching to a thread.
    pub switch: T,
    /// The first command of a packet.
    pub accept: T,
    /// The transfer into host memory.
    pub transfer: T,
    /// The last command of a packet: the protocol stack.
    pub protocol: T,
    /// The application's processing.
    pub application: T,
    /// Polling interfaces that have nothing.
    pub polling: T,
}

/// A stage of reception in the books.
#[derive(Clone, Copy, Debug)]
pub struct Named<'a> {
    /// Its name, after that of its host.
    pub name: &'a str,
    /// Its role.
    pub role: &'static str,
    /// Whether the processor serves it.
    pub on_cpu: bool,
}

impl<'a> Stages<Named<'a>> {
    /// The stages on a host whose profile names none of them.
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
    /// Converts the value of each, in order.
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
