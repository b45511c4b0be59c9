//! A viewer: the client side of RFB, for tests, measurements and screenshots.

use super::encoding::{Decoder, Source, rect};
use super::welcome::answer;
use lastmeter_plugin::request::Rect;
use lastmeter_wire::rfb::{
    self, Area, Init, Message, PixelFormat, Rectangle, VERSION, encoding, security,
};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{BufReader, Read, Write};
use std::net::TcpStream;
use std::sync::Arc;

/// What carries a viewer's bytes.
trait Carrier: Read + Write + Send {}
impl<T: Read + Write + Send> Carrier for T {}

/// How a viewer says who it is.
#[derive(Clone, Default)]
pub struct Proof {
    /// Its token. VNC's way sends a proof of the first 8 characters only.
    pub token: Option<String>,
    /// Inside of TLS, with a server whose certificate it trusts, and the server's name.
    pub tls: Option<(Arc<ClientConfig>, String)>,
}

/// A cursor: width, height, the place that points, and its pixels, 0 where nothing is seen.
pub type Pointer = (u16, u16, (u16, u16), Vec<Option<u32>>);

/// A viewer's connection and its picture.
pub struct Viewer {
    stream: BufReader<Box<dyn Carrier>>,
    decoder: Decoder,
    format: PixelFormat,
    /// Width and height.
    pub size: (u16, u16),
    /// The picture, one word per pixel.
    pub pixels: Vec<u32>,
    /// Bytes received.
    pub bytes: u64,
    /// Rectangles received: copies, and others.
    pub rectangles: (u64, u64),
    /// How coarse the last JPEG was, if there was one: the first step of its quantiser.
    pub coarseness: Option<u8>,
    /// The cursor, if the server sent one.
    pub pointer: Option<Pointer>,
    /// The result of the last wish for another size, as the server tells it.
    pub wished: Option<u16>,
}

impl Source for Viewer {
    fn take(&mut self, len: usize) -> Result<Vec<u8>, String> {
        let mut bytes = Vec::new();
        let found = self.stream.by_ref().take(len as u64).read_to_end(&mut bytes);
        self.bytes += len as u64;
        match found {
            Ok(found) if found == len => Ok(bytes),
            Ok(_) => Err("the server ended".to_owned()),
            Err(error) => Err(error.to_string()),
        }
    }
}

