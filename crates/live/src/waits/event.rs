//! Passes of tracepoints as what they say: which thread was woken, which packet was queued.
//!
//! The kernel says where the fields of each are; a tracepoint that lacks a field that is needed here counts as one
//! that is not there.

use lastmeter_linux::trace::{Field, Format};

/// The most names of interfaces that are kept apart.
const DEVICES_MAX: usize = 64;
/// The longest name of an interface (`IFNAMSIZ`, less the zero).
const NAME_MAX: usize = 15;
/// The most fields that are read of a tracepoint.
const FIELDS: usize = 3;
/// A state of a thread in which it could run: none of the bits of those that sleep, stop or end.
const SLEEPS: u64 = 0xff;
/// `AF_INET`, `AF_INET6`.
const INTERNET: [u64; 2] = [2, 10];
/// `MSG_PEEK`.
const PEEK: u64 = 2;

/// Softirq `NET_TX` of `linux/interrupt.h`.
pub(super) const NET_TX: u64 = 2;
/// Softirq `NET_RX`.
pub(super) const NET_RX: u64 = 3;
/// Only the network's softirqs are recorded.
const SOFTIRQS: &str = "vec == 2 || vec == 3";

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// A thread that sleeps is about to be woken.
    Waking(u32),
    /// It is ready for a CPU.
    Woken(u32),
    /// A CPU goes from one thread, which could go on or not, to another.
    Switch { out: u32, ready: bool, into: u32 },
    /// A softirq is wanted on this CPU.
    Raised(u64),
    /// It begins.
    Began(u64),
    /// A packet is handed to an interface.
    Queued { packet: u64, device: u16 },
    /// Its driver gets the packet.
    Started { packet: u64, device: u16 },
    /// A packet waits for the receive softirq of a CPU.
    Backlogged(u64),
    /// The stack takes a packet.
    Received(u64),
    /// The thread that runs begins to copy out of a packet.
    Copied(u64),
    /// The thread that runs has received from a socket: from one of the Internet, and for good.
    Taken(bool),
    /// A packet found no room in a socket.
    Full,
    /// Something was not recorded: nothing is known about what went on meanwhile.
    Gap,
}

/// When, where, in whose time, and what.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Event {
    /// Nanoseconds.
    pub(super) at: u64,
    pub(super) cpu: u32,
    /// The process that ran, as this process numbers it.
    pub(super) process: u32,
    /// The thread that ran, as the kernel numbers it.
    pub(super) thread: u32,
    pub(super) what: What,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Waking,
    Woken,
    Switch,
    Raised,
    Began,
    Queued,
    Started,
    Backlogged,
    Received,
    Copied,
    Taken,
    Full,
}

/// A tracepoint: its name, which of its passes are recorded, and the fields that are read.
struct Row(&'static str, Kind, &'static str, &'static [&'static str]);

/// The tracepoints.
const ROWS: [Row; 12] = [
    Row("sched/sched_waking", Kind::Waking, "", &["pid"]),
    Row("sched/sched_wakeup", Kind::Woken, "", &["pid"]),
    Row("sched/sched_switch", Kind::Switch, "", &["prev_pid", "prev_state", "next_pid"]),
    Row("irq/softirq_raise", Kind::Raised, SOFTIRQS, &["vec"]),
    Row("irq/softirq_entry", Kind::Began, SOFTIRQS, &["vec"]),
    Row("net/net_dev_queue", Kind::Queued, "", &["skbaddr", "name"]),
    Row("net/net_dev_start_xmit", Kind::Started, "", &["skbaddr", "name"]),
    Row("net/netif_rx", Kind::Backlogged, "", &["skbaddr"]),
    Row("net/netif_receive_skb", Kind::Received, "", &["skbaddr"]),
    Row("skb/skb_copy_datagram_iovec", Kind::Copied, "", &["skbaddr"]),
    Row("sock/sock_recv_length", Kind::Taken, "", &["family", "ret", "flags"]),
    Row("sock/sock_rcvqueue_full", Kind::Full, "", &[]),
];

/// A tracepoint of this kernel.
struct Known {
    id: u16,
    kind: Kind,
    filter: &'static str,
    thread: Field,
    fields: [Option<Field>; FIELDS],
}

/// Turns records into events.
pub(super) struct Decoder {
    kind: Field,
    known: Vec<Known>,
    devices: Vec<String>,
}

