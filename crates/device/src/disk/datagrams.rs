//! A disk over UDP: requests of NBD as transactions of DTP (`crate::transactions`), each executed once and in order.
//! An experiment, to compare it with TCP and with a local file as Netstation's disk was (N-30, N-34).
//!
//! A client begins with `LMDK` 1 and its token, and is told the size of its disk, 8 bytes, and of a block, 4 bytes. A
//! transaction is a request of NBD with its data, its answer a simple reply with what was read, of at most
//! [`LENGTH_MAX`] bytes. A client's requests are executed in order. Reads only begin in order, so that the medium has
//! all of them to do at once; whatever is no read waits for those before it.

use super::gate::Gate;
use super::medium::Reading;
use super::nbd::{Session, failure};
use super::{ANSWER, Disk, MEDIUM, POLICY, RECEIVE};
use crate::account::Lap;
pub use crate::transactions::Travel;
use crate::transactions::{self, Answer, Awake, Client, Refused, Service};
use lastmeter_wire::nbd::{self, Command, REQUEST_LEN, Request, error, flag};
use rustix::net::{AddressFamily, SocketType, bind, socket, sockopt};
use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs, UdpSocket};
use std::sync::Arc;
use std::thread::available_parallelism;
use std::time::Duration;

/// The longest read or write.
pub const LENGTH_MAX: u32 = 32 << 10;
/// Threads that serve clients, each a part of them.
const THREADS: usize = 4;
/// Bytes that a client asks for at once: what its socket has room for.
const AHEAD_MAX: u32 = 256 << 10;
/// Bytes of a simple reply.
const REPLY_LEN: usize = 16;

/// Serves clients on threads of their own; the address, with the assigned port. `tell` is called if it fails.
///
/// # Errors
/// If the address cannot be used.
pub(super) fn listen(
    disk: &Arc<Disk>,
    wanted: SocketAddr,
    tell: &Arc<dyn Fn(&str) + Send + Sync>,
) -> io::Result<SocketAddr> {
    let mut address = wanted;
    // Half of the processors may look for datagrams: clients, too, may be here.
    let cores = available_parallelism().map_or(1, usize::from);
    let awake = Arc::new(Awake::at_most((cores / 2).max(1)));
    for _ in 0..THREADS {
        let socket = shared(address)?;
        address = socket.local_addr()?;
        let (disk, tell, awake) = (disk.clone(), tell.clone(), awake.clone());
        std::thread::spawn(move || {
            if let Err(why) = transactions::serve(&*disk, &socket, awake) {
                tell(&why);
            }
        });
    }
    Ok(address)
}

/// A socket whose address others may have, too: the kernel gives each the datagrams of some clients.
fn shared(address: SocketAddr) -> io::Result<UdpSocket> {
    let family = if address.is_ipv4() { AddressFamily::INET } else { AddressFamily::INET6 };
    let socket = socket(family, SocketType::DGRAM, None)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    bind(&socket, &address)?;
    Ok(UdpSocket::from(socket))
}

impl Service for Disk {
    const GREETING: [u8; 5] = *b"LMDK\x01";
    type Session<'a> = Gate<'a>;
    type Rest = Begun;

