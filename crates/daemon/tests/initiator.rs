//! An initiator of iSCSI that reads and writes single blocks.

use lastmeter_wire::iscsi::{
    Answer, Ask, HEADER_LEN, Request, Response, lengths, padded, stage, text,
};
use lastmeter_wire::scsi::Sense;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

/// Well, or with this sense.
type Ended = Result<(), Sense>;

/// Bytes of a block.
const BLOCK: usize = 512;

pub(crate) struct Initiator {
    stream: TcpStream,
    number: u32,
    data: Vec<u8>,
}

impl Initiator {
    /// Logs in as anyone: `127.0.0.1:3260/iqn.2026-11.local.test:disk/0`.
    pub(crate) fn open(address: &str) -> Initiator {
        let mut parts = address.split('/');
        let stream = TcpStream::connect(parts.next().unwrap()).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        let mut made = Initiator { stream, number: 1, data: Vec::new() };
        let mut keys = Vec::new();
        text::emit(&mut keys, "InitiatorName", "iqn.2026-11.local.test:initiator");
        text::emit(&mut keys, "TargetName", parts.next().unwrap());
        let ask = Ask::login(stage::OPERATIONAL, stage::FULL, [0x80, 0, 0, 0, 0, 1]);
        let request = Request { immediate: true, command_number: 1, ..Request::new(ask) };
        made.say(request, &keys).unwrap();
        let answer = made.next().unwrap().answer;
        assert!(matches!(answer, Answer::Login { transit: true, status: 0, .. }), "{answer:?}");
        // The first command is told that the unit is new.
        let new = made.command(&[0; 10], 0, None);
        assert_eq!(new, Some(Err(Sense::POWER_ON)));
        made
    }
    fn say(&mut self, request: Request, data: &[u8]) -> Option<()> {
        let request = Request { data_len: data.len() as u32, ..request };
        let mut bytes = request.emit().to_vec();
        bytes.extend(data);
        bytes.resize(HEADER_LEN + padded(data.len()), 0);
        self.stream.write_all(&bytes).ok()
    }
    fn next(&mut self) -> Option<Response> {
        let mut header = [0; HEADER_LEN];
        self.stream.read_exact(&mut header).ok()?;
        let (_, len) = lengths(&header);
        self.data.resize(padded(len), 0);
        self.stream.read_exact(&mut self.data).ok()?;
        self.data.truncate(len);
        Some(Response::parse(&header).unwrap())
    }
    /// How a command ended; none if the connection ended.
    fn command(&mut self, cdb: &[u8; 10], reads: u32, data: Option<&[u8]>) -> Option<Ended> {
        let full = std::array::from_fn(|at| cdb.get(at).copied().unwrap_or(0));
        let expected = data.map_or(reads, |data| data.len() as u32);
        let (last, attribute, writes, reads) = (true, 1, data.is_some(), reads > 0);
        let ask = Ask::Command { last, reads, writes, attribute, expected, cdb: full };
        let request = Request { task: 7, command_number: self.number, ..Request::new(ask) };
        self.number = self.number.wrapping_add(1);
        self.say(request, data.unwrap_or(&[]))?;
        match self.next()?.answer {
            Answer::DataIn { status: Some(0), .. } | Answer::Command { status: 0, .. } => {
                Some(Ok(()))
            }
            Answer::Command { .. } => Some(Err(Sense::parse(&self.data[2..]).unwrap())),
            other => panic!("{other:?}"),
        }
    }
    /// READ(10) of a block.
    pub(crate) fn read(&mut self, lba: u32, data: &mut [u8; BLOCK]) -> Option<Ended> {
        let [a, b, c, d] = lba.to_be_bytes();
        let ended = self.command(&[0x28, 0, a, b, c, d, 0, 0, 1, 0], BLOCK as u32, None)?;
        if ended.is_ok() {
            data.copy_from_slice(&self.data);
        }
        Some(ended)
    }
    /// WRITE(10) of whole blocks.
    pub(crate) fn write(&mut self, lba: u32, fua: bool, data: &[u8]) -> Option<Ended> {
        let [a, b, c, d] = lba.to_be_bytes();
        let flags = if fua { 8 } else { 0 };
        let blocks = (data.len() / BLOCK) as u8;
        self.command(&[0x2a, flags, a, b, c, d, 0, 0, blocks, 0], 0, Some(data))
    }
    /// SYNCHRONIZE CACHE(10).
    pub(crate) fn flush(&mut self) -> Option<Ended> {
        self.command(&[0x35, 0, 0, 0, 0, 0, 0, 0, 0, 0], 0, None)
    }
}
