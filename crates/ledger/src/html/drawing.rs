//! The path as a picture: a box for each resource, filled to its utilisation, in its host; the links between
//! hosts; a flag on what limits. Drawn twice, wide and tall; the style sheet shows one of them.

use super::text::{escape, share, shorten, time};
use crate::figures;
use crate::shape::{self, Hop, Line};
use crate::{Ledger, Path};

/// Most boxes of a drawing; the least used are folded.
const BOXES_MAX: usize = 24;

/// Writes both drawings of a path.
pub(super) fn draw(ledger: &Ledger, path: &Path, out: &mut String) {
    let hops = shape::hops(ledger, path);
    if hops.is_empty() {
        return;
    }
    let label = escape(&label(ledger, path, &hops));
    let parts = parts(ledger, &hops);
    let wide = Sheet::WIDE.draw(ledger, path, &parts);
    let tall = Sheet::TALL.draw(ledger, path, &parts);
    for (class, (body, width, height)) in [("wide", wide), ("tall", tall)] {
        out.push_str(&format!(
            "<svg class=\"drawing {class}\" style=\"max-width:{width:.0}px\" role=\"img\" \
             aria-label=\"{label}\" viewBox=\"0 0 {width:.0} {height:.0}\">\n{body}</svg>\n"
        ));
    }
}

fn label(ledger: &Ledger, path: &Path, hops: &[Hop<'_>]) -> String {
    let words = |hop: &Hop<'_>| match hop.resource {
        Some(resource) if limits(ledger, hop) => {
            format!("{} {}, which limits", hop.full_name, figures::share(resource.utilisation()))
        }
        Some(resource) => {
            format!("{} {}", hop.full_name, figures::share(resource.utilisation()))
        }
        None => format!("{} {}", hop.full_name, time(hop.mean)),
    };
    let words: Vec<String> = hops.iter().map(words).collect();
    format!("Path {}, resources in order and in use: {}", path.name, words.join("; "))
}

fn limits(ledger: &Ledger, hop: &Hop<'_>) -> bool {
    hop.resource.is_some_and(|one| shape::limiting(ledger) == Some(one.name.as_str()))
}

/// One thing that is drawn.
enum Part<'a, 'b> {
    Hop(&'b Hop<'a>),
    More(usize),
}

impl<'a> Part<'a, '_> {
    fn host(&self) -> Option<&'a str> {
        match self {
            Part::Hop(hop) => hop.host,
            Part::More(_) => None,
        }
    }
    fn is_link(&self) -> bool {
        matches!(self, Part::Hop(hop) if hop.is_link())
    }
}

/// Consecutive hops in one host.
struct Group<'a, 'b> {
    host: Option<&'a str>,
    parts: Vec<&'b Part<'a, 'b>>,
}

fn parts<'a, 'b>(ledger: &Ledger, hops: &'b [Hop<'a>]) -> Vec<Part<'a, 'b>> {
    let weight = |hop: &Hop<'_>| match hop.resource {
        _ if limits(ledger, hop) => f64::INFINITY,
        Some(resource) => resource.utilisation(),
        None => 0.0,
    };
    let weights: Vec<f64> = hops.iter().map(weight).collect();
    let lines = shape::fold(&weights, BOXES_MAX).into_iter();
    lines
        .map(|line| match line {
            Line::Shown(place) => Part::Hop(&hops[place]),
            Line::Folded(range) => Part::More(range.len()),
        })
        .collect()
}

/// Dimensions of a drawing, in its own pixels.
struct Sheet {
    width: f64,
    box_width: f64,
    box_height: f64,
    link_width: f64,
    link_height: f64,
    /// Between boxes.
    gap: f64,
    /// Most boxes of a host side by side.
    boxes: usize,
    tall: bool,
}

/// Between a host's frame and its boxes, above them room for its name.
const PAD: f64 = 12.0;
const HEAD: f64 = 34.0;
/// Between rows of the wide drawing.
const ROW_GAP: f64 = 18.0;

impl Sheet {
    const WIDE: Sheet = Sheet {
        width: 1180.0,
        box_width: 138.0,
        box_height: 96.0,
        link_width: 170.0,
        link_height: 96.0,
        gap: 24.0,
        boxes: 7,
        tall: false,
    };
    const TALL: Sheet = Sheet {
        width: 360.0,
        box_width: 336.0,
        box_height: 62.0,
        link_width: 336.0,
        link_height: 72.0,
        gap: 20.0,
        boxes: 1,
        tall: true,
    };

