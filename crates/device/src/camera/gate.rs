//! A viewer of the camera: the owner's policies for its frames, and the frames as it wants them.

use super::cycle::Cycle;
use super::encode::jpeg;
use super::frame::{Frame, Layout, Pixels};
use super::kernel::Pacing;
use super::shape::Certificate;
use super::store::Store;
use crate::access::Access;
use crate::account::{Account, Lap};
use lastmeter_base::{Duration, Time};
use lastmeter_plugin::chain::{Chain, Effect, Outcome};
use lastmeter_plugin::request::{Body, Rect, Request};
use lastmeter_wire::camera::{Command, Format, Region};
use std::borrow::Cow;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, AtomicUsize};
use std::sync::{Arc, Mutex};
use std::time::Instant;

/// Stages of a frame's path, from the instant at which a viewer wants it until it is shown. Receivers that set the
/// pace tell how long decoding and display took.
pub const STAGES: [(&str, &str); 8] = [
    ("capture", "source"),
    ("convert", "cpu"),
    ("policy", "cpu"),
    ("encode", "cpu"),
    ("shape", "pacing"),
    ("network", "network"),
    ("decode", "receiver"),
    ("display", "receiver"),
];
/// Numbers of the stages.
pub(in crate::camera) mod stage {
    pub(in crate::camera) const CAPTURE: usize = 0;
    pub(in crate::camera) const CONVERT: usize = 1;
    pub(in crate::camera) const POLICY: usize = 2;
    pub(in crate::camera) const ENCODE: usize = 3;
    pub(in crate::camera) const SHAPE: usize = 4;
    pub(in crate::camera) const NETWORK: usize = 5;
    pub(in crate::camera) const DECODE: usize = 6;
    pub(in crate::camera) const DISPLAY: usize = 7;
}

/// A camera, shared by all its viewers.
pub struct Camera {
    /// Its name.
    pub name: String,
    /// Its frames.
    pub store: Arc<Store>,
    /// Width and height of its frames.
    pub size: (u16, u16),
    /// Frames a second.
    pub rate: f64,
    /// The file of its source, whose H.264 can be passed through.
    pub file: Option<PathBuf>,
    /// Who may see what.
    pub access: Access,
    /// The limit on JPEG quality, and the default.
    pub quality: u8,
    /// Who spaces the packets of a frame.
    pub pacing: Pacing,
    /// The account of frames.
    pub account: Account,
    /// What limits the rate of frames.
    pub cycle: Cycle,
    /// How well packets were shaped.
    pub certificate: Mutex<Certificate>,
    /// Packets and chunks sent to viewers.
    pub packets: AtomicU64,
    /// Their bytes.
    pub bytes: AtomicU64,
    /// Viewers that are connected.
    pub viewers: Arc<AtomicUsize>,
    /// When it started: the zero of the policies' clock.
    pub began: Instant,
}

/// A frame as a viewer gets it.
pub struct Made {
    /// Where it comes from.
    pub frame: Arc<Frame>,
    /// How it is sent.
    pub format: Format,
    /// Its width.
    pub width: u16,
    /// Its height.
    pub height: u16,
    /// The corner of its region.
    pub corner: (u16, u16),
    /// JPEG's quality.
    pub quality: u8,
    /// What is sent.
    pub bytes: Vec<u8>,
}

/// Why there is no frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// A policy denied it.
    Denied(String),
    /// The camera has no such picture.
    Wrong(String),
}

impl Refusal {
    /// In words.
    pub fn words(&self) -> &str {
        match self {
            Refusal::Denied(name) => name,
            Refusal::Wrong(why) => why,
        }
    }
}

/// What a viewer is allowed of a frame.
#[derive(Clone, Copy)]
struct Allowed {
    region: Rect,
    width: u16,
    height: u16,
    quality: u8,
}

/// A viewer at a camera.
pub struct Gate<'a> {
    camera: &'a Camera,
    /// What policies see.
    number: u32,
    chain: Chain,
    marks: Vec<u64>,
    outcomes: Vec<Outcome>,
    /// Whether its frames go by RTP, whose sides are multiples of 8 and which has no grey.
    pub by_rtp: bool,
}

