//! The camera's own protocol over UDP: one thread receives commands, and each receiver has a thread that sends.
//!
//! ```text
//! command -> cookie good? -> token known? -> session's mailbox -> pace -> frame -> packets
//!            no: a cookie    no: denied
//! ```
//!
//! Rows: A-53.

use super::frame::Frame;
use super::gate::{Camera, Gate, Made, Refusal, stage};
use super::pace::{Next, Pace};
use super::shape::{Bursts, Certificate, Keeper, PACKET, PACKET_MAX, PACKET_MIN, pdus, plan};
use crate::access::ANYONE;
use crate::account::Lap;
use lastmeter_wire::camera::cells::{self, segment};
use lastmeter_wire::camera::{Carrier, Code, Command, Fared, Piece, Status};
use lastmeter_wire::framing;
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The most receivers.
const RECEIVERS_MAX: usize = 64;
/// A receiver's stack; its buffers are elsewhere.
const STACK: usize = 512 << 10;
/// The longest time without a frame from the source before the receiver is asked for anew.
const PATIENCE: Duration = Duration::from_millis(500);

/// Where commands wait for the thread that sends: the last one counts.
#[derive(Default)]
struct Mailbox {
    command: Mutex<Option<Command>>,
    came: Condvar,
}

impl Mailbox {
    fn put(&self, command: Command) {
        *self.command.lock().unwrap_or_else(PoisonError::into_inner) = Some(command);
        self.came.notify_one();
    }
    fn take(&self, patience: Duration) -> Option<Command> {
        let mut command = self.command.lock().unwrap_or_else(PoisonError::into_inner);
        if command.is_some() || patience.is_zero() {
            return command.take();
        }
        let waited = self.came.wait_timeout(command, patience);
        waited.unwrap_or_else(PoisonError::into_inner).0.take()
    }
}

/// Sessions by address and number.
type Sessions = Arc<Mutex<HashMap<(SocketAddr, u32), (String, Arc<Mailbox>)>>>;

/// Hears commands until the socket fails.
pub(super) fn serve(camera: &Arc<Camera>, socket: &Arc<UdpSocket>, tell: &(dyn Fn(&str) + Sync)) {
    let (secret, sessions) = (RandomState::new(), Sessions::default());
    let mut datagram = [0; 2048];
    loop {
        let (len, from) = match socket.recv_from(&mut datagram) {
            Ok(came) => came,
            // A receiver's host says that nobody listens there.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => continue,
            Err(error) => return tell(&format!("receivers: {error}")),
        };
        let Ok(command) = Command::parse(&datagram[..len]) else { continue };
        let cookie = secret.hash_one(from);
        let (status, clock) = if command.cookie != cookie {
            (Status::Prove, cookie)
        } else {
            match admit(camera, socket, &sessions, &command, from) {
                Ok(()) if command.code == Code::Diagnose => (Status::Well, super::store::clock()),
                Ok(()) => continue,
                Err(status) => (status, 0),
            }
        };
        let _ = socket.send_to(&answer(camera, &command, status, clock), from);
    }
}

/// An answer without a frame. It is not longer than a command.
fn answer(camera: &Camera, command: &Command, status: Status, clock: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    piece(camera, command, status, clock).emit(&[], &mut bytes);
    bytes
}

fn piece(camera: &Camera, command: &Command, status: Status, clock: u64) -> Piece {
    Piece {
        status,
        format: command.format,
        sequence: command.sequence,
        session: command.session,
        frame: 0,
        clock,
        width: camera.size.0,
        height: camera.size.1,
        length: 0,
        offset: 0,
        skipped: 0,
        corner: (0, 0),
        receivers: u16::try_from(camera.viewers.load(Relaxed)).unwrap_or(u16::MAX),
        quality: 0,
        made: 0,
    }
}