    /// The picture, its width and its height.
    fn draw(&self, ledger: &Ledger, path: &Path, parts: &[Part<'_, '_>]) -> (String, f64, f64) {
        let groups = self.groups(parts);
        let mut out = String::new();
        let (mut x, mut y, mut widest): (f64, f64, f64) = (2.0, 2.0, 0.0);
        let row_height = if self.tall { 0.0 } else { HEAD + self.box_height + PAD };
        for (place, group) in groups.iter().enumerate() {
            let (width, height) = self.size(group);
            if !self.tall && place > 0 && x + width > self.width {
                let head = if group.is_link() { 0.0 } else { self.gap };
                (x, y) = (2.0 + head, y + row_height + ROW_GAP);
            }
            let joined = place > 0 && !group.parts[0].is_link() && !groups[place - 1].is_link();
            self.draw_group(ledger, path, group, (x, y), &mut out);
            let next = groups.get(place + 1);
            match self.tall {
                true => {
                    if joined {
                        self.arrow((self.width / 2.0, y - self.gap), &mut out);
                    }
                    let gap = next.is_some_and(|next| !next.is_link() && !group.is_link());
                    y += height + if gap { self.gap } else { 0.0 };
                    widest = self.width;
                }
                false => {
                    if joined && x > 2.0 {
                        self.arrow((x - self.gap, y + HEAD + self.box_height / 2.0), &mut out);
                    }
                    widest = widest.max(x + width + 2.0);
                    let gap = next.is_some_and(|next| !next.is_link() && !group.is_link());
                    x += width + if gap { self.gap } else { 0.0 };
                }
            }
        }
        (out, widest, y + row_height + 4.0)
    }

    /// Parts of one host side by side, as many as fit; links and others by themselves.
    fn groups<'a, 'b>(&self, parts: &'b [Part<'a, 'b>]) -> Vec<Group<'a, 'b>> {
        let most = if self.tall { usize::MAX } else { self.boxes };
        let mut groups: Vec<Group<'a, 'b>> = Vec::new();
        for part in parts {
            let host = part.host();
            match groups.last_mut() {
                Some(last) if host.is_some() && last.host == host && last.parts.len() < most => {
                    last.parts.push(part);
                }
                _ => groups.push(Group { host, parts: vec![part] }),
            }
        }
        groups
    }

    fn size(&self, group: &Group<'_, '_>) -> (f64, f64) {
        let number = group.parts.len() as f64;
        let pad = if group.host.is_some() { 2.0 * PAD } else { 0.0 };
        match (group.is_link(), self.tall) {
            (true, _) => (self.link_width, self.link_height),
            (false, true) => {
                let head = if group.host.is_some() { HEAD } else { 0.0 };
                let flags = 0.0;
                let boxes = number * self.box_height + (number - 1.0) * self.gap;
                (self.width, boxes + head + pad / 2.0 + flags)
            }
            (false, false) => {
                (number * self.box_width + (number - 1.0) * self.gap + pad, self.box_height)
            }
        }
    }