impl<'a> Gate<'a> {
    /// A client by its name.
    ///
    /// # Errors
    /// If there is no client of this name, or a policy cannot be made.
    pub fn new(camera: &'a Camera, client: &str) -> Result<Gate<'a>, String> {
        let chain = camera.access.chain(client, now(camera))?;
        let marks = vec![0; chain.len()];
        let number = camera.access.number(client);
        Ok(Gate { camera, number, chain, marks, outcomes: Vec::new(), by_rtp: false })
    }
    /// The part of the frame, and the size, that a command asks for.
    fn asked(&self, command: &Command, pixels: &Pixels) -> Result<Allowed, Refusal> {
        let Region { x, y, w, h } = command.region;
        let whole = pixels.whole();
        let region = if w == 0 { whole } else { Rect { x, y, w, h } };
        if region.is_empty() || !region.within(whole) {
            let (w, h) = (whole.w, whole.h);
            return Err(Refusal::Wrong(format!("a region outside of {w}x{h}")));
        }
        let least = |wanted: u16, most: u16| if wanted == 0 { most } else { wanted.min(most) };
        let most = self.camera.quality;
        let quality = if command.quality == 0 { most } else { command.quality.min(most) };
        let (width, height) = (least(command.width, region.w), least(command.height, region.h));
        Ok(Allowed { region, width, height, quality })
    }
    /// What the policies leave of a frame; they may change its pixels.
    fn decide<'p>(
        &mut self,
        frame: &Frame,
        asked: Allowed,
        pixels: Cow<'p, Pixels>,
    ) -> Result<(Allowed, Cow<'p, Pixels>), Refusal> {
        if self.chain.is_empty() {
            return Ok((asked, pixels));
        }
        let request = Request {
            body: Body::Frame {
                format: pixels.layout.number(),
                width: pixels.width,
                height: pixels.height,
                region: asked.region,
                number: frame.number,
                quality: asked.quality,
            },
            flow: self.number.into(),
            arrival: now(self.camera),
            mark: 0,
            length: u32::try_from(pixels.bytes.len()).unwrap_or(u32::MAX),
            data: &pixels.bytes,
        };
        let at = request.arrival;
        self.chain.process(at, &[request], &mut self.marks, &mut self.outcomes);
        let denied = |name: &str| Refusal::Denied(name.to_owned());
        let outcome = self.outcomes.pop().ok_or(denied("a policy"))?;
        let (region, width, height, quality) = match outcome.effect {
            Effect::Frame { region, width, height, quality } => (region, width, height, quality),
            Effect::Denied { by, .. } => {
                return Err(denied(self.chain.name(by).unwrap_or("a policy")));
            }
            _ => return Err(denied("a policy")),
        };
        let allowed = Allowed {
            region: region.meet(asked.region),
            width: width.min(asked.width),
            height: height.min(asked.height),
            quality: quality.min(asked.quality),
        };
        if allowed.region.is_empty() || width == 0 || height == 0 {
            return Err(denied("a policy"));
        }
        let pixels = match outcome.data {
            None => pixels,
            Some(data) => {
                let mut changed = pixels.into_owned();
                let len = data.len().min(changed.bytes.len());
                changed.bytes[..len].copy_from_slice(&data[..len]);
                Cow::Owned(changed)
            }
        };
        Ok((allowed, pixels))
    }
    /// A frame as a command asks for it, and as the policies allow it.
    ///
    /// # Errors
    /// Why there is none.
    pub fn make(
        &mut self,
        command: &Command,
        frame: &Arc<Frame>,
        lap: &mut Lap,
    ) -> Result<Made, Refusal> {
        let asked = self.asked(command, &frame.pixels)?;
        let pixels = match (command.format, frame.pixels.layout) {
            (Format::Grey, Layout::Colour) => Cow::Owned(frame.pixels.convert(Layout::Grey)),
            (Format::Colour, Layout::Grey) => Cow::Owned(frame.pixels.convert(Layout::Colour)),
            _ => Cow::Borrowed(&frame.pixels),
        };
        lap.served(stage::CONVERT);
        let decided = self.decide(frame, asked, pixels);
        lap.served(stage::POLICY);
        let (mut allowed, pixels) = decided?;
        if self.by_rtp {
            const MOST: u16 = 2040;
            for side in [&mut allowed.width, &mut allowed.height] {
                *side = (*side).min(MOST) / 8 * 8;
            }
            if allowed.width == 0 || allowed.height == 0 {
                return Err(Refusal::Wrong("a picture of less than 8 pixels".to_owned()));
            }
        }
        let Allowed { region, width, height, quality } = allowed;
        let (width, height) = (width.min(region.w), height.min(region.h));
        let mut part = match region == pixels.whole() && (width, height) == (region.w, region.h) {
            true => pixels,
            false => Cow::Owned(pixels.part(region, width, height)),
        };
        if self.by_rtp && part.layout == Layout::Grey {
            part = Cow::Owned(part.convert(Layout::Colour));
        }
        let bytes = match command.format {
            Format::Jpeg => jpeg(&part, quality).map_err(Refusal::Wrong)?,
            _ => part.into_owned().bytes,
        };
        lap.served(stage::ENCODE);
        let (format, corner) = (command.format, (region.x, region.y));
        Ok(Made { frame: frame.clone(), format, width, height, corner, quality, bytes })
    }
}

fn now(camera: &Camera) -> Time {
    Time::START + Duration::from_secs_f64(camera.began.elapsed().as_secs_f64())
}