impl Decoder {
    /// With the tracepoints that `format` describes; `None` if there are none.
    pub(super) fn new(format: impl Fn(&str) -> Option<Format>) -> Option<Decoder> {
        let mut kind = None;
        let mut known = Vec::new();
        for Row(name, what, filter, needed) in ROWS {
            let Some(format) = format(name) else { continue };
            let found: Option<Vec<Field>> = needed.iter().map(|name| format.field(name)).collect();
            let common = format.field("common_type").zip(format.field("common_pid"));
            let (Some(found), Some((number, thread))) = (found, common) else { continue };
            let mut fields = [None; FIELDS];
            fields.iter_mut().zip(found).for_each(|(field, found)| *field = Some(found));
            kind.get_or_insert(number);
            known.push(Known { id: format.id, kind: what, filter, thread, fields });
        }
        Some(Decoder { kind: kind?, known, devices: Vec::new() })
    }

    /// What is to be recorded.
    pub(super) fn wanted(&self) -> Vec<(u16, &'static str)> {
        self.known.iter().map(|known| (known.id, known.filter)).collect()
    }

    /// The names of interfaces so far, by the numbers that events have.
    pub(super) fn devices(&self) -> &[String] {
        &self.devices
    }

    /// The event of a record; `None` for one that is not understood.
    pub(super) fn event(&mut self, at: u64, cpu: u32, process: u32, data: &[u8]) -> Option<Event> {
        let id = self.kind.number(data)?;
        let known = self.known.iter().find(|known| u64::from(known.id) == id)?;
        let (kind, thread) = (known.kind, known.thread.number(data)? as u32);
        let [first, second, third] = known.fields;
        let number = |field: Option<Field>| field.and_then(|field| field.number(data));
        let thread_of = |field| number(field).map(|number| number as u32);
        let what = match kind {
            Kind::Waking => What::Waking(thread_of(first)?),
            Kind::Woken => What::Woken(thread_of(first)?),
            Kind::Switch => What::Switch {
                out: thread_of(first)?,
                ready: number(second)? & SLEEPS == 0,
                into: thread_of(third)?,
            },
            Kind::Raised => What::Raised(number(first)?),
            Kind::Began => What::Began(number(first)?),
            Kind::Backlogged => What::Backlogged(number(first)?),
            Kind::Received => What::Received(number(first)?),
            Kind::Copied => What::Copied(number(first)?),
            Kind::Taken => {
                let moved = number(second)? as u32 as i32 > 0 && number(third)? & PEEK == 0;
                What::Taken(moved && INTERNET.contains(&number(first)?))
            }
            Kind::Full => What::Full,
            Kind::Queued | Kind::Started => {
                let packet = number(first)?;
                let device = self.device(second?.text(data)?)?;
                match kind {
                    Kind::Queued => What::Queued { packet, device },
                    _ => What::Started { packet, device },
                }
            }
        };
        Some(Event { at, cpu, process, thread, what })
    }

    /// The number of an interface; `None` if there are too many.
    fn device(&mut self, name: &[u8]) -> Option<u16> {
        let clean = |byte: &u8| if byte.is_ascii_graphic() { char::from(*byte) } else { '?' };
        let same = |known: &String| name.iter().take(NAME_MAX).map(clean).eq(known.chars());
        let place = self.devices.iter().position(same);
        if place.is_none() && self.devices.len() < DEVICES_MAX {
            self.devices.push(name.iter().take(NAME_MAX).map(clean).collect());
            return u16::try_from(self.devices.len() - 1).ok();
        }
        u16::try_from(place?).ok()
    }
}

/// Formats and records of tracepoints as a kernel might have them, for tests.
pub(super) mod made {
    use super::{Format, ROWS};

    /// The format of a tracepoint of [`ROWS`]: its number is its place there, each field takes eight bytes.
    pub(in super::super) fn format(name: &str) -> Option<Format> {
        let place = ROWS.iter().position(|row| row.0 == name)?;
        let mut text = format!(
            "ID: {place}\nfield:unsigned short common_type;offset:0;size:2;\n\
             field:int common_pid;offset:4;size:4;\n"
        );
        for (number, field) in ROWS[place].3.iter().enumerate() {
            let (kind, size) = match *field {
                "name" => ("__data_loc char[]", 4),
                _ => ("unsigned long", 8),
            };
            text += &format!("field:{kind} {field};offset:{};size:{size};\n", 8 + 8 * number);
        }
        Format::parse(&text)
    }