    fn draw_group(
        &self,
        ledger: &Ledger,
        path: &Path,
        group: &Group<'_, '_>,
        (x, y): (f64, f64),
        out: &mut String,
    ) {
        let (width, height) = self.size(group);
        let framed = group.host.is_some();
        if let Some(host) = group.host {
            let height = if self.tall { height } else { HEAD + self.box_height + PAD };
            let width = if self.tall { self.width - 4.0 } else { width };
            out.push_str(&format!(
                "<rect class=\"host\" x=\"{x:.0}\" y=\"{y:.0}\" width=\"{width:.0}\" \
                 height=\"{height:.0}\" rx=\"10\"/><text class=\"name\" x=\"{:.0}\" \
                 y=\"{:.0}\">{}</text>\n",
                x + PAD,
                y + 22.0,
                escape(&shorten(host, 30))
            ));
        }
        let pad = if framed { PAD } else { 0.0 };
        let mut at = match self.tall {
            true => (if framed { PAD } else { 0.0 }, y + if framed { HEAD } else { 0.0 }),
            false => (x + pad, y + HEAD),
        };
        for (place, part) in group.parts.iter().enumerate() {
            if place > 0 {
                let arrow = match self.tall {
                    true => (self.width / 2.0, at.1 - self.gap),
                    false => (at.0 - self.gap, at.1 + self.box_height / 2.0),
                };
                self.arrow(arrow, out);
            }
            match part {
                Part::Hop(hop) if hop.is_link() => self.link(ledger, path, hop, at, out),
                Part::Hop(hop) => self.hop(ledger, path, hop, at, out),
                Part::More(number) => out.push_str(&format!(
                    "<text class=\"dim\" x=\"{:.0}\" y=\"{:.0}\">… {number} more …</text>\n",
                    at.0 + self.box_width / 2.0 - 40.0,
                    at.1 + self.box_height / 2.0
                )),
            }
            match self.tall {
                true => at.1 += self.box_height + self.gap,
                false => at.0 += self.box_width + self.gap,
            }
        }
    }

    /// A box, filled to its resource's utilisation.
    fn hop(&self, ledger: &Ledger, path: &Path, hop: &Hop<'_>, at: (f64, f64), out: &mut String) {
        let (x, y) = at;
        let (width, height) = (self.box_width, self.box_height);
        let limits = limits(ledger, hop);
        let class = if limits { "limits" } else { "" };
        out.push_str(&format!("<g class=\"{class}\"><title>{}</title>", title(path, hop)));
        let rect = |class: &str, x: f64, width: f64, round: &str| {
            format!(
                "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" \
                 height=\"{height:.1}\"{round}/>"
            )
        };
        out.push_str(&rect("box", x, width, " rx=\"3\""));
        if let Some(resource) = hop.resource {
            let busy = resource.busy.clamp(0.0, 1.0) * width;
            let held = (resource.blocked.unwrap_or(0.0).clamp(0.0, 1.0) * width).min(width - busy);
            out.push_str(&rect("use", x, busy, ""));
            if held > 0.0 {
                out.push_str(&rect("held", x + busy, held, " opacity=\"0.35\""));
            }
        }
        out.push_str(&rect("edge", x, width, " rx=\"3\""));
        let figure = match hop.resource {
            Some(resource) => share(resource.utilisation()),
            None => time(hop.mean),
        };
        let number = hop.stages.len();
        let stages = format!("{number} stage{}", if number == 1 { "" } else { "s" });
        let spent = format!("{} in {stages}", time(hop.mean));
        let (name, figure_at, below) = match self.tall {
            true => ((x + 10.0, y + 25.0), (x + width - 10.0, y + 28.0), (x + 10.0, y + 48.0)),
            false => ((x + 9.0, y + 23.0), (x + 9.0, y + 54.0), (x + 9.0, y + 80.0)),
        };
        let anchor = if self.tall { " text-anchor=\"end\"" } else { "" };
        let room = if self.tall { 26 } else { 15 };
        out.push_str(&text("name", name, "", &escape(&shorten(hop.name, room))));
        out.push_str(&text("big", figure_at, anchor, &figure));
        out.push_str(&text("dim", below, "", &spent));
        if limits {
            // At the right, where there is no host name.
            out.push_str(&flag(x + width - 64.0, y - 13.0));
        }
        out.push_str("</g>\n");
    }

