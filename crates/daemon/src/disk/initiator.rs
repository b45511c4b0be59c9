//! An iSCSI initiator for measurements: a given number of commands in flight on a connection.

use super::client::{Laps, Load, Seen};
use crate::Complaint;
use lastmeter_base::Stream;
use lastmeter_wire::iscsi::{
    Answer, Ask, HEADER_LEN, NO_TAG, Request, Response, lengths, padded, stage, text,
};
use std::io::{BufReader, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

/// Bytes of a block.
const BLOCK: u32 = 512;

/// A session.
struct Initiator {
    stream: TcpStream,
    reader: BufReader<TcpStream>,
    number: u32,
    status_expected: u32,
    /// The most data of a PDU to the target, and of what it has not asked for.
    send_max: u32,
    first_burst: u32,
    /// The logical unit.
    unit: u64,
    /// What is to be sent.
    out: Vec<u8>,
    data: Vec<u8>,
}

impl Initiator {
    fn open(portal: SocketAddr, target: &str, unit: u64) -> Result<Initiator, Complaint> {
        let stream = TcpStream::connect(portal)?;
        stream.set_nodelay(true)?;
        let reader = BufReader::with_capacity(1 << 20, stream.try_clone()?);
        let (send_max, first_burst) = (8192, 65536);
        let (out, data) = (Vec::new(), Vec::new());
        let mut made = Initiator {
            stream,
            reader,
            number: 1,
            status_expected: 0,
            send_max,
            first_burst,
            unit,
            out,
            data,
        };
        made.log_in(target)?;
        // The first command is told that the unit is new.
        while made.command(0, &[0; 10], 0, None)? != 0 {}
        Ok(made)
    }

    fn pdu(&mut self, request: Request, data: &[u8]) {
        let request = Request {
            status_expected: self.status_expected,
            data_len: data.len() as u32,
            ..request
        };
        self.out.extend(request.emit());
        self.out.extend_from_slice(data);
        self.out.resize(self.out.len() + padded(data.len()) - data.len(), 0);
    }
    fn send(&mut self) -> Result<(), Complaint> {
        self.stream.write_all(&self.out)?;
        self.out.clear();
        Ok(())
    }
    /// The next response; its data are in `data`.
    fn receive(&mut self) -> Result<Response, Complaint> {
        let mut header = [0; HEADER_LEN];
        self.reader.read_exact(&mut header)?;
        let (more, len) = lengths(&header);
        self.data.resize(more + padded(len), 0);
        self.reader.read_exact(&mut self.data)?;
        self.data.truncate(len);
        let response = Response::parse(&header)?;
        if !matches!(response.answer, Answer::DataIn { status: None, .. } | Answer::Ready { .. }) {
            self.status_expected = response.status_number.wrapping_add(1);
        }
        Ok(response)
    }

    fn log_in(&mut self, target: &str) -> Result<(), Complaint> {
        let mut keys = Vec::new();
        for (key, value) in [
            ("InitiatorName", "iqn.2026-11.local.lastmeter:bench"),
            ("TargetName", target),
            ("SessionType", "Normal"),
            ("HeaderDigest", "None"),
            ("DataDigest", "None"),
            ("InitialR2T", "No"),
            ("ImmediateData", "Yes"),
            ("MaxRecvDataSegmentLength", "262144"),
            ("MaxBurstLength", "1048576"),
            ("FirstBurstLength", "262144"),
        ] {
            text::emit(&mut keys, key, value);
        }
        let ask = Ask::login(stage::OPERATIONAL, stage::FULL, [0x80, 0, 0, 1, 0, 0]);
        let number = self.number;
        self.pdu(Request { immediate: true, command_number: number, ..Request::new(ask) }, &keys);
        self.send()?;
        loop {
            let response = self.receive()?;
            let Answer::Login { transit, status, .. } = response.answer else {
                return Err(Complaint("the target did not answer a login".to_owned()));
            };
            if status != 0 {
                return Err(Complaint(format!("the target refused a login: {status:#06x}")));
            }
            let told = text::parse(&self.data)?;
            let number = |key: &str| {
                let found = told.iter().find(|(own, _)| *own == key);
                found.and_then(|(_, value)| text::number(value))
            };
            self.send_max = number("MaxRecvDataSegmentLength").unwrap_or(self.send_max);
            self.first_burst = number("FirstBurstLength").unwrap_or(self.first_burst);
            if transit {
                return Ok(());
            }
            self.pdu(Request { immediate: true, command_number: 1, ..Request::new(ask) }, &[]);
            self.send()?;
        }
    }

    /// Asks for a command; its data are sent as far as they may.
    fn ask(&mut self, task: u32, cdb: &[u8; 10], reads: u32, data: Option<&[u8]>) {
        let writes = data.is_some();
        let data = data.unwrap_or(&[]);
        let expected = if writes { data.len() as u32 } else { reads };
        let full = std::array::from_fn(|at| cdb.get(at).copied().unwrap_or(0));
        let (last, attribute, reads) = (true, 1, reads > 0);
        let ask = Ask::Command { last, reads, writes, attribute, expected, cdb: full };
        let (lun, command_number) = (self.unit << 48, self.number);
        let request = Request { task, lun, command_number, ..Request::new(ask) };
        self.number = self.number.wrapping_add(1);
        let now = data.len().min(self.send_max.min(self.first_burst) as usize);
        self.pdu(request, &data[..now]);
    }
    /// The data that the target asks for.
    fn give(&mut self, task: u32, (transfer, offset, length): (u32, u32, u32), data: &[u8]) {
        let (mut done, mut number) = (0, 0);
        while done < length {
            let part = self.send_max.min(length - done);
            let last = done + part == length;
            let ask = Ask::DataOut { last, transfer, number, offset: offset + done };
            let from = (offset + done) as usize;
            let piece = &data[from..from + part as usize];
            self.pdu(Request { task, ..Request::new(ask) }, piece);
            done += part;
            number += 1;
        }
    }
    /// The next command that ends: its tag and status.
    fn ended(&mut self, data: &[u8]) -> Result<(u32, u8), Complaint> {
        loop {
            let response = self.receive()?;
            match response.answer {
                Answer::Command { status, .. } | Answer::DataIn { status: Some(status), .. } => {
                    return Ok((response.task, status));
                }
                Answer::Ready { transfer, offset, length, .. } => {
                    self.give(response.task, (transfer, offset, length), data);
                    self.send()?;
                }
                Answer::Reject { reason } => {
                    return Err(Complaint(format!("the target rejected a PDU: {reason}")));
                }
                _ => {}
            }
        }
    }
    /// One command; its status.
    fn command(
        &mut self,
        task: u32,
        cdb: &[u8; 10],
        reads: u32,
        data: Option<&[u8]>,
    ) -> Result<u8, Complaint> {
        self.ask(task, cdb, reads, data);
        self.send()?;
        Ok(self.ended(data.unwrap_or(&[]))?.1)
    }
    fn close(&mut self) -> Result<(), Complaint> {
        let ask = Ask::Logout { reason: 0, connection: 1 };
        let request =
            Request { task: NO_TAG - 1, command_number: self.number, ..Request::new(ask) };
        self.pdu(request, &[]);
        self.send()?;
        self.receive().map(|_| ())
    }
}

/// READ(10) or WRITE(10).
fn cdb(write: bool, lba: u32, bytes: u32) -> [u8; 10] {
    let [a, b, c, d] = lba.to_be_bytes();
    let [high, low] = ((bytes / BLOCK) as u16).to_be_bytes();
    [if write { 0x2a } else { 0x28 }, 0, a, b, c, d, 0, high, low, 0]
}

/// Writes the first `size` bytes.
pub(super) fn fill(
    portal: SocketAddr,
    target: &str,
    unit: u64,
    size: u64,
) -> Result<(), Complaint> {
    const LENGTH: u32 = 64 << 10;
    let mut initiator = Initiator::open(portal, target, unit)?;
    let data = vec![0xa5; LENGTH as usize];
    for number in 0..size / u64::from(LENGTH) {
        let lba = (number * u64::from(LENGTH / BLOCK)) as u32;
        if initiator.command(1, &cdb(true, lba, LENGTH), 0, Some(&data))? != 0 {
            return Err(Complaint("the target could not be filled".to_owned()));
        }
    }
    initiator.close()
}

/// Commands at random places of the first `size` bytes, for so long.
pub(super) fn run(
    portal: SocketAddr,
    target: &str,
    unit: u64,
    size: u64,
    load: Load,
    seconds: f64,
) -> Result<Seen, Complaint> {
    let mut initiator = Initiator::open(portal, target, unit)?;
    let places = (size / u64::from(load.length)).max(1);
    let mut random = Stream::new(1, "places");
    let data = vec![0x5a; load.length as usize];
    let mut laps = Laps::new(load.depth);
    // Tags begin with 1.
    let mut ask = |initiator: &mut Initiator, laps: &mut Laps, at: usize| {
        let task = 1 + at as u32;
        let lba = random.below(places) * u64::from(load.length / BLOCK);
        let cdb = cdb(load.write, lba as u32, load.length);
        match load.write {
            true => initiator.ask(task, &cdb, 0, Some(&data)),
            false => initiator.ask(task, &cdb, load.length, None),
        }
        laps.ask(at);
    };
    (0..load.depth as usize).for_each(|at| ask(&mut initiator, &mut laps, at));
    initiator.send()?;
    let until = Duration::from_secs_f64(seconds);
    while laps.elapsed() < until {
        // All answers that are there, and as many new commands at once.
        loop {
            let (task, status) = initiator.ended(&data)?;
            if status != 0 {
                return Err(Complaint(format!("a command ended with status {status}")));
            }
            let at = laps.answered(u64::from(task).wrapping_sub(1))?;
            ask(&mut initiator, &mut laps, at);
            if initiator.reader.buffer().len() < HEADER_LEN {
                break;
            }
        }
        initiator.send()?;
    }
    let seen = laps.end();
    // What is in flight.
    for _ in 0..load.depth {
        initiator.ended(&data)?;
    }
    initiator.close()?;
    Ok(seen)
}
