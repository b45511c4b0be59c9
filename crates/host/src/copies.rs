//! How often each byte is moved and read between an application and the link: the copies made by a protocol stack,
//! from its profile, drawn as text and as SVG (J-66).
//!
//! ```text
//! application --copy to kernel: cpu--> kernel --copy to card: cpu--> card --card sends: port--> link
//!                                        `--checksum out: cpu reads
//! ```
//!
//! A stage moves data if it copies it, or if it belongs to the adapter and its time depends on the length. What a
//! stage of the host moves ends up in the kernel, and what a stage of the adapter moves ends up on the card; the
//! last stage of a direction ends at the link or in the application. A stage that touches data without moving it
//! reads it in place.
//!
//! ```
//! use lastmeter_host::copies::{Place, Way};
//! let way = Way { moves: Vec::new(), reads: Vec::new(), from: Place::Application };
//! assert_eq!((way.copies(), way.passes()), (0, 0));
//! ```

use crate::profile::{Adapter, Profile, StageProfile};
use lastmeter_base::PerByte;

/// Where data is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// The memory of the process that sends or reads it.
    Application,
    /// Kernel buffers.
    Kernel,
    /// The adapter's memory.
    Card,
    /// On the way to another host.
    Link,
}

impl Place {
    fn name(self) -> &'static str {
        match self {
            Place::Application => "application",
            Place::Kernel => "kernel",
            Place::Card => "card",
            Place::Link => "link",
        }
    }
}

/// A stage that moves data.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Move {
    /// The stage.
    pub stage: String,
    /// The resource that does it.
    pub by: String,
    /// Whether it is a copy, rather than the card's own transfer to the link.
    pub copies: u32,
    /// The destination.
    pub to: Place,
}

/// A stage that reads data in place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    /// The stage.
    pub stage: String,
    /// The resource that does it.
    pub by: String,
    /// Where the data is.
    pub at: Place,
}

/// One direction through a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Way {
    /// Where the data starts.
    pub from: Place,
    /// The moves, in order.
    pub moves: Vec<Move>,
    /// The reads in place, in order.
    pub reads: Vec<Read>,
}

impl Way {
    /// Copies of each byte.
    pub fn copies(&self) -> u32 {
        self.moves.iter().map(|one| one.copies).sum()
    }
    /// How many times each byte is copied or read.
    pub fn passes(&self) -> u32 {
        self.copies() + self.reads.len() as u32
    }
}

/// Both directions through a host with its adapter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// Name of the host.
    pub what: String,
    /// From the application to the link.
    pub send: Way,
    /// From the link to the application.
    pub receive: Way,
}

impl Stack {
    /// The directions of `host` with `adapter` in it.
    pub fn of(host: &Profile, adapter: &Adapter) -> Stack {
        let whole = host.with(adapter);
        let is_adapters = |name: &str| {
            adapter.send.iter().chain(&adapter.receive).any(|added| added.stage.name == name)
        };
        let (application, link) = (Place::Application, Place::Link);
        Stack {
            what: host.what.clone(),
            send: way(&whole.send, (application, link), &is_adapters),
            receive: way(&whole.receive, (link, application), &is_adapters),
        }
    }
}

fn way(
    stages: &[StageProfile],
    (from, end): (Place, Place),
    is_adapters: &dyn Fn(&str) -> bool,
) -> Way {
    let moves = |at: usize| {
        let stage = &stages[at];
        let sized = stage.cost.per_byte > PerByte::ZERO || !stage.buses.is_empty();
        // The set-up of a copy also takes time per byte, but moves nothing.
        let next = stages.get(at + 1);
        let sets_up = next.is_some_and(|next| next.copies > 0 && next.resource == stage.resource);
        stage.copies > 0 || is_adapters(&stage.name) && sized && !sets_up
    };
    let moving: Vec<usize> = (0..stages.len()).filter(|&at| moves(at)).collect();
    let (mut way, mut at) = (Way { from, moves: Vec::new(), reads: Vec::new() }, from);
    for (number, stage) in stages.iter().enumerate() {
        let by = stage.resource.clone();
        match moving.iter().position(|&known| known == number) {
            Some(place) => {
                let inward = end == Place::Application;
                // Outgoing data is at the stage's own side, incoming data at the next stage's.
                let own = |at: usize| match is_adapters(&stages[at].name) {
                    true => Place::Card,
                    false => Place::Kernel,
                };
                at = match (moving.get(place + 1), inward) {
                    (None, _) => end,
                    (Some(_), false) => own(number),
                    (Some(&next), true) => own(next),
                };
                let (stage, copies) = (stage.name.clone(), stage.copies);
                way.moves.push(Move { stage, by, copies, to: at });
            }
            None if stage.touches > 0 => {
                way.reads.push(Read { stage: stage.name.clone(), by, at });
            }
            None => {}
        }
    }
    way
}

