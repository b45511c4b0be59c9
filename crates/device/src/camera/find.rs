//! Cameras find each other's viewers by multicast DNS (RFC 6762, RFC 6763): `_rtsp._tcp.local`.
//!
//! A camera whose file says `announce = true` answers queries on the interface of its address, and sends nothing
//! unsolicited. Queries to its unicast address are not answered. The answer says where it is and what is needed to
//! view it: `path`, `http`, `token`.

use lastmeter_wire::dns::{
    ADDRESS, ANY, Data, Message, Name, POINTER, Question, Record, SERVICE, TEXT,
};
use rustix::net::{AddressFamily, SocketType, ipproto, sockopt};
use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::time::{Duration, Instant};

/// The service.
pub const RTSP: &str = "_rtsp._tcp.local";
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 251);
const PORT: u16 = 5353;
/// Seconds for which an answer holds.
const HOLDS: u32 = 120;
/// The most cameras that a search returns.
pub const FOUND_MAX: usize = 256;
/// The longest name of a camera, as it is announced.
const NAME_MAX: usize = 60;

/// What a camera says of itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Announced {
    /// Its name.
    pub name: String,
    /// Where its viewers ask.
    pub address: SocketAddrV4,
    /// Whether a token is needed.
    pub needs_token: bool,
}

impl Announced {
    /// The records of its service.
    fn records(&self) -> Result<Vec<Record>, lastmeter_wire::Error> {
        let kind = Name::of(RTSP)?;
        let mut end = self.name.len().min(NAME_MAX);
        while !self.name.is_char_boundary(end) {
            end -= 1;
        }
        let name = kind.below(&self.name[..end])?;
        let host = Name::of(&format!("camera-{}.local", self.address.port()))?;
        let token = if self.needs_token { "token=required" } else { "token=none" };
        let texts = ["path=/", "http=/", token].map(|text| text.as_bytes().to_vec());
        let record = |name: &Name, data| Record { name: name.clone(), seconds: HOLDS, data };
        Ok(vec![
            record(&kind, Data::Pointer(name.clone())),
            record(&name, Data::Service { port: self.address.port(), host: host.clone() }),
            record(&name, Data::Text(texts.to_vec())),
            record(&host, Data::Address(*self.address.ip())),
        ])
    }
    /// The answer to a message, if it asks for this. A question from another port than that of multicast DNS comes from
    /// a plain resolver, and gets its number and question back.
    pub fn answer(&self, asked: &Message, is_plain: bool) -> Option<Message> {
        let records = self.records().ok()?;
        let known = |record: &Record| match record.data {
            Data::Pointer(_) => POINTER,
            Data::Service { .. } => SERVICE,
            Data::Text(_) => TEXT,
            Data::Address(_) => ADDRESS,
        };
        let fits = |question: &Question| {
            records.iter().any(|record| {
                record.name.is(&question.name) && [known(record), ANY].contains(&question.kind)
            })
        };
        if asked.is_response || !asked.questions.iter().any(fits) {
            return None;
        }
        let questions = if is_plain { asked.questions.clone() } else { Vec::new() };
        let id = if is_plain { asked.id } else { 0 };
        Some(Message { id, is_response: true, questions, records })
    }
    /// Answers questions until the socket fails, on a thread of its own.
    ///
    /// # Errors
    /// If there is no multicast on the interface.
    pub fn serve(self) -> io::Result<()> {
        let socket = listen(*self.address.ip())?;
        std::thread::spawn(move || {
            let mut bytes = [0; 1500];
            while let Ok((len, from)) = socket.recv_from(&mut bytes) {
                let Ok(asked) = Message::parse(&bytes[..len]) else { continue };
                let is_plain = from.port() != PORT;
                let said = self.answer(&asked, is_plain).and_then(|said| said.emit().ok());
                let to = if is_plain { from } else { SocketAddr::from((GROUP, PORT)) };
                if let Some(said) = said {
                    let _ = socket.send_to(&said, to);
                }
            }
        });
        Ok(())
    }
}