impl Viewer {
    /// Connects, with a password if there is one.
    ///
    /// # Errors
    /// Why the server refused it.
    pub fn connect(stream: TcpStream, password: Option<&str>) -> Result<Viewer, String> {
        let token = password.map(str::to_owned);
        Viewer::prove(stream, &Proof { token, tls: None })
    }
    /// Connects, and says who it is.
    ///
    /// # Errors
    /// Why the server refused it, or its certificate is refused.
    pub fn prove(stream: TcpStream, proof: &Proof) -> Result<Viewer, String> {
        let _ = stream.set_nodelay(true);
        let own = stream.try_clone().map_err(|error| error.to_string())?;
        let carrier: Box<dyn Carrier> = Box::new(stream);
        let mut viewer = Viewer {
            stream: BufReader::with_capacity(256 << 10, carrier),
            decoder: Decoder::default(),
            format: PixelFormat::NATIVE,
            size: (0, 0),
            pixels: Vec::new(),
            bytes: 0,
            rectangles: (0, 0),
            coarseness: None,
            pointer: None,
            wished: None,
        };
        viewer.take(VERSION.len())?;
        viewer.say(&VERSION)?;
        let count = viewer.byte()?;
        if count == 0 {
            return Err(viewer.reason()?);
        }
        let types = viewer.take(count.into())?;
        let password = proof.token.as_deref();
        match (&proof.tls, password) {
            (Some((config, name)), _) if types.contains(&security::VENCRYPT) => {
                viewer.vencrypt(own, config, name, password)?;
            }
            (Some(_), _) => return Err("the server does not offer TLS".to_owned()),
            (None, Some(password)) if types.contains(&security::VNC) => {
                viewer.say(&[security::VNC])?;
                viewer.respond(password)?;
            }
            (None, None) if types.contains(&security::NONE) => viewer.say(&[security::NONE])?,
            _ => return Err("the server wants another proof of who this is".to_owned()),
        }
        if viewer.take(4)? != [0; 4] {
            return Err(viewer.reason()?);
        }
        viewer.say(&[1])?;
        let head = viewer.take(Init::LEN)?;
        let (init, len) =
            Init::parse(&std::array::from_fn(|at| head[at])).map_err(|e| e.to_string())?;
        viewer.take(len)?;
        viewer.size = (init.w, init.h);
        viewer.pixels = vec![0; usize::from(init.w) * usize::from(init.h)];
        viewer.send(&Message::Format(PixelFormat::NATIVE))?;
        Ok(viewer)
    }
    fn respond(&mut self, password: &str) -> Result<(), String> {
        let challenge = self.take(16)?;
        self.say(&answer(password, std::array::from_fn(|at| challenge[at])))
    }
    /// TLS, and the whole token inside of it.
    fn vencrypt(
        &mut self,
        stream: TcpStream,
        config: &Arc<ClientConfig>,
        name: &str,
        token: Option<&str>,
    ) -> Result<(), String> {
        self.say(&[security::VENCRYPT])?;
        self.take(2)?;
        self.say(&[0, 2])?;
        if self.byte()? != 0 {
            return Err("the server does not know VeNCrypt 0.2".to_owned());
        }
        let count = self.byte()?;
        let offered = self.take(4 * usize::from(count))?;
        let kind = if token.is_some() { security::X509_PLAIN } else { security::X509_NONE };
        if !offered.chunks_exact(4).any(|one| one == kind.to_be_bytes()) {
            return Err("the server wants another proof of who this is".to_owned());
        }
        self.say(&kind.to_be_bytes())?;
        if self.byte()? != 1 {
            return Err("the server refused".to_owned());
        }
        let name = ServerName::try_from(name.to_owned()).map_err(|error| error.to_string())?;
        let tls = ClientConnection::new(config.clone(), name).map_err(|error| error.to_string())?;
        let carrier: Box<dyn Carrier> = Box::new(StreamOwned::new(tls, stream));
        self.stream = BufReader::with_capacity(256 << 10, carrier);
        if let Some(token) = token {
            let len = (token.len() as u32).to_be_bytes();
            self.say(&[&[0; 4][..], &len, token.as_bytes()].concat())?;
        }
        Ok(())
    }
    fn reason(&mut self) -> Result<String, String> {
        let len = self.take(4)?;
        let len = u32::from_be_bytes([len[0], len[1], len[2], len[3]]).min(4096);
        Ok(String::from_utf8_lossy(&self.take(len as usize)?).into_owned())
    }
    fn say(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.stream.get_mut().write_all(bytes).map_err(|error| error.to_string())
    }
    #[cfg(test)]
    pub(crate) fn noise(&mut self, bytes: &[u8]) -> Result<(), String> {
        self.say(bytes)
    }
    /// Sends a message.
    ///
    /// # Errors
    /// If the connection has ended.
    pub fn send(&mut self, message: &Message) -> Result<(), String> {
        if let Message::Format(format) = message {
            self.format = *format;
        }
        self.say(&message.emit())
    }
    /// All of the screen.
    pub fn whole(&self) -> Area {
        Area { x: 0, y: 0, w: self.size.0, h: self.size.1 }
    }
    /// Asks for pixels, and waits for the update.
    ///
    /// # Errors
    /// If the connection has ended, or the server sends an unknown message.
    pub fn update(&mut self, incremental: bool) -> Result<(), String> {
        let area = self.whole();
        self.send(&Message::Update { incremental, area })?;
        self.receive()
    }
    /// Waits for an update.
    ///
    /// # Errors
    /// As [`Viewer::update`].
    pub fn receive(&mut self) -> Result<(), String> {
        loop {
            match self.byte()? {
                0 => {
                    self.rectangles()?;
                    // The fence behind it is answered at once: its time says when the picture was complete.
                    if self.stream.buffer().first() == Some(&248) {
                        self.byte()?;
                        self.fence()?;
                    }
                    return Ok(());
                }
                // Colours of a palette, a bell, a clipboard, the end of continuous updates, a fence.
                1 => return Err("a palette, where none was asked for".to_owned()),
                2 | 150 => {}
                3 => {
                    let head = self.take(7)?;
                    let len = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
                    self.take((len as usize).min(rfb::CUT_MAX))?;
                }
                248 => self.fence()?,
                other => return Err(format!("message {other} is not known")),
            }
        }
    }
    fn fence(&mut self) -> Result<(), String> {
        let head = self.take(8)?;
        let flags = u32::from_be_bytes([head[3], head[4], head[5], head[6]]);
        let payload = self.take(head[7].into())?;
        if flags & 1 << 31 != 0 {
            self.send(&Message::Fence { flags: flags & 7, payload })?;
        }
        Ok(())
    }
    /// A cursor or a size; false if it is neither.
    fn pseudo(&mut self, rectangle: Rectangle) -> Result<bool, String> {
        let Area { x, y, w, h } = rectangle.area;
        match rectangle.encoding {
            encoding::CURSOR => {
                let (width, height) = (usize::from(w), usize::from(h));
                let format = self.format;
                let pixels = self.take(width * height * format.width())?;
                let mask = self.take(width.div_ceil(8) * height)?;
                let seen = |at: usize| {
                    let (row, column) = (at / width, at % width);
                    mask[row * width.div_ceil(8) + column / 8] >> (7 - column % 8) & 1 != 0
                };
                let colours = pixels.chunks_exact(format.width()).enumerate().map(|(at, bytes)| {
                    format.get(bytes).filter(|_| seen(at)).map(|pixel| format.colour(pixel))
                });
                self.pointer = Some((w, h, (x, y), colours.collect()));
                return Ok(true);
            }
            encoding::EXTENDED_DESKTOP_SIZE => {
                let count = self.take(4)?[0];
                self.take(16 * usize::from(count))?;
                self.wished = (x == 1).then_some(y);
                if x == 1 && y != 0 {
                    return Ok(true);
                }
            }
            encoding::DESKTOP_SIZE => {}
            _ => return Ok(false),
        }
        self.size = (w, h);
        self.pixels = vec![0; usize::from(w) * usize::from(h)];
        Ok(true)
    }
    fn rectangles(&mut self) -> Result<(), String> {
        let head = self.take(3)?;
        for _ in 0..u16::from_be_bytes([head[1], head[2]]) {
            let head = self.take(rfb::RECTANGLE_LEN)?;
            let rectangle = Rectangle::parse(&std::array::from_fn(|at| head[at]));
            if rectangle.encoding == encoding::LAST_RECTANGLE {
                break;
            }
            if self.pseudo(rectangle)? {
                continue;
            }
            let at = rect(rectangle.area);
            let (w, h) = self.size;
            if !at.within(Rect { x: 0, y: 0, w, h }) {
                return Err(format!("a rectangle outside of the screen: {at:?}"));
            }
            if rectangle.encoding == encoding::COPY {
                let from = self.take(4)?;
                let short = |at: usize| u16::from_be_bytes([from[at], from[at + 1]]);
                self.copy(at, (short(0), short(2)))?;
                self.rectangles.0 += 1;
                continue;
            }
            let mut decoder = std::mem::take(&mut self.decoder);
            let format = self.format;
            let decoded = decoder.take(&format, rectangle, self);
            self.decoder = decoder;
            self.coarseness = self.decoder.coarseness();
            let pixels = decoded?;
            self.rectangles.1 += 1;
            if at.is_empty() {
                continue;
            }
            for (row, pixels) in pixels.chunks(at.w.into()).enumerate() {
                let start = (usize::from(at.y) + row) * usize::from(w) + usize::from(at.x);
                self.pixels[start..start + usize::from(at.w)].copy_from_slice(pixels);
            }
        }
        Ok(())
    }
    fn copy(&mut self, to: Rect, from: (u16, u16)) -> Result<(), String> {
        let (w, h) = self.size;
        if !(Rect { x: from.0, y: from.1, ..to }).within(Rect { x: 0, y: 0, w, h }) {
            return Err("a copy from outside of the screen".to_owned());
        }
        let width = usize::from(w);
        let mut row = |line: u16| {
            let start = usize::from(from.1 + line) * width + usize::from(from.0);
            let target = usize::from(to.y + line) * width + usize::from(to.x);
            self.pixels.copy_within(start..start + usize::from(to.w), target);
        };
        if to.y > from.1 {
            (0..to.h).rev().for_each(&mut row)
        } else {
            (0..to.h).for_each(&mut row)
        }
        Ok(())
    }
}
