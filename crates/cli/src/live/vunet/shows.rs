//! Cameras for the programs of a host: each is at an address of HTTP, and who fetches it has a connection of its own.
//!
//! ```text
//! program --GET /board.0--> [ host: viewer, connection of its own ] --control cells, requests--> switch ... camera
//!         <--YUV4MPEG2------                                        <--cells of video----------
//! ```
//!
//! A picture is asked for when the program has taken the last one, so the program sets the camera's pace. The stream
//! has no end; when the program hangs up, its connection is closed and its channels are given back.

use super::host::{Done, Host, Seen};
use super::part::{Clock, REQUEST};
use super::plan::{Offer, ViewPlan};
use lastmeter_base::{FlowId, NodeId, PathId, Time};
use lastmeter_lan::vunet::connection::Connection;
use lastmeter_lan::vunet::viewer::{Picture, REQUESTS, TIMERS, Viewer, Wants};
use lastmeter_wire::atm::vunet::VunetCell;
use rustix::event::{PollFd, PollFlags};
use serde::{Deserialize, Serialize};
use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};

/// Most programs that look at the same time.
const SHOWN_MAX: usize = 8;
/// The longest head of a request.
const HEAD_MAX: usize = 8 << 10;
/// What a connection is given to disappear from the links before its channels are used again, in ns.
const REST: u64 = 3_000_000;

/// What a program was shown.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(super) struct Shown {
    pub(super) view: String,
    pub(super) seen: Seen,
    /// Pictures that the program took, and cells that they came in.
    pub(super) given: u64,
    pub(super) cells: u64,
}

/// A program that fetches.
struct Guest {
    stream: TcpStream,
    head: Vec<u8>,
    /// What it has not taken yet.
    rest: Vec<u8>,
    view: Option<View>,
    gone: bool,
}

/// What it is shown.
struct View {
    plan: ViewPlan,
    viewer: Viewer,
    due: [Option<Time>; TIMERS],
    given: u64,
    cells: u64,
}

impl View {
    fn channel(&self) -> u16 {
        self.viewer.connection().hear_on()
    }
}

/// The name in the first line of a request: `GET /NAME HTTP/1.1`.
fn wanted(head: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(head).ok()?;
    let mut words = text.lines().next()?.split(' ');
    let (method, path) = (words.next()?, words.next()?);
    (method == "GET").then(|| path.trim_start_matches('/').to_owned())
}

impl Guest {
    /// Reads what has come; the whole head of a request, once it is there.
    fn hear(&mut self) -> Option<Vec<u8>> {
        let mut room = [0; 1024];
        loop {
            match self.stream.read(&mut room) {
                Ok(0) => self.gone = true,
                Ok(len) if self.view.is_none() && self.head.len() + len <= HEAD_MAX => {
                    self.head.extend_from_slice(&room[..len]);
                    continue;
                }
                // More than a request.
                Ok(_) => self.gone = true,
                Err(error) if error.kind() == ErrorKind::Interrupted => continue,
                Err(error) => self.gone |= error.kind() != ErrorKind::WouldBlock,
            }
            break;
        }
        let whole = self.head.windows(4).any(|end| end == b"\r\n\r\n");
        whole.then(|| std::mem::take(&mut self.head))
    }

    /// Sends what waits, as far as the program takes it.
    fn flush(&mut self) {
        while !self.rest.is_empty() && !self.gone {
            match self.stream.write(&self.rest) {
                Ok(len) => drop(self.rest.drain(..len)),
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(_) => self.gone = true,
            }
        }
    }

    /// When something of it is due: nothing while the program has not taken the last picture.
    fn due(&self) -> Option<Time> {
        let view = self.view.as_ref()?;
        let free = self.rest.is_empty();
        let due =
            view.due.iter().enumerate().filter(|(timer, _)| free || !REQUESTS.contains(timer));
        due.filter_map(|(_, due)| *due).min()
    }
}