/// The drawing for the terminal.
pub fn text(stack: &Stack) -> String {
    let mut drawing = format!("{}\n", stack.what);
    for (name, way) in [("send", &stack.send), ("receive", &stack.receive)] {
        drawing += &format!(
            "  {name}: copies {}, passes over data {}\n    {}\n",
            way.copies(),
            way.passes(),
            way.from.name()
        );
        let reads = |at: Place| {
            let here = way.reads.iter().filter(move |read| read.at == at);
            here.map(|read| format!("    |  ({}: {} reads)\n", read.stage, read.by))
                .collect::<String>()
        };
        drawing += &reads(way.from);
        for one in &way.moves {
            drawing += &format!("    |  {}: {}\n    v\n    {}\n", one.stage, one.by, one.to.name());
            drawing += &reads(one.to);
        }
    }
    drawing
}

const COLUMN: f64 = 150.0;
const GAP: f64 = 118.0;
const ROW: f64 = 132.0;
const BOX: f64 = 46.0;
/// Columns, from the application to the link.
const PLACES: [Place; 4] = [Place::Application, Place::Kernel, Place::Card, Place::Link];

fn x(place: Place) -> f64 {
    let column = PLACES.iter().position(|&known| known == place).unwrap_or(0);
    8.0 + column as f64 * (COLUMN + GAP)
}

/// The same as SVG: one row per direction, one column per place; thick arrows are copies.
pub fn svg(stack: &Stack) -> String {
    let width = 16.0 + 4.0 * COLUMN + 3.0 * GAP;
    let title = escape(&stack.what);
    let mut drawing = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width:.0} {:.0}\" role=\"img\" \
         aria-label=\"Copies: {title}\" font-family=\"system-ui,sans-serif\" font-size=\"12\" \
         fill=\"currentColor\">\n<title>{title}</title>\n",
        2.0 * ROW
    );
    for (row, (name, way)) in
        [("send", &stack.send), ("receive", &stack.receive)].iter().enumerate()
    {
        drawing += &row_svg(name, way, row as f64 * ROW);
    }
    drawing + "</svg>\n"
}

fn row_svg(name: &str, way: &Way, top: f64) -> String {
    let y = top + 44.0;
    let copies = if way.copies() == 1 { "copy" } else { "copies" };
    let mut drawing = format!(
        "<text x=\"8\" y=\"{:.0}\" font-weight=\"600\">{name}: {} {copies}, passes over data: {}\
         </text>\n",
        top + 18.0,
        way.copies(),
        way.passes()
    );
    let stands = |place| place == way.from || way.moves.iter().any(|one| one.to == place);
    for place in PLACES.into_iter().filter(|&place| stands(place)) {
        drawing += &format!(
            "<rect x=\"{:.0}\" y=\"{y:.0}\" width=\"{COLUMN}\" height=\"{BOX}\" rx=\"6\" \
             fill=\"none\" stroke=\"currentColor\"/>\n<text x=\"{:.0}\" y=\"{:.0}\" \
             text-anchor=\"middle\">{}</text>\n",
            x(place),
            x(place) + COLUMN / 2.0,
            y + 28.0,
            place.name()
        );
        for (line, read) in way.reads.iter().filter(|read| read.at == place).enumerate() {
            drawing += &format!(
                "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\" fill=\"#0072b2\">\
                 \u{21bb} {}: {} reads</text>\n",
                x(place) + COLUMN / 2.0,
                y + BOX + 18.0 + 16.0 * line as f64,
                escape(&read.stage),
                escape(&read.by)
            );
        }
    }
    let mut at = way.from;
    for one in &way.moves {
        let outward = x(one.to) > x(at);
        let (from, to) = match outward {
            true => (x(at) + COLUMN, x(one.to)),
            false => (x(at), x(one.to) + COLUMN),
        };
        let (colour, thick) = if one.copies > 0 { ("#d55e00", 3.5) } else { ("#009e73", 1.5) };
        let tip = if outward { -7.0 } else { 7.0 };
        let middle = y + BOX / 2.0;
        drawing += &format!(
            "<path d=\"M{from:.0} {middle:.0}H{to:.0}m{tip} -5l{} 5l{tip} 5\" fill=\"none\" \
             stroke=\"{colour}\" stroke-width=\"{thick}\"/>\n",
            -tip
        );
        for (line, words) in [&one.stage, &one.by].into_iter().enumerate() {
            drawing += &format!(
                "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"middle\" font-size=\"11\">{}</text>\n",
                f64::midpoint(from, to),
                middle - 10.0 + 28.0 * line as f64,
                escape(words)
            );
        }
        at = one.to;
    }
    drawing
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}