    /// A pipe with an arrow, filled to the wire's utilisation.
    fn link(&self, ledger: &Ledger, path: &Path, hop: &Hop<'_>, at: (f64, f64), out: &mut String) {
        let (x, y) = at;
        let limits = limits(ledger, hop);
        let class = if limits { "limits" } else { "" };
        out.push_str(&format!("<g class=\"{class}\"><title>{}</title>", title(path, hop)));
        let used = hop.resource.map(|resource| resource.utilisation().clamp(0.0, 1.0));
        let name = escape(&shorten(hop.name, if self.tall { 26 } else { 20 }));
        let delay =
            if hop.delay > 0.0 { format!(", {} away", time(hop.delay)) } else { String::new() };
        let figure = match used {
            Some(used) => format!("{}{delay}", share(used)),
            None => time(hop.mean),
        };
        // The pipe itself, horizontal or vertical.
        let (px, py, pw, ph) = match self.tall {
            true => (x + 40.0, y + 4.0, 14.0, self.link_height - 14.0),
            false => (x + 4.0, y + self.link_height / 2.0 - 7.0, self.link_width - 18.0, 14.0),
        };
        let dash = if used.is_none() { " stroke-dasharray=\"5 4\"" } else { "" };
        let pipe = |class: &str, w: f64, h: f64, more: &str| {
            format!(
                "<rect class=\"{class}\" x=\"{px:.1}\" y=\"{py:.1}\" width=\"{w:.1}\" \
                 height=\"{h:.1}\"{more}/>"
            )
        };
        out.push_str(&pipe("box", pw, ph, dash));
        let share_used = used.unwrap_or(0.0);
        let (fill_w, fill_h) = match self.tall {
            true => (pw, ph * share_used),
            false => (pw * share_used, ph),
        };
        out.push_str(&pipe("use", fill_w, fill_h, ""));
        out.push_str(&pipe("edge", pw, ph, dash));
        let (name_at, figure_at, head) = match self.tall {
            true => ((px + 30.0, py + 24.0), (px + 30.0, py + 44.0), head_down(px + 7.0, py + ph)),
            false => {
                ((px + 2.0, py - 12.0), (px + 2.0, py + 34.0), head_right(px + pw, py + ph / 2.0))
            }
        };
        out.push_str(&format!("<path class=\"head\" d=\"{head}\"/>"));
        out.push_str(&text("name", name_at, "", &name));
        out.push_str(&text("dim", figure_at, "", &figure));
        if limits {
            out.push_str(&flag(name_at.0, name_at.1 - 36.0));
        }
        out.push_str("</g>\n");
    }

    /// An arrow over the gap that begins at a point.
    fn arrow(&self, (x, y): (f64, f64), out: &mut String) {
        let reach = self.gap - 7.0;
        let (line, head) = match self.tall {
            true => {
                (format!("M{x:.1} {:.1}v{reach:.1}", y + 1.0), head_down(x, y + self.gap - 9.0))
            }
            false => {
                (format!("M{:.1} {y:.1}h{reach:.1}", x + 1.0), head_right(x + self.gap - 9.0, y))
            }
        };
        out.push_str(&format!(
            "<path class=\"arrow\" d=\"{line}\"/><path class=\"head\" d=\"{head}\"/>\n"
        ));
    }
}

impl Group<'_, '_> {
    fn is_link(&self) -> bool {
        self.parts[0].is_link()
    }
}

fn head_right(x: f64, y: f64) -> String {
    format!("M{x:.1} {:.1}l9 6-9 6z", y - 6.0)
}

fn head_down(x: f64, y: f64) -> String {
    format!("M{:.1} {y:.1}l6 9 6-9z", x - 6.0)
}

fn text(class: &str, (x, y): (f64, f64), more: &str, words: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.0}\" y=\"{y:.0}\"{more}>{words}</text>")
}

fn flag(x: f64, y: f64) -> String {
    format!(
        "<rect class=\"flag\" x=\"{x:.0}\" y=\"{y:.0}\" width=\"58\" height=\"19\" rx=\"4\"/>\
         <text class=\"flag-text\" x=\"{:.0}\" y=\"{:.0}\">LIMITS</text>",
        x + 6.0,
        y + 13.5
    )
}

/// Everything known about a box, shown on hover.
fn title(path: &Path, hop: &Hop<'_>) -> String {
    let mut words = match hop.resource {
        Some(one) => format!(
            "{} ({}): {} busy, {} blocked",
            escape(hop.full_name),
            escape(&one.kind),
            share(one.busy),
            share(one.blocked.unwrap_or(0.0))
        ),
        None => format!("{}: pure delay", escape(hop.full_name)),
    };
    for stage in &path.stages[hop.stages.clone()] {
        let parts = [stage.wait, stage.service, stage.blocked]
            .map(|times| times.map_or_else(|| "not measured".to_owned(), |times| time(times.mean)));
        let [wait, service, blocked] = parts;
        words.push_str(&format!(
            "\n{}: wait {wait}, service {service}, blocked {blocked}",
            escape(&stage.name)
        ));
    }
    words
}