    fn begin(&self, token: &[u8], _: bool) -> Result<(Gate<'_>, Vec<u8>), Refused> {
        let client = self.client(&String::from_utf8_lossy(token)).ok_or(Refused::Unknown)?;
        let gate = Gate::new(self, client).map_err(|_| Refused::Unknown)?;
        let (size, block) = (gate.size().to_be_bytes(), self.medium.block().to_be_bytes());
        Ok((gate, [&size[..], &block].concat()))
    }
    fn is_ordered(&self, transaction: &[u8]) -> bool {
        parsed(transaction).is_none_or(|(request, _)| request.command != Command::READ)
    }
    fn execute<'a>(
        &'a self,
        gate: &mut Gate<'a>,
        transaction: &[u8],
        answer: &mut Answer,
    ) -> Option<Begun> {
        let mut lap = self.account.begin();
        let Some((request, data)) = parsed(transaction) else {
            self.account.refuse("a request that is not whole");
            return None;
        };
        let (length, carried, cookie) = (request.length, data.len() as u64, request.cookie);
        let fits = match request.command {
            Command::READ => length <= LENGTH_MAX && carried == 0,
            Command::WRITE => length <= LENGTH_MAX && carried == u64::from(length),
            _ => carried == 0,
        };
        if !fits {
            return self.refused(answer, cookie, error::INVALID, "data of the wrong length");
        }
        if request.command == Command::STATUS {
            return self.refused(answer, cookie, error::UNSUPPORTED, "unknown command");
        }
        lap.served(RECEIVE);
        let at = match Session::place(gate, &request, data) {
            Ok(at) => at,
            Err((code, why)) => return self.refused(answer, cookie, code, why),
        };
        lap.served(POLICY);
        if request.command == Command::READ {
            let reading = self.medium.begin(at, length as usize);
            answer.put(&nbd::simple(0, cookie));
            answer.room(length as usize);
            let mut begun = Begun { cookie, reading, lap: Some(lap) };
            return (!self.finish(&mut begun, answer, false)).then_some(begun);
        }
        let done = match request.command {
            Command::WRITE => self.medium.write(at, data, request.flags & flag::FUA != 0),
            _ => Session::new(self).execute(&request, at, &mut []),
        };
        lap.served(MEDIUM);
        if let Err(failed) = done {
            let (code, why) = failure(&failed);
            return self.refused(answer, cookie, code, why);
        }
        answer.put(&nbd::simple(0, cookie));
        lap.served(ANSWER);
        self.account.end(lap, carried);
        None
    }
    fn finish(&self, begun: &mut Begun, answer: &mut Answer, wait: bool) -> bool {
        let bytes = answer.data().get_mut(REPLY_LEN..).unwrap_or_default();
        let length = bytes.len() as u64;
        let read = match begun.reading.finish(&self.medium, bytes, wait) {
            Ok(false) => return false,
            Ok(true) => Ok(()),
            Err(failed) => Err(failed),
        };
        let Some(mut lap) = begun.lap.take() else { return true };
        lap.served(MEDIUM);
        match read {
            Ok(()) => {
                lap.served(ANSWER);
                self.account.end(lap, length);
            }
            Err(failed) => {
                let (code, why) = failure(&failed);
                self.refused(answer, begun.cookie, code, why);
            }
        }
        true
    }
}

impl Disk {
    /// Answers that it is not done, and nothing else.
    fn refused(&self, answer: &mut Answer, cookie: u64, code: u32, why: &str) -> Option<Begun> {
        self.account.refuse(why);
        answer.clear();
        answer.put(&nbd::simple(code, cookie));
        None
    }
}

/// A transaction's request and data, if it is whole.
fn parsed(transaction: &[u8]) -> Option<(Request, &[u8])> {
    let (head, data) = transaction.split_first_chunk::<REQUEST_LEN>()?;
    Some((Request::parse(head).ok()?, data))
}

/// A read that was begun.
pub struct Begun {
    cookie: u64,
    reading: Reading,
    lap: Option<Lap>,
}

/// The client side: a disk elsewhere.
pub struct Remote {
    client: Client,
    window: usize,
    /// Requests that were not answered, with the tag of their owner.
    asked: HashMap<u16, u64>,
    /// Bytes.
    pub size: u64,
    /// Bytes of a block.
    pub block: u32,
}