impl Host {
    /// Waits for programs at this port of the loopback.
    pub(super) fn listen(&mut self, port: u16) -> Result<Done, String> {
        let said = |error: std::io::Error| format!("port {port}: {error}");
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).map_err(said)?;
        listener.set_nonblocking(true).map_err(said)?;
        self.listener = Some(listener);
        Ok(Done::Listening)
    }

    /// Shows cameras to programs until there is another request.
    pub(super) fn show(&mut self, offers: &[Offer]) -> Result<Done, String> {
        let listener = self.listener.take().ok_or("it does not listen")?;
        let (mut guests, mut shown) = (Vec::<Guest>::new(), Vec::new());
        let mut resting: Vec<(u64, Connection)> = Vec::new();
        loop {
            self.client.line.flush();
            let due = guests.iter().filter_map(Guest::due).min().map(Clock::ns_of);
            let until = due.into_iter().chain(resting.iter().map(|(at, _)| *at)).min();
            let mut polled = vec![
                PollFd::new(self.client.line.socket(), PollFlags::IN),
                PollFd::new(&listener, PollFlags::IN),
            ];
            polled.extend(guests.iter().map(|guest| {
                let more = if guest.rest.is_empty() { PollFlags::IN } else { PollFlags::OUT };
                PollFd::new(&guest.stream, PollFlags::IN | more)
            }));
            let ready = self.client.clock.wait_for(polled, until, true)?;
            for cell in self.hear() {
                self.heard(&mut guests, &cell);
            }
            if guests.len() < SHOWN_MAX
                && let Ok((stream, _)) = listener.accept()
            {
                stream.set_nonblocking(true).map_err(|error| error.to_string())?;
                let (head, rest) = (Vec::new(), Vec::new());
                guests.push(Guest { stream, head, rest, view: None, gone: false });
            }
            for guest in &mut guests {
                if let Some(head) = guest.hear() {
                    self.answer(guest, offers, &head)?;
                }
                guest.flush();
                self.expire(guest);
            }
            // A request means that the programs have ended.
            let over = ready & REQUEST != 0;
            for guest in guests.extract_if(.., |guest| guest.gone || over) {
                if let Some(view) = guest.view {
                    let (one, connection) = self.leave(view);
                    shown.push(one);
                    resting.push((self.now() + REST, connection));
                }
            }
            let now = self.now();
            for (_, connection) in resting.extract_if(.., |(at, _)| *at <= now || over) {
                self.give_back(&connection)?;
            }
            if over {
                return Ok(Done::Shown(shown));
            }
        }
    }

    /// A cell belongs to the view on whose channel it came.
    fn heard(&mut self, guests: &mut [Guest], cell: &VunetCell) {
        let time = self.client.clock.time();
        for guest in guests {
            let Some(view) = guest.view.as_mut().filter(|view| view.channel() == cell.vci()) else {
                continue;
            };
            view.cells += 1;
            let mut wants = Wants::default();
            view.viewer.hear(time, cell, &mut wants);
            for Picture { pixels, .. } in std::mem::take(&mut wants.pictures) {
                // One that was not asked for, as the last one has not been taken.
                if guest.rest.is_empty() {
                    guest.rest.extend_from_slice(b"FRAME\n");
                    guest.rest.extend_from_slice(&pixels);
                    view.given += 1;
                }
            }
            self.act(guest, wants);
        }
    }

    fn act(&mut self, guest: &mut Guest, wants: Wants) {
        let Some(view) = &mut guest.view else { return };
        view.due.iter_mut().zip(wants.timers).for_each(|(due, timer)| *due = timer.or(*due));
        self.send(wants.cells.into_iter().map(|(cell, _)| cell).collect());
    }

    fn expire(&mut self, guest: &mut Guest) {
        let time = self.client.clock.time();
        let free = guest.rest.is_empty();
        for timer in (0..TIMERS).filter(|timer| free || !REQUESTS.contains(timer)) {
            let Some(view) = &mut guest.view else { return };
            if view.due[timer].is_some_and(|at| at <= time) {
                view.due[timer] = None;
                let mut wants = Wants::default();
                view.viewer.expire(time, timer, &mut wants);
                // A request sets the other timers anew.
                self.act(guest, wants);
            }
        }
    }

    /// Answers a request: with a connection to its camera, or with what there is.
    fn answer(&mut self, guest: &mut Guest, offers: &[Offer], head: &[u8]) -> Result<(), String> {
        let name = wanted(head).unwrap_or_default();
        let Some(offer) = offers.iter().find(|offer| offer.camera == name) else {
            let known: Vec<&str> = offers.iter().map(|offer| offer.camera.as_str()).collect();
            let words = format!("there are cameras {}\n", known.join(", "));
            guest.rest = format!("HTTP/1.0 404 Not Found\r\n\r\n{words}").into_bytes();
            guest.flush();
            guest.gone = true;
            return Ok(());
        };
        let plan = &offer.view;
        let route = self.map.route(plan.camera);
        let route = route.ok_or_else(|| format!("client {} was not found", plan.camera))?;
        let connection = self.open(route, false)?;
        let wishes = plan.wishes(&connection, self.client.clock.time());
        let (nowhere, node) = ((PathId(0), FlowId(0)), NodeId(0));
        let viewer = Viewer::new(nowhere, (node, node), wishes, connection).keeping();
        let mut wants = Wants::default();
        viewer.begin(&mut wants);
        let (width, height) = plan.size();
        guest.rest = format!(
            "HTTP/1.0 200 OK\r\nContent-Type: video/x-yuv4mpeg\r\nConnection: close\r\n\r\n\
             YUV4MPEG2 W{width} H{height} F30:1 Ip A1:1 Cmono\n"
        )
        .into_bytes();
        let due = [None; TIMERS];
        guest.view = Some(View { plan: plan.clone(), viewer, due, given: 0, cells: 0 });
        self.act(guest, wants);
        Ok(())
    }

    /// Stops the camera and clears the links; the channels are given back when these cells have passed.
    fn leave(&mut self, view: View) -> (Shown, Connection) {
        let View { plan, viewer, given, cells, .. } = view;
        let counts = viewer.counts().map(|(name, count)| (name.to_owned(), count)).into();
        let mut connection = viewer.connection().clone();
        let seen = Seen { counts, links: connection.links() };
        self.send(vec![viewer.stop()]);
        self.send(connection.close());
        (Shown { view: plan.name, seen, given, cells }, connection)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_names_a_camera_or_nothing() {
        let name = |head: &str| wanted(head.as_bytes());
        assert_eq!(name("GET /board.0 HTTP/1.1\r\nHost: a\r\n\r\n").as_deref(), Some("board.0"));
        assert_eq!(name("GET / HTTP/1.0\r\n\r\n").as_deref(), Some(""));
        for wrong in ["", "GET", "POST /board.0 HTTP/1.1\r\n\r\n"] {
            assert_eq!(name(wrong), None, "{wrong:?}");
        }
        assert_eq!(wanted(&[0xff, 0xfe]), None);
    }
}