/// Gives a command to its session, which begins if it is new.
fn admit(
    camera: &Arc<Camera>,
    socket: &Arc<UdpSocket>,
    sessions: &Sessions,
    command: &Command,
    from: SocketAddr,
) -> Result<(), Status> {
    let token = std::str::from_utf8(&command.token).map_err(|_| Status::Denied)?;
    let client = if token.is_empty() { Some(ANYONE) } else { camera.access.shown(token) };
    let client = client.filter(|name| camera.access.client(name).is_some());
    let client = client.ok_or(Status::Denied)?.to_owned();
    let key = (from, command.session);
    let mut open = sessions.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((owner, mailbox)) = open.get(&key) {
        if *owner != client {
            return Err(Status::Denied);
        }
        mailbox.put(command.clone());
        return Ok(());
    }
    if matches!(command.code, Code::Stop | Code::Diagnose) {
        return Ok(());
    }
    if open.len() >= RECEIVERS_MAX {
        return Err(Status::Full);
    }
    let mailbox = Arc::<Mailbox>::default();
    mailbox.put(command.clone());
    open.insert(key, (client.clone(), mailbox.clone()));
    drop(open);
    let (camera, socket, own) = (camera.clone(), socket.clone(), sessions.clone());
    let run = move || {
        camera.viewers.fetch_add(1, Relaxed);
        if let Ok(gate) = Gate::new(&camera, &client) {
            Sending { camera: &camera, socket: &socket, to: from, mailbox: &mailbox }.run(gate);
        }
        camera.viewers.fetch_sub(1, Relaxed);
        own.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
    };
    let spawned = std::thread::Builder::new().stack_size(STACK).spawn(run);
    spawned.map(|_| ()).map_err(|_| {
        sessions.lock().unwrap_or_else(PoisonError::into_inner).remove(&key);
        Status::Full
    })
}

/// A session that sends.
struct Sending<'a> {
    camera: &'a Camera,
    socket: &'a UdpSocket,
    to: SocketAddr,
    mailbox: &'a Mailbox,
}

/// A frame that was sent, until the receiver tells how it fared.
struct Sent {
    lap: Lap,
    len: u64,
    at: Instant,
    /// Time before it for which the receiver wanted none.
    rest: Duration,
}

fn micros(count: u32) -> Duration {
    Duration::from_micros(count.into())
}