    /// What a tracepoint records in the time of a thread; a name follows the fields.
    #[cfg(test)]
    pub(in super::super) fn data(
        name: &str,
        thread: u32,
        fields: [u64; 3],
        device: &[u8],
    ) -> Vec<u8> {
        let place = ROWS.iter().position(|row| row.0 == name).unwrap_or(ROWS.len()) as u32;
        let mut data = [place.to_ne_bytes(), thread.to_ne_bytes()].concat();
        fields.iter().for_each(|field| data.extend(field.to_ne_bytes()));
        if !device.is_empty() {
            let at = data.len() as u32 | (device.len() as u32) << 16;
            data[16..20].copy_from_slice(&at.to_ne_bytes());
            data.extend(device);
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::made::{data, format};
    use super::*;

    fn what(decoder: &mut Decoder, name: &str, fields: [u64; 3], device: &[u8]) -> Option<What> {
        decoder.event(5, 1, 70, &data(name, 71, fields, device)).map(|event| {
            assert_eq!((event.at, event.cpu, event.process, event.thread), (5, 1, 70, 71));
            event.what
        })
    }

    #[test]
    fn records_say_what_happened() {
        let mut decoder = Decoder::new(format).unwrap();
        assert_eq!(decoder.wanted().len(), ROWS.len());
        assert_eq!(decoder.wanted()[3], (3, SOFTIRQS));
        let mut of = |name: &str, fields| what(&mut decoder, name, fields, b"");
        assert_eq!(of("sched/sched_waking", [9, 0, 0]), Some(What::Waking(9)));
        let switch = |ready| Some(What::Switch { out: 8, ready, into: 9 });
        // Running, asleep, preempted, waiting for a disk, and about to end.
        for (state, ready) in [(0, true), (1, false), (0x100, true), (2, false), (0x20, false)] {
            assert_eq!(of("sched/sched_switch", [8, state, 9]), switch(ready), "{state:x}");
        }
        let taken =
            [[2, 100, 0], [10, 1, 0], [1, 100, 0], [2, 0, 0], [2, 0xffff_fff5, 0], [2, 9, 2]];
        let right = [true, true, false, false, false, false];
        for (fields, right) in taken.into_iter().zip(right) {
            assert_eq!(of("sock/sock_recv_length", fields), Some(What::Taken(right)));
        }
        assert_eq!(of("sock/sock_rcvqueue_full", [0; 3]), Some(What::Full));
        assert_eq!(of("another", [0; 3]), None);
        assert_eq!(decoder.event(0, 0, 0, &[2, 0, 0, 0, 1, 0, 0, 0]), None, "cut short");
    }

    #[test]
    fn interfaces_are_told_apart_by_name_and_their_names_can_be_printed() {
        let mut decoder = Decoder::new(format).unwrap();
        let mut of = |name: &str, device: &[u8]| what(&mut decoder, name, [7, 0, 0], device);
        let queued = |device| Some(What::Queued { packet: 7, device });
        assert_eq!(of("net/net_dev_queue", b"lm0\0"), queued(0));
        assert_eq!(of("net/net_dev_queue", b"e\x1b[1m\0"), queued(1));
        let started = What::Started { packet: 7, device: 0 };
        assert_eq!(of("net/net_dev_start_xmit", b"lm0\0"), Some(started));
        for number in 0..2 * DEVICES_MAX {
            of("net/net_dev_queue", format!("eth{number}\0").as_bytes());
        }
        assert_eq!(of("net/net_dev_queue", b"lm0\0"), queued(0));
        assert_eq!(of("net/net_dev_queue", b"one-more\0"), None);
        assert_eq!(decoder.devices()[..2], ["lm0", "e?[1m"]);
        assert_eq!(decoder.devices().len(), DEVICES_MAX);
    }

    #[test]
    fn a_tracepoint_without_a_field_that_is_needed_is_not_there() {
        let without = |name: &str| match name {
            "sched/sched_switch" => Format::parse("ID: 2\nfield:int prev_pid;offset:8;size:4;\n"),
            "net/netif_rx" => None,
            other => format(other),
        };
        assert_eq!(Decoder::new(without).unwrap().wanted().len(), ROWS.len() - 2);
        assert!(Decoder::new(|_| None).is_none());
    }
}
