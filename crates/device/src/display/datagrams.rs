//! Programs that draw by transactions: framebuffer commands in DTP over UDP (`crate::transactions`; N-05, N-10).
//!
//! A client begins with `LMFB` 2 and is told the width and height of its screen, 2 bytes each. A transaction has whole
//! commands, as many as fit; its answer has those of the commands that have one.
//!
//! Nothing is encrypted: where the owner has a certificate, tokens of programs on other hosts are refused.

use super::commands::{execute, who};
use super::gate::{Display, Gate};
use crate::transactions::{self, ANSWER_MAX, Answer, Awake, Client, Refused, Service, Travel};
use lastmeter_plugin::request::Rect;
use lastmeter_wire::framebuffer::{ANSWER, ANSWERED, HEADER_LEN, Header, Operation, status};
use std::convert::Infallible;
use std::net::{ToSocketAddrs, UdpSocket};
use std::sync::Arc;

/// Serves programs until the socket fails.
///
/// # Errors
/// Why it failed.
pub fn serve(display: &Display, socket: &UdpSocket) -> Result<(), String> {
    transactions::serve(display, socket, Arc::new(Awake::at_most(1)))
}

impl Service for Display {
    const GREETING: [u8; 5] = *b"LMFB\x02";
    type Session<'a> = (&'a str, Gate<'a>);
    type Rest = Infallible;

    fn begin(&self, token: &[u8], is_local: bool) -> Result<(Self::Session<'_>, Vec<u8>), Refused> {
        if self.tls.is_some() && !is_local {
            return Err(Refused::Clear);
        }
        let client = who(self, token).ok_or(Refused::Unknown)?;
        let gate = Gate::new(self, client).map_err(|_| Refused::Unknown)?;
        let size = [gate.region.w.to_be_bytes(), gate.region.h.to_be_bytes()].concat();
        Ok(((client, gate), size))
    }
    fn is_ordered(&self, _: &[u8]) -> bool {
        true
    }
    fn finish(&self, rest: &mut Infallible, _: &mut Answer, _: bool) -> bool {
        match *rest {}
    }
    /// A command that is not whole ends it.
    fn execute<'a>(
        &'a self,
        session: &mut Self::Session<'a>,
        mut commands: &[u8],
        answers: &mut Answer,
    ) -> Option<Infallible> {
        let (client, gate) = session;
        gate.fit();
        while let Some((head, rest)) = commands.split_first_chunk::<HEADER_LEN>() {
            let mut lap = self.commands.begin();
            let header = Header::parse(head);
            let Some((data, rest)) = rest.split_at_checked(header.length as usize) else {
                self.commands.refuse("a command that is not whole");
                break;
            };
            commands = rest;
            lap.served(0);
            let area = header.area;
            let reads = header.operation == Operation::READ;
            let long = HEADER_LEN + 4 * usize::from(area.w) * usize::from(area.h);
            let (state, back) = if reads && answers.data().len() + long > ANSWER_MAX {
                self.commands.refuse("more pixels than fit into an answer");
                (status::INVALID, Vec::new())
            } else {
                execute(self, gate, client, (&header, data), lap)
            };
            let room = answers.data().len() + HEADER_LEN <= ANSWER_MAX;
            if (header.flags & ANSWER != 0 || reads) && room {
                answers.put(&header.answer(state, back.len() as u32).emit());
                answers.put(&back);
            }
        }
        None
    }
}

/// The client side, for programs.
pub struct Transactions {
    client: Client,
    /// Commands of the next transaction.
    waiting: Vec<u8>,
    /// The most bytes of a transaction.
    len: usize,
    /// Width and height of its screen.
    pub size: (u16, u16),
}

impl Transactions {
    /// Connects; an empty token means none. At most `window` transactions of `len` bytes are outstanding.
    ///
    /// # Errors
    /// If it is refused, or nobody answers.
    pub fn greet(
        address: impl ToSocketAddrs,
        token: &str,
        window: u16,
        len: usize,
    ) -> Result<Transactions, String> {
        let (client, hello) =
            Client::greet(address, Display::GREETING, token, window, Travel::Datagrams)?;
        let [w0, w1, h0, h1] = hello[..] else { return Err("no display's answer".to_owned()) };
        let size = (u16::from_be_bytes([w0, w1]), u16::from_be_bytes([h0, h1]));
        let len = len.clamp(HEADER_LEN + 4, ANSWER_MAX);
        Ok(Transactions { client, waiting: Vec::new(), len, size })
    }
    /// How many transactions were answered, and how many had to be sent again.
    pub fn counts(&self) -> (u64, u64) {
        self.client.counts()
    }
    fn queue(
        &mut self,
        operation: Operation,
        flags: u8,
        at: Rect,
        data: &[u8],
    ) -> Result<(), String> {
        let area = super::encoding::area(at);
        let header = Header { operation, flags, tag: 0, area, length: data.len() as u32 };
        let long = HEADER_LEN + data.len();
        if long > self.len {
            return Err(format!("a command of {long} bytes, where {} fit", self.len));
        }
        if self.waiting.len() + long > self.len {
            self.flush()?;
        }
        self.waiting.extend(header.emit());
        self.waiting.extend_from_slice(data);
        Ok(())
    }
    /// Queues a command. Pixels are put in parts that fit into transactions.
    ///
    /// # Errors
    /// If the display does not answer, or the command does not fit.
    pub fn add(&mut self, operation: Operation, at: Rect, data: &[u8]) -> Result<(), String> {
        if operation != Operation::PUT || HEADER_LEN + data.len() <= self.len {
            return self.queue(operation, 0, at, data);
        }
        let room = (self.len - HEADER_LEN) / 4;
        let width = usize::from(at.w);
        let wide = width.min(room).max(1);
        let high = (room / wide).max(1);
        for top in (0..usize::from(at.h)).step_by(high) {
            for left in (0..width).step_by(wide) {
                let (w, h) = (wide.min(width - left), high.min(usize::from(at.h) - top));
                let rows = (top..top + h).map(|row| 4 * (row * width + left));
                let rows: Option<Vec<&[u8]>> =
                    rows.map(|start| data.get(start..start + 4 * w)).collect();
                let part = rows.ok_or("fewer pixels than the area has")?.concat();
                let (x, y) = (at.x + left as u16, at.y + top as u16);
                self.queue(operation, 0, Rect { x, y, w: w as u16, h: h as u16 }, &part)?;
            }
        }
        Ok(())
    }
    /// Sends what is queued.
    ///
    /// # Errors
    /// If the display does not answer.
    pub fn flush(&mut self) -> Result<(), String> {
        if !self.waiting.is_empty() {
            let data = std::mem::take(&mut self.waiting);
            self.client.submit(data)?;
        }
        Ok(())
    }
    /// Sends what is queued and this command, and waits for its answer: the status and the pixels read.
    ///
    /// # Errors
    /// If the display does not answer.
    pub fn ask(
        &mut self,
        operation: Operation,
        at: Rect,
        data: &[u8],
    ) -> Result<(u8, Vec<u8>), String> {
        self.flush()?;
        self.queue(operation, ANSWER, at, data)?;
        let commands = std::mem::take(&mut self.waiting);
        let answer = self.client.transact(commands)?;
        let (head, data) = answer.split_first_chunk().ok_or("an answer that is not whole")?;
        let header = Header::parse(head);
        match header.operation.0 == operation.0 | ANSWERED {
            true => Ok((header.flags, data.to_vec())),
            false => Err("an answer to something else".to_owned()),
        }
    }
}
