//! Synthetic sequences: a talking head with little motion, and a camera that pans over a detailed scene.
//!
//! Any frame can be made by itself, and is the same on every machine: only sums and products, no functions of the
//! platform's library. How much detail there is was chosen so that QCIF at 12 frames/s, coded without loss, takes 1.3
//! and 2.6 Mbit/s with the headers of IP and UDP (D-100), as two well-known test sequences do in Kuhns et al. §5.2.
//! They stand for those in rate and in kind of motion, not in content.

use crate::picture::Picture;
use lastmeter_base::Rate;
use lastmeter_wire::wave::Component;

/// Frames for each second of the experiments (§5.2).
pub const FRAMES_PER_SECOND: u64 = 12;

/// A sequence of pictures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sequence {
    /// A head that nods and speaks before a still background.
    TalkingHead,
    /// A street past which the camera moves, three pixels each frame.
    Panning,
}

/// A function of place (and frame) to brightness, blue and red about zero.
type Colour = [f32; 3];

impl Sequence {
    /// All of them.
    pub const ALL: [Sequence; 2] = [Sequence::TalkingHead, Sequence::Panning];
    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Sequence::TalkingHead => "talking-head",
            Sequence::Panning => "panning",
        }
    }
    /// By its name.
    pub fn named(name: &str) -> Option<Sequence> {
        Sequence::ALL.into_iter().find(|sequence| sequence.name() == name)
    }
    /// What it takes as QCIF at 12 frames/s without loss, headers of IP and UDP included.
    pub fn rate(self) -> Rate {
        match self {
            Sequence::TalkingHead => Rate::from_bits(1_300_000),
            Sequence::Panning => Rate::from_bits(2_600_000),
        }
    }
    /// A frame of so many units of 16 pixels.
    pub fn frame(self, frame: u32, width: u8, height: u8) -> Picture {
        self.detailed(frame, width, height, self.detail())
    }
    /// How much detail there is.
    fn detail(self) -> f32 {
        match self {
            Sequence::TalkingHead => 2.0,
            Sequence::Panning => 2.4,
        }
    }
    fn detailed(self, frame: u32, width: u8, height: u8, detail: f32) -> Picture {
        let mut picture = Picture::new(width, height);
        // Drawn on a canvas of QCIF's size, whatever the number of pixels.
        let (w, h) = picture.sides(Component::Luma);
        let scale = (176.0 / w as f32).max(144.0 / h as f32);
        for y in 0..h {
            for x in 0..w {
                let at = [x as f32 * scale, y as f32 * scale];
                let [light, blue, red] = self.colour(frame, at, detail);
                let grain = detail * self.grain() * (random(x as u32, y as u32, frame) - 0.5);
                picture.samples[0][y * w + x] = (light + grain).clamp(0.0, 255.0) as u8;
                if (x | y) & 1 == 0 {
                    let at = y / 2 * (w / 2) + x / 2;
                    picture.samples[1][at] = (128.5 + blue + grain * 0.2).clamp(0.0, 255.0) as u8;
                    picture.samples[2][at] = (128.5 + red + grain * 0.2).clamp(0.0, 255.0) as u8;
                }
            }
        }
        picture
    }
    /// The camera's noise.
    fn grain(self) -> f32 {
        match self {
            Sequence::TalkingHead => 2.0,
            Sequence::Panning => 8.0,
        }
    }
    fn colour(self, frame: u32, at: [f32; 2], detail: f32) -> Colour {
        match self {
            Sequence::TalkingHead => head(frame, at, detail),
            Sequence::Panning => {
                let moved = [at[0] + 3.0 * frame as f32, at[1] + 6.0 * wave(frame, 40)];
                street(moved, detail)
            }
        }
    }
}

/// A wall with a picture on it.
fn wall(at: [f32; 2], detail: f32) -> Colour {
    let frame = inside([(at[0] - 144.0) / 20.0, (at[1] - 36.0) / 24.0]);
    let plain = || {
        let texture = 5.0 * detail * fractal(at, 0.5, 1);
        [96.0 + 0.2 * at[0] + 0.1 * at[1] + texture, 10.0, -8.0]
    };
    layer(plain, || [150.0 + 20.0 * fractal(at, 0.7, 5), -12.0, 10.0], frame)
}

/// A head with shoulders in front of something.
fn head(frame: u32, at: [f32; 2], detail: f32) -> Colour {
    let middle = [86.0 + 3.0 * wave(frame, 50), 66.0 + 2.0 * wave(frame, 34)];
    let from = |x: f32, y: f32, w: f32, h: f32| {
        inside([(at[0] - middle[0] - x) / w, (at[1] - middle[1] - y) / h])
    };
    let skin = || 3.0 * detail * fractal([at[0] - middle[0], at[1] - middle[1]], 0.5, 2);
    let shade = 0.5 * (at[0] - middle[0]);
    let coat = || [60.0 + 8.0 * detail * fractal(at, 0.4, 3), 6.0, -4.0];
    let dressed = || layer(|| wall(at, detail), coat, from(0.0, 96.0, 66.0, 56.0));
    let hair = || layer(dressed, || [50.0 + skin(), -4.0, 4.0], from(0.0, -4.0, 31.0, 42.0));
    let face = || [168.0 - shade + skin(), -14.0, 22.0];
    let mut colour = layer(hair, face, from(0.0, 2.0, 26.0, 36.0));
    let open = if frame % 37 < 2 { 0.6 } else { 2.4 };
    for side in [-10.0, 10.0] {
        colour = mix(colour, [235.0, 0.0, 0.0], from(side, -6.0, 5.0, open));
        colour = mix(colour, [40.0, 0.0, 0.0], from(side + wave(frame, 60), -6.0, 2.0, open));
    }
    let speaks = 2.5 + 2.0 * wave(frame, 5) * wave(frame, 23).abs();
    mix(colour, [90.0, -6.0, 30.0], from(0.0, 18.0, 8.0, speaks))
}