impl Remote {
    /// Connects; an empty token means none. Requests will have at most `length` bytes.
    ///
    /// # Errors
    /// If it is refused, or nobody answers.
    pub fn greet(address: impl ToSocketAddrs, token: &str, length: u32) -> Result<Remote, String> {
        Remote::greet_by(Travel::Datagrams, address, token, length)
    }
    /// The same, with transactions that travel so.
    ///
    /// # Errors
    /// If it is refused, or nobody answers.
    pub fn greet_by(
        travel: Travel,
        address: impl ToSocketAddrs,
        token: &str,
        length: u32,
    ) -> Result<Remote, String> {
        let window = (AHEAD_MAX / length.clamp(512, LENGTH_MAX)).clamp(1, 64) as u16;
        let (client, hello) = Client::greet(address, Disk::GREETING, token, window, travel)?;
        let said = hello.split_first_chunk::<8>();
        let Some((size, [b0, b1, b2, b3])) = said else {
            return Err("no disk's answer".to_owned());
        };
        let (size, block) = (u64::from_be_bytes(*size), u32::from_be_bytes([*b0, *b1, *b2, *b3]));
        Ok(Remote { client, window: window.into(), asked: HashMap::new(), size, block })
    }
    /// How many transactions were answered, and how many had to be sent again.
    pub fn counts(&self) -> (u64, u64) {
        self.client.counts()
    }
    /// How many requests may be outstanding.
    pub fn window(&self) -> usize {
        self.window
    }
    fn transaction(command: Command, flags: u16, offset: u64, length: u32, data: &[u8]) -> Vec<u8> {
        let request = Request { flags, command, cookie: 0, offset, length };
        [&request.emit()[..], data].concat()
    }
    /// While it waits it stays awake for so long, where the disk answered sooner the last time: faster, and a processor
    /// does nothing else.
    pub fn stay_awake(&mut self, limit: Duration) {
        self.client.stay_awake(limit);
    }
    /// Asks for a part, with a tag that comes back with it, when it next waits for an answer; false if too many
    /// requests are outstanding.
    pub fn ask(&mut self, tag: u64, offset: u64, length: u32) -> bool {
        let (flags, cookie, command) = (0, 0, Command::READ);
        let request = Request { flags, command, cookie, offset, length };
        let Some(number) = self.client.queue(&request.emit()) else { return false };
        self.asked.insert(number, tag);
        true
    }
    /// Waits for the next answer to what was asked: has its tag and what was read used.
    ///
    /// # Errors
    /// If it was refused, or the disk does not answer.
    pub fn answer<T>(&mut self, act: impl FnOnce(u64, &[u8]) -> T) -> Result<T, String> {
        loop {
            if let Some((number, answer)) = self.client.advance()?
                && let Some(tag) = self.asked.remove(&number)
            {
                return Ok(act(tag, Remote::checked(answer)?));
            }
        }
    }
    /// What was read, if it was done.
    fn checked(answer: &[u8]) -> Result<&[u8], String> {
        let (head, data) =
            answer.split_first_chunk::<REPLY_LEN>().ok_or("an answer that is not whole")?;
        match u32::from_be_bytes([head[4], head[5], head[6], head[7]]) {
            0 => Ok(data),
            code => Err(format!("the disk refuses it: error {code}")),
        }
    }
    /// Executes one request and waits for its answer.
    ///
    /// # Errors
    /// If it is refused, or the disk does not answer.
    pub fn execute(
        &mut self,
        command: Command,
        flags: u16,
        offset: u64,
        length: u32,
        data: &[u8],
    ) -> Result<Vec<u8>, String> {
        let data = Remote::transaction(command, flags, offset, length, data);
        let answer = self.client.transact(data)?;
        Ok(Remote::checked(&answer)?.to_vec())
    }
}

#[cfg(test)]
mod tests {
    use super::super::server::{Config, Server};
    use super::super::timing::{Access, Timing};
    use super::*;
    use crate::transactions::lossy;
    use lastmeter_base::{Stream as Random, Time};
    use lastmeter_plugin::host::{Host, Limits};
    use lastmeter_wire::framing;
    use std::path::Path;
    use std::time::Instant;

    const OWNER: &str = "the-owners-secret";
    const GUEST: &str = "guest-of-this-house";
    const BLOCKS: u64 = 256;

    fn start() -> Server {
        let text = format!(
            "memory = true\nsize = '128 KiB'\ndatagrams = '127.0.0.1:0'\n\
             [sizes]\nguest = '64 KiB'\n[clients.owner]\ntoken = '{OWNER}'\n\
             [clients.guest]\ntoken = '{GUEST}'\npolicies = ['part']\n\
             [policies.part]\nexpression = '(within lba 10 20)'\n"
        );
        let config = Config::parse(&text).expect("sound");
        let host = Host::new(Limits { instances: 4, ..Limits::default() }).expect("a host");
        let disk = config.disk(Path::new("."), Arc::new(host)).expect("a disk");
        Server::start(&config, Path::new("."), disk, |_| {}).expect("it listens")
    }

    /// Whatever is lost: the disk has what a model has, and reads give it.
    #[test]
    fn requests_are_executed_once_and_in_order_whatever_is_lost_n_30() {
        // Whole datagrams, and units of up to three fragments.
        lossy_disk(Travel::Datagrams, 8, 200);
        lossy_disk(Travel::Units, 6, 80);
    }

