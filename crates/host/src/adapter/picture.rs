//! Drawings of an adapter: its five sections from the host to the network, as text and as SVG (E-38), and a
//! timeline of its first messages (E-70).

use super::description::{
    BufferPlace, Description, Discipline, InterfaceKind, NetworkModel, Overload, Synchronisation,
    TransferMode,
};
use super::transmitter::Phase;
use lastmeter_base::{Duration, Time};

/// A section: its title and its lines.
fn sections(card: &Description) -> [(&'static str, Vec<String>); 5] {
    let (host, transfer, network) = (&card.host, &card.transfer, &card.network);
    let kind = match host.kind {
        InterfaceKind::Mailbox => "mailbox",
        InterfaceKind::Fifo => "command FIFOs",
        InterfaceKind::Rings => "descriptor rings",
    };
    let mut first =
        vec![format!("{}: {kind}", count(host.queues, "queue")), sync(host.synchronisation)];
    if host.kind == InterfaceKind::Rings {
        first.push(format!("{} packets/interrupt", host.coalescing));
        if !host.coalescing_time.is_zero() {
            first.push(format!("after {} at most", host.coalescing_time));
        }
    } else {
        let sent = card.transmission();
        first.push(format!("{} commands/message", sent.len()));
        first.push(format!("{} per message", host.per_message));
    }
    let mode = match transfer.mode {
        TransferMode::Dma => "DMA".to_owned(),
        TransferMode::Pio => "PIO".to_owned(),
        TransferMode::Hybrid => format!("PIO to {}, DMA", transfer.pio_max),
    };
    let mut second = vec![mode];
    match transfer.pcie {
        Some(link) => {
            second.push(format!("PCIe {}.0 x{}", link.generation, link.lanes));
            second.push(format!("payload {}", link.payload));
        }
        None => {
            second.push(format!("blocks of {}", transfer.block));
            second.push(
                if transfer.preemptible { "pre-empted" } else { "not pre-empted" }.to_owned(),
            );
        }
    }
    let queueing = &card.queueing;
    let word = |discipline| match discipline {
        Discipline::Fifo => "first come",
        Discipline::Priority => "by class",
        Discipline::Edd => "earliest due date",
    };
    let discipline = match queueing.at_network {
        Some(other) => format!("{}, then {}", word(queueing.discipline), word(other)),
        None => word(queueing.discipline).to_owned(),
    };
    let third = vec![
        format!("{}, {}", count(queueing.stages, "stage"), count(queueing.queues, "queue")),
        discipline,
        format!("depth {}", queueing.depth),
    ];
    let buffers = &card.buffers;
    let place = match buffers.place {
        BufferPlace::Shared => "shared",
        BufferPlace::PerConnection => "per connection",
        BufferPlace::Host => "on the host",
    };
    let overload = match buffers.overload {
        Overload::Drop => "full: drop",
        Overload::Block => "full: block",
        Overload::Priority => "full: least goes",
    };
    let banks = count(buffers.banks, "bank");
    let mut fourth = vec![format!("{place}, {}", buffers.memory), banks, overload.to_owned()];
    if buffers.separate_headers {
        fourth.push(format!("headers of {} apart", buffers.header));
    }
    let model = match network.model {
        NetworkModel::PointToPoint => "point-to-point".to_owned(),
        NetworkModel::Intermittent { rotation, holding } => {
            format!("token: {holding} of {rotation}")
        }
        NetworkModel::Statistical { collisions, .. } => format!("{collisions} % collide"),
    };
    let speed = match network.rate {
        Some(rate) => format!("{rate}"),
        None => format!("{} a frame", network.per_frame),
    };
    let fifth = vec![model, speed, sync(network.synchronisation)];
    [
        ("host interface", first),
        ("transfer control", second),
        ("queueing", third),
        ("buffers", fourth),
        ("network interface", fifth),
    ]
}

/// This many of something.
fn count(number: u64, what: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{number} {what}{plural}")
}

fn sync(synchronisation: Synchronisation) -> String {
    match synchronisation {
        Synchronisation::Interrupt => "interrupts",
        Synchronisation::Poll => "polled",
        Synchronisation::Mixed => "interrupts, then polled",
    }
    .to_owned()
}

/// Drawing for the terminal: boxes from the host to the network.
pub fn text(card: &Description) -> String {
    let mut drawing = "              host\n               |\n".to_owned();
    for (title, lines) in sections(card) {
        let longest = lines.iter().map(|line| line.chars().count() + 4).max().unwrap_or(0);
        let width = longest.max(title.len() + 2);
        let rule = "-".repeat(width);
        drawing += &format!("  +{rule}+\n  | {title:<0$}|\n", width - 1);
        for line in &lines {
            drawing += &format!("  |   {line:<0$}|\n", width.saturating_sub(3));
        }
        drawing += &format!("  +{rule}+\n               |\n");
    }
    drawing + "            network\n"
}

/// The same as SVG.
pub fn svg(card: &Description) -> String {
    let (width, height, gap) = (190.0, 110.0, 26.0);
    let total = 5.0 * (width + gap);
    let mut drawing = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {total:.0} 170\" role=\"img\" \
         aria-label=\"{0}\" font-family=\"system-ui,sans-serif\" font-size=\"12\">\n\
         <title>{0}</title>\n",
        escape(&card.what)
    );
    for (at, (title, lines)) in sections(card).into_iter().enumerate() {
        let x = at as f64 * (width + gap) + gap / 2.0;
        drawing += &format!(
            "<rect x=\"{x}\" y=\"30\" width=\"{width}\" height=\"{height}\" rx=\"6\" \
             fill=\"#f4f6f8\" \
             stroke=\"#456\"/>\n<text x=\"{0}\" y=\"50\" font-weight=\"600\">{title}</text>\n",
            x + 10.0
        );
        for (line, words) in lines.iter().enumerate() {
            let y = 70.0 + 18.0 * line as f64;
            drawing += &format!("<text x=\"{}\" y=\"{y}\">{}</text>\n", x + 10.0, escape(words));
        }
        if at < 4 {
            drawing += &format!("<path d=\"M{} 85h{gap}\" stroke=\"#456\"/>\n", x + width);
        }
    }
    drawing + "</svg>\n"
}