/// Houses in a street, which go on for ever.
fn street(at: [f32; 2], detail: f32) -> Colour {
    let house = (at[0] / 60.0).floor();
    let of_house = |what: u32| random(house as i64 as u32, 0, what);
    let roof = 20.0 + 30.0 * of_house(101);
    let above = ramp(at[1] - roof);
    if above == 0.0 {
        return [190.0 + 10.0 * fractal([at[0] * 0.2, at[1]], 0.4, 9), 12.0, -10.0];
    }
    let texture = 24.0 * detail * fractal(at, 0.95, 7);
    let sky = [190.0, 12.0, -10.0];
    let brick =
        [90.0 + 80.0 * of_house(102) + texture, 8.0 * of_house(103) - 12.0, 20.0 * of_house(104)];
    let mut colour = mix(sky, brick, above);
    let window = [at[0] % 15.0 - 7.5, at[1] % 22.0 - 11.0];
    let pane = ramp(4.0 - window[0].abs()) * ramp(6.0 - window[1].abs()) * ramp(at[1] - roof - 6.0);
    colour = mix(colour, [45.0 + texture, 8.0, -6.0], pane);
    mix(colour, [80.0 + texture, 0.0, 0.0], ramp(at[1] - 122.0))
}

/// From 0 to 1 within a pixel.
fn ramp(distance: f32) -> f32 {
    (distance + 0.5).clamp(0.0, 1.0)
}

/// 1 inside the unit circle, 0 outside, with a soft edge.
fn inside(at: [f32; 2]) -> f32 {
    ((1.0 - at[0] * at[0] - at[1] * at[1]) * 8.0 + 0.5).clamp(0.0, 1.0)
}

/// One thing in front of another, where `share` is 1.
fn layer(behind: impl FnOnce() -> Colour, front: impl FnOnce() -> Colour, share: f32) -> Colour {
    match share {
        0.0 => behind(),
        1.0 => front(),
        _ => mix(behind(), front(), share),
    }
}

fn mix(a: Colour, b: Colour, share: f32) -> Colour {
    [0, 1, 2].map(|at| a[at] + (b[at] - a[at]) * share)
}

/// From -1 to 1 and back, smoothly, in `period` frames.
fn wave(frame: u32, period: u32) -> f32 {
    let phase = (frame % period) as f32 / period as f32;
    let up = if phase < 0.5 { 2.0 * phase } else { 2.0 - 2.0 * phase };
    2.0 * smooth(up) - 1.0
}

fn smooth(x: f32) -> f32 {
    x * x * (3.0 - 2.0 * x)
}

/// Texture about zero: six octaves, each `rough` times as strong as the one before.
fn fractal(at: [f32; 2], rough: f32, seed: u32) -> f32 {
    let (mut sum, mut strength, mut cell) = (0.0, 1.0, 32.0);
    for octave in 0..6 {
        sum += strength * (noise([at[0] / cell, at[1] / cell], seed * 8 + octave) - 0.5);
        strength *= rough;
        cell *= 0.5;
    }
    sum
}

/// Random numbers at whole places, and between them what joins these smoothly.
fn noise(at: [f32; 2], seed: u32) -> f32 {
    let floor = at.map(f32::floor);
    let (x, y) = (floor[0] as i64 as u32, floor[1] as i64 as u32);
    let (right, down) = (smooth(at[0] - floor[0]), smooth(at[1] - floor[1]));
    let corner = |dx: u32, dy: u32| random(x.wrapping_add(dx), y.wrapping_add(dy), seed);
    let upper = corner(0, 0) + (corner(1, 0) - corner(0, 0)) * right;
    let lower = corner(0, 1) + (corner(1, 1) - corner(0, 1)) * right;
    upper + (lower - upper) * down
}

/// A number from 0 to 1 for a place; a mixer of 32-bit words (Mueller 2013).
fn random(x: u32, y: u32, seed: u32) -> f32 {
    let mut word =
        x.wrapping_mul(0x9e37_79b1) ^ y.wrapping_mul(0x85eb_ca77) ^ seed.wrapping_mul(0xc2b2_ae3d);
    for _ in 0..2 {
        word = (word >> 16 ^ word).wrapping_mul(0x045d_9f3b);
    }
    (word >> 16 ^ word) as f32 / u32::MAX as f32
}