    fn lossy_disk(travel: Travel, blocks_max: u64, steps: u32) {
        let server = start();
        let line = lossy(server.datagrams.expect("an address"));
        let mut remote = Remote::greet_by(travel, line, OWNER, 4096).expect("let in");
        assert_eq!((remote.size, remote.block), (BLOCKS * 512, 512));
        let mut model = vec![0u8; BLOCKS as usize * 512];
        let mut random = Random::new(4, "requests");
        for step in 0..steps {
            let blocks = 1 + random.below(blocks_max);
            let offset = random.below(BLOCKS - blocks) * 512;
            let (length, at) = (blocks as u32 * 512, offset as usize);
            let own = at..at + length as usize;
            match step % 4 {
                0 => {
                    let found = remote.execute(Command::READ, 0, offset, length, &[]);
                    assert_eq!(found.as_deref(), Ok(&model[own]));
                }
                1 => {
                    let done = remote.execute(Command::ZEROES, 0, offset, length, &[]);
                    assert_eq!(done, Ok(vec![]));
                    model[own].fill(0);
                }
                _ => {
                    let data: Vec<u8> = (0..length).map(|_| random.bits() as u8).collect();
                    let flags = if step % 8 == 2 { flag::FUA } else { 0 };
                    let done = remote.execute(Command::WRITE, flags, offset, length, &data);
                    assert_eq!(done, Ok(vec![]));
                    model[own].copy_from_slice(&data);
                }
            }
        }
        assert_eq!(remote.execute(Command::FLUSH, 0, 0, 0, &[]), Ok(vec![]));
        assert!(remote.counts().1 > 20, "a third was lost: {:?}", remote.counts());
        // Several at once, each with its own answer.
        let (mut next, mut seen) = (0, 0);
        while seen < BLOCKS {
            while next < BLOCKS && remote.ask(next, next * 512, 512) {
                next += 1;
            }
            let check = |tag: u64, data: &[u8]| {
                let at = tag as usize * 512;
                assert_eq!(data, &model[at..at + 512]);
            };
            remote.answer(check).expect("answered");
            seen += 1;
        }
        let mut all = vec![0; model.len()];
        server.disk.medium.read(0, &mut all).expect("read");
        assert!(all == model);
    }

    /// A medium that takes so long for each read, however many it has to do.
    struct Slow;
    const SLOW: lastmeter_base::Duration = lastmeter_base::Duration::from_ms(10);

    impl Timing for Slow {
        fn done(&mut self, now: Time, access: Access) -> Time {
            if access.write { now } else { now + SLOW }
        }
    }

    #[test]
    fn reads_go_on_together_and_see_what_was_written_before_them_and_nothing_later() {
        let folder = tempfile::tempdir().expect("a folder");
        let text = format!(
            "file = 'disk.img'\nsize = '128 KiB'\ndatagrams = '127.0.0.1:0'\n\
             [clients.owner]\ntoken = '{OWNER}'\n"
        );
        let config = Config::parse(&text).expect("sound");
        let host = Host::new(Limits { instances: 1, ..Limits::default() }).expect("a host");
        let fit = |_: u64| -> Result<Box<dyn Timing>, String> { Ok(Box::new(Slow)) };
        let disk = config.disk_like(folder.path(), Arc::new(host), Some(&fit)).expect("a disk");
        let server = Server::start(&config, folder.path(), disk, |_| {}).expect("it listens");
        let address = server.datagrams.expect("an address");
        for (to, loses) in [(address, false), (lossy(address), true)] {
            let mut remote = Remote::greet(to, OWNER, 4096).expect("let in");
            let began = Instant::now();
            assert!((0..32).all(|at| remote.ask(at, at * 4096, 4096)), "the window has room");
            let mut seen: Vec<u64> = (0..32)
                .map(|_| remote.answer(|tag, data| (tag, data.len())).expect("answered").0)
                .collect();
            seen.sort_unstable();
            assert!(seen.into_iter().eq(0..32));
            // One after another they take 320 ms.
            assert!(loses || began.elapsed() < Duration::from_millis(200), "{:?}", began.elapsed());
            let mut before = 0;
            for round in 1..12u8 {
                let read = || Remote::transaction(Command::READ, 0, 8192, 512, &[]);
                let write = Remote::transaction(Command::WRITE, 0, 8192, 512, &[round; 512]);
                let asked =
                    [read(), write, read()].map(|data| remote.client.submit(data).expect("sent"));
                let mut answers = HashMap::new();
                while answers.len() < 3 {
                    answers.extend(remote.client.pump().expect("it answers"));
                }
                let found = asked.map(|number| answers[&number][REPLY_LEN..].to_vec());
                assert_eq!(found, [vec![before; 512], vec![], vec![round; 512]], "{loses}");
                before = round;
            }
            let zero = Remote::transaction(Command::ZEROES, 0, 8192, 512, &[]);
            remote.client.transact(zero).expect("it answers");
        }
    }