/// Columns of a timeline.
const COLUMNS: u64 = 64;

/// Timeline of messages, one line each: `h` host, `t` transfer, `s` set-up, `n` network; `.` where the network
/// uses the only bank of memory and the transfer waits (Fig 5.6).
///
/// ```
/// use lastmeter_base::{Bytes, Duration, PerByte};
/// use lastmeter_host::adapter::{description::Description, picture, pipeline, transmitter};
/// let mut card = Description::plain("one bank");
/// card.host.per_message = Duration::from_us(16);
/// card.transfer.per_byte = PerByte::from_fs(16_000_000);
/// card.network.setup = Duration::from_us(16);
/// let run = pipeline::run(&card, Bytes(1000), (1, 1), transmitter::Variation::None, 1);
/// let drawn = picture::timeline(&run.timeline, 2);
/// let line = format!("message 1 |{}{}{}|", "h".repeat(21), "t".repeat(22), "n".repeat(21));
/// assert_eq!(drawn.lines().next(), Some(line.as_str()));
/// assert!(drawn.ends_with("64 columns of 750 ns\n"));
/// ```
pub fn timeline(phases: &[(u64, Phase, Time, Time)], banks: u64) -> String {
    let end = phases.iter().map(|&(.., to)| to).max().unwrap_or(Time::START);
    let messages = phases.iter().map(|&(id, ..)| id + 1).max().unwrap_or(0);
    let column = Duration::from_ps(end.as_ps().div_ceil(COLUMNS).max(1));
    let at = |message: Option<u64>, middle: Time, wanted: &[Phase]| {
        phases.iter().find(|&&(id, phase, from, to)| {
            message.is_none_or(|message| message == id)
                && wanted.contains(&phase)
                && from <= middle
                && middle < to
        })
    };
    let all = [Phase::Host, Phase::Transfer, Phase::Setup, Phase::Network];
    let mut drawing = String::new();
    for id in 0..messages {
        let symbol = |index: u64| {
            let middle = Time::START + column * index + column / 2;
            match at(Some(id), middle, &all).map(|row| row.1) {
                None => ' ',
                Some(Phase::Host) => 'h',
                Some(Phase::Setup) => 's',
                Some(Phase::Network) => 'n',
                Some(Phase::Transfer) => {
                    let taken = banks < 2 && at(None, middle, &[Phase::Network]).is_some();
                    if taken { '.' } else { 't' }
                }
            }
        };
        let line: String = (0..COLUMNS).map(symbol).collect();
        drawing += &format!("message {} |{line}|\n", id + 1);
    }
    drawing + &format!("{COLUMNS} columns of {column}\n")
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::description::cim;
    use super::*;
    use crate::adapter::pipeline::run;
    use crate::adapter::transmitter::Variation;
    use lastmeter_base::Bytes;

    #[test]
    fn e_70_the_timeline_shows_a_transfer_that_the_network_interrupts() {
        let phases = run(&cim(), Bytes(4096), (2, 2), Variation::None, 1).timeline;
        let drawn = timeline(&phases, 1);
        let second = drawn.lines().nth(1).unwrap_or_default();
        let transfer = second.trim_start_matches(|c| c != 't').trim_end_matches(|c| c != 't');
        assert!(transfer.contains('.'), "message 2, case 2:\n{drawn}");
        let two = timeline(&phases, 2);
        assert!(two.lines().filter(|line| line.contains('|')).all(|line| !line.contains('.')));
        assert!(timeline(&[], 1).starts_with("64 columns"));
    }

    #[test]
    fn e_38_a_picture_has_all_five_sections() {
        let (text, svg) = (text(&cim()), svg(&cim()));
        for section in
            ["host interface", "transfer control", "queueing", "buffers", "network interface"]
        {
            assert!(text.contains(section) && svg.contains(section), "{section}");
        }
        assert!(text.contains("5 commands/message") && text.contains("depth 2"), "{text}");
        assert_eq!(svg.matches("<rect").count(), 5);
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }
}
