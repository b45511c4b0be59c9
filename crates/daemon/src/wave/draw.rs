//! PSNR over time, histograms of bands, and a film of two ways side by side.

use crate::Complaint;
use lastmeter_ledger::plots::{Plot, Series};
use lastmeter_wave::Picture;
use lastmeter_wave::measure::{Shot, WINDOW, histogram};
use lastmeter_wave::study::{Case, Outcome};
use lastmeter_wire::wave::BANDS;
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;

/// PSNR of each way over time.
pub(super) fn psnr(name: &str, case: &Case, ways: &[(&str, Outcome)]) -> Plot {
    let curve = |(way, outcome): &(&str, Outcome)| {
        let at = |frame: u32| case.video.begins(frame).as_secs_f64();
        let points = outcome.frames.iter().map(|frame| (at(frame.shown.frame), frame.psnr));
        Series { name: (*way).to_owned(), points: points.collect() }
    };
    let ends = case.bursts.iter().flat_map(|&(from, to)| [(from, "burst"), (to, "end")]);
    let marks = ends.map(|(at, what)| (at.as_secs_f64(), what.to_owned())).collect();
    let caption = "PSNR of luma of each frame, with bursts of cross traffic.";
    let curves = ways.iter().map(curve).collect();
    Plot::new(name, caption, ("s", "dB"), curves).over_time().marked(marks)
}

/// As Fig 8 (D-105): plain above, scaled below; the lowest band at the bottom of each; black is present in all 8
/// frames. Between them windows within bursts are dark.
pub(super) fn histograms(
    path: &Path,
    in_burst: &dyn Fn(u32) -> bool,
    plain: &[Shot],
    scaled: &[Shot],
) -> Result<(), Complaint> {
    let (cell, gap) = (12, 16);
    let windows = plain.len().min(scaled.len()) / WINDOW;
    let (width, height) = (windows * cell, 2 * BANDS * cell + gap);
    let mut grey = vec![200; width * height];
    for (top, shots) in [(0, plain), (BANDS * cell + gap, scaled)] {
        for (window, counts) in histogram(shots).iter().take(windows).enumerate() {
            for (band, &count) in counts.iter().enumerate() {
                let row = top + (BANDS - 1 - band) * cell;
                let shade = 255 - (255 * usize::from(count) / WINDOW) as u8;
                for y in row..row + cell {
                    grey[y * width + window * cell..][..cell].fill(shade);
                }
            }
        }
    }
    for window in (0..windows).filter(|window| in_burst((window * WINDOW) as u32)) {
        for y in BANDS * cell + gap / 4..BANDS * cell + 3 * gap / 4 {
            grey[y * width + window * cell..][..cell].fill(60);
        }
    }
    let file = BufWriter::new(File::create(path)?);
    let mut encoder = png::Encoder::new(file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Grayscale);
    Ok(encoder.write_header()?.write_image_data(&grey)?)
}

/// An animated PNG: plain on the left, scaled on the right, each pixel doubled; a bar above is red in bursts.
pub(super) fn film(
    path: &Path,
    case: &Case,
    plain: &Outcome,
    scaled: &Outcome,
    frames: Range<usize>,
) -> Result<(), Complaint> {
    let (width, height, bar) = (2 * 2 * 176 + 8, 2 * 144 + 10, 10);
    let file = BufWriter::new(File::create(path)?);
    let mut encoder = png::Encoder::new(file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_animated(frames.len() as u32, 0)?;
    encoder.set_frame_delay(1, case.video.rate as u16)?;
    let mut writer = encoder.write_header()?;
    for number in frames {
        let mut image = vec![255; width * height * 3];
        let colour = if case.in_burst(number as u32) { [200, 40, 40] } else { [230, 230, 230] };
        for pixel in image[..width * (bar - 2) * 3].chunks_exact_mut(3) {
            pixel.copy_from_slice(&colour);
        }
        for (left, outcome) in [(0, plain), (2 * 176 + 8, scaled)] {
            let Some(frame) = outcome.frames.get(number) else { continue };
            for y in 0..2 * 144 {
                for x in 0..2 * 176 {
                    let at = ((bar + y) * width + left + x) * 3;
                    image[at..at + 3].copy_from_slice(&pixel(&frame.shown.picture, x / 2, y / 2));
                }
            }
        }
        writer.write_image_data(&image)?;
    }
    Ok(writer.finish()?)
}

/// Red, green and blue of a pixel (ITU-R BT.601).
fn pixel(picture: &Picture, x: usize, y: usize) -> [u8; 3] {
    let chroma = |plane: usize| {
        f32::from(picture.samples[plane][y / 2 * (usize::from(picture.width) * 8) + x / 2]) - 128.0
    };
    let light = f32::from(picture.samples[0][y * usize::from(picture.width) * 16 + x]);
    let (blue, red) = (chroma(1), chroma(2));
    [light + 1.402 * red, light - 0.344 * blue - 0.714 * red, light + 1.772 * blue]
        .map(|value| value.clamp(0.0, 255.0) as u8)
}
