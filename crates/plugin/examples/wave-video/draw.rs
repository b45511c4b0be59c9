//! PSNR over time, histograms of bands, and a film of two ways side by side.

use lastmeter_wave::Picture;
use lastmeter_wave::study::{Case, Outcome, WINDOW};
use lastmeter_wire::wave::BANDS;
use std::fmt::Write;
use std::fs::File;
use std::io::BufWriter;
use std::ops::Range;
use std::path::Path;

/// PSNR of each way over time, bursts shaded.
pub(crate) fn psnr(path: &Path, case: &Case, plain: &Outcome, scaled: &Outcome, layered: &Outcome) {
    let (width, height, left, top) = (860.0, 320.0, 50.0, 30.0);
    let length = case.video.begins(case.frames).as_secs_f64();
    let x = |seconds: f64| left + seconds / length * width;
    let y = |decibels: f64| top + height - decibels / 60.0 * height;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" font-family=\"sans-serif\" \
         font-size=\"13\"><rect width=\"100%\" height=\"100%\" fill=\"white\"/>",
        width + 2.0 * left,
        height + 3.0 * top
    );
    for &(from, to) in &case.bursts {
        let (from, to) = (x(from.as_secs_f64()), x(to.as_secs_f64()));
        let _ = write!(
            svg,
            "<rect x=\"{from:.1}\" y=\"{top}\" width=\"{:.1}\" height=\"{height}\" fill=\"#e8e8e8\"/>",
            to - from
        );
    }
    for step in 0..=6 {
        let at = y(f64::from(step) * 10.0);
        let _ = write!(
            svg,
            "<line x1=\"{left}\" x2=\"{}\" y1=\"{at:.1}\" y2=\"{at:.1}\" stroke=\"#ccc\"/>\
             <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
            left + width,
            left - 6.0,
            at + 4.0,
            step * 10
        );
    }
    let mut second = 0.0;
    while second <= length {
        let _ = write!(
            svg,
            "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{second}</text>",
            x(second),
            top + height + 18.0
        );
        second += 2.0;
    }
    let ways = [
        ("plain", "#c0392b", plain),
        ("layered", "#b8860b", layered),
        ("scaled", "#1f5fa8", scaled),
    ];
    for (place, (name, colour, outcome)) in ways.into_iter().enumerate() {
        let _ = write!(
            svg,
            "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"1.5\" points=\""
        );
        for frame in &outcome.frames {
            let at = case.video.begins(frame.shown.frame).as_secs_f64();
            let _ = write!(svg, "{:.1},{:.1} ", x(at), y(frame.psnr));
        }
        let _ = write!(
            svg,
            "\"/><text x=\"{}\" y=\"20\" fill=\"{colour}\">{name}</text>",
            left + 90.0 * place as f64
        );
    }
    let _ = write!(
        svg,
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">s; PSNR of luma in dB; bursts of cross traffic \
         shaded</text></svg>",
        left + width / 2.0,
        top + height + 40.0
    );
    std::fs::write(path, svg).unwrap();
}

/// As Fig 8: plain above, scaled below; the lowest band at the bottom of each; black is present in all 8 frames.
pub(crate) fn histograms(path: &Path, plain: &Outcome, scaled: &Outcome) {
    let (cell, gap) = (12, 16);
    let windows = plain.frames.len() / WINDOW;
    let (width, height) = (windows * cell, 2 * BANDS * cell + gap);
    let mut grey = vec![200; width * height];
    for (top, outcome) in [(0, plain), (BANDS * cell + gap, scaled)] {
        for (window, counts) in outcome.histogram().iter().enumerate() {
            for (band, &count) in counts.iter().enumerate() {
                let row = top + (BANDS - 1 - band) * cell;
                let shade = 255 - (255 * usize::from(count) / WINDOW) as u8;
                for y in row..row + cell {
                    grey[y * width + window * cell..][..cell].fill(shade);
                }
            }
        }
    }
    let file = BufWriter::new(File::create(path).unwrap());
    let mut encoder = png::Encoder::new(file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Grayscale);
    encoder.write_header().unwrap().write_image_data(&grey).unwrap();
}

/// An animated PNG: plain on the left, scaled on the right, each pixel doubled; a bar above is red in bursts.
pub(crate) fn film(
    path: &Path,
    case: &Case,
    plain: &Outcome,
    scaled: &Outcome,
    frames: Range<usize>,
) {
    let (width, height, bar) = (2 * 2 * 176 + 8, 2 * 144 + 10, 10);
    let file = BufWriter::new(File::create(path).unwrap());
    let mut encoder = png::Encoder::new(file, width as u32, height as u32);
    encoder.set_color(png::ColorType::Rgb);
    encoder.set_animated(frames.len() as u32, 0).unwrap();
    encoder.set_frame_delay(1, case.video.rate as u16).unwrap();
    let mut writer = encoder.write_header().unwrap();
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
        writer.write_image_data(&image).unwrap();
    }
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