impl Sending<'_> {
    /// Until the receiver is silent.
    fn run(&self, mut gate: Gate<'_>) {
        let began = Instant::now();
        let mut pace = Pace::new(Duration::ZERO);
        let (mut command, mut last, mut wanted) = (Command::default(), None, began);
        let (mut patience, mut rest, mut has_turns) = (Duration::ZERO, Duration::ZERO, false);
        let (mut fared, mut skipped, mut open) = (Fared::default(), 0, None::<Sent>);
        let mut frames = 0u32;
        loop {
            let waits = Instant::now();
            let came = self.mailbox.take(patience);
            if has_turns {
                rest += waits.elapsed();
            }
            if let Some(came) = came {
                // It cannot lose more than was sent.
                let all = came.fared.lost.clamp(fared.lost, frames);
                let lost = all - fared.lost;
                self.camera.account.lose(stage::NETWORK, "lost on the way", lost.into(), true);
                fared = Fared { lost: all, ..came.fared };
                if pace.command(&came, began.elapsed()) {
                    (command, wanted) = (came, Instant::now());
                    rest = self.close(open.take(), Some(fared));
                }
            }
            has_turns = false;
            patience = match pace.next(began.elapsed()) {
                Next::Over => {
                    self.close(open.take(), None);
                    return;
                }
                Next::Idle(left) => left,
                Next::Wait(left) => {
                    has_turns = true;
                    left
                }
                Next::Take => {
                    match self.camera.store.next(last, PATIENCE) {
                        Err(_) => return,
                        Ok(None) => {}
                        Ok(Some(frame)) => {
                            last = Some(frame.number);
                            pace.took();
                            let sent =
                                self.frame(&mut gate, &command, &frame, wanted, pace.skipped);
                            pace.sent(began.elapsed());
                            wanted = Instant::now();
                            let sent = sent.map(|(lap, len)| Sent { lap, len, at: wanted, rest });
                            rest = Duration::ZERO;
                            frames = frames.saturating_add(u32::from(sent.is_some()));
                            if pace.is_idle() {
                                open = sent;
                            } else {
                                self.end(sent, fared);
                            }
                            let turns = pace.skipped - skipped;
                            skipped = pace.skipped;
                            let account = &self.camera.account;
                            account.lose(
                                stage::CAPTURE,
                                "its turn had passed",
                                turns.into(),
                                false,
                            );
                        }
                    }
                    Duration::ZERO
                }
            };
            if !patience.is_zero() {
                wanted = Instant::now() + patience;
            }
        }
    }
    /// A frame of the open loop: what the receiver last said of decoding and display holds for it.
    fn end(&self, sent: Option<Sent>, fared: Fared) {
        let Some(mut sent) = sent else { return };
        sent.lap.add(stage::DECODE, micros(fared.decode));
        sent.lap.add(stage::DISPLAY, micros(fared.display));
        self.camera.cycle.add(&sent.lap, sent.rest);
        self.camera.account.end(sent.lap, sent.len);
    }
    /// A frame of the closed loop, whose receiver asks for the next one, or has left. The time in between is the
    /// receiver's, as far as it says so, and else the network's. Returns the time for which it wanted none.
    fn close(&self, sent: Option<Sent>, fared: Option<Fared>) -> Duration {
        let Some(mut sent) = sent else { return Duration::ZERO };
        let mut rest = Duration::ZERO;
        if let Some(fared) = fared {
            let mut left = sent.at.elapsed();
            let mut part = |count: u32| {
                let time = micros(count).min(left);
                left -= time;
                time
            };
            let (decode, display) = (part(fared.decode), part(fared.display));
            rest = part(fared.rest);
            sent.lap.add(stage::DECODE, decode);
            sent.lap.add(stage::DISPLAY, display);
            sent.lap.add(stage::NETWORK, left);
            self.camera.cycle.add(&sent.lap, sent.rest);
        }
        self.camera.account.end(sent.lap, sent.len);
        rest
    }
    /// Makes a frame and sends it, or says why not. Its times so far, and its bytes.
    fn frame(
        &self,
        gate: &mut Gate<'_>,
        command: &Command,
        frame: &Arc<Frame>,
        wanted: Instant,
        skipped: u32,
    ) -> Option<(Lap, u64)> {
        let account = &self.camera.account;
        let mut lap = account.begin_at(Some(wanted.min(Instant::now())));
        lap.served(stage::CAPTURE);
        match gate.make(command, frame, &mut lap) {
            Ok(made) => {
                let len = made.bytes.len() as u64;
                if self.send(command, &made, &mut lap, skipped).is_ok() {
                    return Some((lap, len));
                }
                account.refuse("the network refuses it");
            }
            Err(refusal) => {
                account.refuse(refusal.words());
                // A receiver that asked for a frame would wait for it; one that gets a rate sees that none comes.
                if command.code == Code::Frames || matches!(refusal, Refusal::Wrong(_)) {
                    let status = match refusal {
                        Refusal::Denied(_) => Status::Denied,
                        Refusal::Wrong(_) => Status::Wrong,
                    };
                    let answer = answer(self.camera, command, status, frame.clock);
                    let _ = self.socket.send_to(&answer, self.to);
                }
            }
        }
        None
    }
    fn send(&self, command: &Command, made: &Made, lap: &mut Lap, skipped: u32) -> io::Result<()> {
        let micros = |time: Duration| u32::try_from(time.as_micros()).unwrap_or(u32::MAX);
        let whole = Piece {
            frame: made.frame.number,
            width: made.width,
            height: made.height,
            length: u32::try_from(made.bytes.len()).unwrap_or(u32::MAX),
            skipped,
            corner: made.corner,
            quality: made.quality,
            made: micros(made.frame.began.elapsed()),
            ..piece(self.camera, command, Status::Frame, made.frame.clock)
        };
        let (mut datagram, shape) = (Vec::new(), command.shape);
        let mut line = Line {
            sending: self,
            began: Instant::now(),
            lap,
            kept: Certificate::default(),
            keeper: Keeper::default(),
        };
        match command.carrier {
            Carrier::Datagrams => {
                for packet in plan(shape, made.bytes.len(), made.height) {
                    let piece = Piece { offset: packet.offset as u32, ..whole };
                    let data = &made.bytes[packet.offset..packet.offset + packet.len];
                    piece.emit(data, &mut datagram);
                    line.leave(packet.due, &datagram)?;
                }
            }
            Carrier::Cells => {
                let (mut bursts, mut cells) = (Bursts::new(shape), Vec::new());
                for (at, len, begins) in pdus(shape, made.bytes.len(), made.height) {
                    let piece = Piece { offset: at as u32, ..whole };
                    piece.emit(&made.bytes[at..at + len], &mut datagram);
                    cells.clear();
                    let fits = segment(command.session, &datagram, &mut cells);
                    fits.map_err(|error| io::Error::other(error.to_string()))?;
                    if begins && at > 0 {
                        bursts.pause();
                    }
                    let mut left = &cells[..];
                    while !left.is_empty() {
                        let (count, due) = bursts.take(left.len());
                        line.leave(due, &cells::datagram(&left[..count]))?;
                        left = &left[count..];
                    }
                }
            }
            Carrier::Units => {
                let mut bursts = Bursts::of_fragments(shape);
                let most = match usize::from(shape.packet) {
                    0 => PACKET,
                    wanted => wanted.clamp(PACKET_MIN, PACKET_MAX),
                };
                for (at, len, begins) in pdus(shape, made.bytes.len(), made.height) {
                    let piece = Piece { offset: at as u32, ..whole };
                    piece.emit(&made.bytes[at..at + len], &mut datagram);
                    // Each has a fragment or more, so no two units that follow each other have the same number.
                    let unit = self.camera.packets.load(Relaxed) as u16;
                    let parts = framing::datagrams(unit, 0, &datagram, most);
                    let parts = parts.map_err(|error| io::Error::other(error.to_string()))?;
                    if begins && at > 0 {
                        bursts.pause();
                    }
                    for part in parts {
                        line.leave(bursts.take(1).1, &part)?;
                    }
                }
            }
        }
        let kept = line.kept;
        lap.served(stage::NETWORK);
        self.camera.certificate.lock().unwrap_or_else(PoisonError::into_inner).join(&kept);
        Ok(())
    }
}

/// Sends each datagram of a frame when it is due.
struct Line<'a, 'l> {
    sending: &'a Sending<'a>,
    began: Instant,
    lap: &'l mut Lap,
    kept: Certificate,
    keeper: Keeper,
}

impl Line<'_, '_> {
    fn leave(&mut self, due: Duration, datagram: &[u8]) -> io::Result<()> {
        let Sending { socket, to, camera, .. } = self.sending;
        let target = self.began + self.keeper.target(due);
        let ahead = camera.pacing.ahead();
        let early = target.saturating_duration_since(Instant::now() + ahead);
        if !early.is_zero() {
            self.lap.served(stage::NETWORK);
            std::thread::sleep(early);
            self.lap.served(stage::SHAPE);
        }
        if !due.is_zero() {
            // What the kernel gets before its time leaves in time.
            let now = self.began.elapsed();
            let left = if ahead.is_zero() { now } else { now.max(self.keeper.target(due)) };
            self.kept.add(self.keeper.left(due, left));
        }
        camera.pacing.send(socket, *to, datagram, target)?;
        camera.packets.fetch_add(1, Relaxed);
        camera.bytes.fetch_add(datagram.len() as u64, Relaxed);
        Ok(())
    }
}