    #[test]
    fn clients_are_confined_and_need_their_cookie() {
        let server = start();
        let address = server.datagrams.expect("an address");
        assert!(Remote::greet(address, "nobody knows me", 512).is_err());
        assert!(Remote::greet(address, "", 512).is_err(), "anyone is not let in");
        server.disk.medium.write(0, &[7; 512 * BLOCKS as usize], false).expect("written");
        let mut guest = Remote::greet(address, GUEST, 512).expect("let in");
        assert_eq!(guest.size, 64 << 10);
        for (lba, blocks, allowed) in
            [(10, 10, true), (9, 2, false), (19, 2, false), (128, 1, false)]
        {
            let length = blocks * 512;
            let read = guest.execute(Command::READ, 0, lba * 512, length as u32, &[]);
            assert_eq!(read.is_ok(), allowed, "{lba}");
            let data = vec![8; length as usize];
            let wrote = guest.execute(Command::WRITE, 0, lba * 512, length as u32, &data);
            assert_eq!(wrote.is_ok(), allowed, "{lba}");
        }
        let mut owner = Remote::greet(address, OWNER, 512).expect("let in");
        for (command, length, data) in [
            (Command::READ, LENGTH_MAX + 512, &[][..]),
            (Command::READ, 512, &[1; 512][..]),
            (Command::WRITE, 512, &[1; 511][..]),
            (Command::READ, 100, &[][..]),
            (Command::STATUS, 512, &[][..]),
            (Command(99), 512, &[][..]),
        ] {
            assert!(owner.execute(command, 0, 0, length, data).is_err(), "{command:?} {length}");
        }
        let mut before = vec![0; 512 * BLOCKS as usize];
        server.disk.medium.read(0, &mut before).expect("read");
        assert!(
            before.iter().enumerate().all(|(at, byte)| {
                *byte == if (10 * 512..20 * 512).contains(&at) { 8 } else { 7 }
            })
        );
        // Long units come whole.
        let mut units =
            Remote::greet_by(Travel::Units, address, OWNER, LENGTH_MAX).expect("let in");
        let read = units.execute(Command::READ, 0, 0, LENGTH_MAX, &[]).expect("read");
        assert!(read == before[..LENGTH_MAX as usize]);
        assert_eq!(units.execute(Command::WRITE, 0, 0, LENGTH_MAX, &read), Ok(vec![]));
        // Noise, and a client that makes its cookie up.
        let socket = UdpSocket::bind("127.0.0.1:0").expect("a socket");
        socket.connect(address).expect("connected");
        let mut random = Random::new(9, "noise");
        for round in 0..2000u32 {
            let noise: Vec<u8> = (0..random.below(700)).map(|_| random.bits() as u8).collect();
            let token = [&Disk::GREETING[..], &[OWNER.len() as u8], OWNER.as_bytes()].concat();
            let write = Remote::transaction(Command::WRITE, 0, 0, 512, &[5; 512]);
            let data = [token, noise, write][(round % 3) as usize].clone();
            let packet = lastmeter_wire::dtp::Packet {
                src: 7,
                dst: 2,
                sequence: (round % 3) as u16,
                acknowledged: 0,
                flags: lastmeter_wire::dtp::Flags { request: true, ..Default::default() },
                data: &data,
            };
            let bytes = packet.emit().expect("short");
            let _ = socket.send(if round % 7 == 0 { &data } else { &bytes });
            // As units, too, whose last fragments never come.
            let parts = framing::datagrams(round as u16, (round % 16) as u8, &bytes, 300);
            let parts = parts.expect("in range");
            parts[..parts.len().div_ceil(2)].iter().for_each(|part| drop(socket.send(part)));
        }
        // Of a client let in, anything may come, and what is not whole does nothing.
        for _ in 0..500 {
            let mut noise: Vec<u8> = (0..random.below(60)).map(|_| random.bits() as u8).collect();
            let magic = [0x25, 0x60, 0x95, 0x13];
            noise.iter_mut().zip(magic).for_each(|(byte, wanted)| *byte = wanted);
            let _ = guest.client.transact(noise);
        }
        assert!(owner.execute(Command::FLUSH, 0, 0, 0, &[]).is_ok(), "it goes on");
        let mut after = vec![0; before.len()];
        server.disk.medium.read(0, &mut after).expect("read");
        let guests = 10 * 512..20 * 512;
        for (at, (one, other)) in before.iter().zip(&after).enumerate() {
            assert!(one == other || guests.contains(&at), "byte {at}");
        }
    }
}
