//! An adapter drawn: its five sections from the host to the network, as text and as SVG (E-38).

use super::description::{
    BufferPlace, Description, Discipline, InterfaceKind, NetworkModel, Overload, Synchronisation,
    TransferMode,
};

/// A section: its title and what it says.
fn sections(card: &Description) -> [(&'static str, Vec<String>); 5] {
    let (host, transfer, network) = (&card.host, &card.transfer, &card.network);
    let kind = match host.kind {
        InterfaceKind::Mailbox => "mailbox",
        InterfaceKind::Fifo => "command FIFOs",
        InterfaceKind::Rings => "descriptor rings",
    };
    let plural = if host.queues == 1 { "" } else { "s" };
    let mut first =
        vec![format!("{} queue{plural}: {kind}", host.queues), sync(host.synchronisation)];
    if host.kind == InterfaceKind::Rings {
        first.push(format!("{} packets/interrupt", host.coalescing));
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
        format!("{} stages, {} queues", queueing.stages, queueing.queues),
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
    let banks =
        if buffers.banks == 1 { "1 bank".to_owned() } else { format!("{} banks", buffers.banks) };
    let fourth = vec![format!("{place}, {}", buffers.memory), banks, overload.to_owned()];
    let model = match network.model {
        NetworkModel::PointToPoint => "point-to-point".to_owned(),
        NetworkModel::Intermittent { rotation, holding } => {
            format!("token: {holding} of {rotation}")
        }
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

fn sync(synchronisation: Synchronisation) -> String {
    match synchronisation {
        Synchronisation::Interrupt => "interrupts",
        Synchronisation::Poll => "polled",
        Synchronisation::Mixed => "interrupts, then polled",
    }
    .to_owned()
}

/// The drawing for the terminal: boxes from the host to the network.
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

/// The drawing as SVG.
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

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use super::super::description::cim;
    use super::*;

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