/// A socket on the port of multicast DNS, which others on this host may share. It hears only what is sent to the group,
/// so nobody beyond the network can have it answer a third party.
fn listen(interface: Ipv4Addr) -> io::Result<UdpSocket> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, Some(ipproto::UDP))?;
    sockopt::set_socket_reuseaddr(&socket, true)?;
    sockopt::set_socket_reuseport(&socket, true)?;
    rustix::net::bind(&socket, &SocketAddrV4::new(GROUP, PORT))?;
    let socket = UdpSocket::from(socket);
    socket.join_multicast_v4(&GROUP, &interface)?;
    sockopt::set_ip_multicast_if(&socket, &interface)?;
    Ok(socket)
}

/// Looks for cameras on the interface with this address.
///
/// # Errors
/// If nothing can be sent there.
pub fn find(interface: Ipv4Addr, patience: Duration) -> io::Result<Vec<Announced>> {
    let socket = UdpSocket::bind((interface, 0))?;
    sockopt::set_ip_multicast_if(&socket, &interface)?;
    let wrong = |error: lastmeter_wire::Error| io::Error::other(error.to_string());
    let question = Question { name: Name::of(RTSP).map_err(wrong)?, kind: POINTER };
    let asked = Message { id: 1, questions: vec![question], ..Message::default() };
    socket.send_to(&asked.emit().map_err(wrong)?, (GROUP, PORT))?;
    let (until, mut bytes, mut found) = (Instant::now() + patience, [0; 1500], BTreeMap::new());
    while found.len() < FOUND_MAX {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            break;
        }
        socket.set_read_timeout(Some(left))?;
        let Ok((len, from)) = socket.recv_from(&mut bytes) else { continue };
        let said = Message::parse(&bytes[..len]).ok().filter(|said| said.is_response);
        if let Some(camera) = said.and_then(|said| announced(&said, from.ip())) {
            found.insert(camera.address, camera);
        }
    }
    Ok(found.into_values().collect())
}

/// The camera that a message announces, whose address is that of its sender unless it names one.
fn announced(said: &Message, from: IpAddr) -> Option<Announced> {
    let kind = Name::of(RTSP).ok()?;
    let name = said.records.iter().find_map(|record| match &record.data {
        Data::Pointer(name) if record.name.is(&kind) => Some(name),
        _ => None,
    })?;
    let mut of = said.records.iter().filter(|record| record.name.is(name));
    let (port, host) = of.clone().find_map(|record| match &record.data {
        Data::Service { port, host } => Some((*port, host)),
        _ => None,
    })?;
    let named = said.records.iter().find_map(|record| match record.data {
        Data::Address(address) if record.name.is(host) => Some(address),
        _ => None,
    });
    let IpAddr::V4(from) = from else { return None };
    let needs_token = of.any(|record| match &record.data {
        Data::Text(texts) => texts.iter().any(|text| text == b"token=required"),
        _ => false,
    });
    let address = SocketAddrV4::new(named.unwrap_or(from), port);
    Some(Announced { name: name.first(), address, needs_token })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn door() -> Announced {
        let address = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 8554);
        Announced { name: "the door".to_owned(), address, needs_token: true }
    }

    fn asks(name: &str, kind: u16) -> Message {
        let name = Name::of(name).expect("short");
        Message { id: 9, questions: vec![Question { name, kind }], ..Message::default() }
    }

    #[test]
    fn a_question_is_answered_and_the_answer_understood() {
        let said = door().answer(&asks(RTSP, POINTER), true).expect("it is asked for");
        assert_eq!((said.id, said.questions.len()), (9, 1));
        let bytes = said.emit().expect("short");
        let said = Message::parse(&bytes).expect("ours");
        assert_eq!(announced(&said, IpAddr::V4(Ipv4Addr::LOCALHOST)), Some(door()));
        assert_eq!(door().answer(&asks(RTSP, POINTER), false).expect("asked").id, 0);
    }

    #[test]
    fn other_questions_are_left_to_others() {
        assert_eq!(door().answer(&asks("_http._tcp.local", POINTER), true), None);
        assert_eq!(door().answer(&asks(RTSP, ADDRESS), true), None);
        let said = door().answer(&asks(RTSP, POINTER), true).expect("asked");
        assert_eq!(door().answer(&said, true), None, "an answer is not answered");
    }

    #[test]
    fn names_of_any_length_are_announced() {
        let name = "\u{e9}".repeat(100);
        let said = Announced { name, ..door() }.answer(&asks(RTSP, ANY), true).expect("asked");
        assert!(said.emit().is_ok());
    }
}
