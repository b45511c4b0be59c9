//! Plots of ATOMIC-2's hosts: Figs 7 and 9, and the gain of each fix of Fig 3, alone and combined.

use super::Setting;
use super::atomic::{
    ATM, ATOMIC, FAST, FIXES, LARGEST, PIPELINED, TCP, UDP, at, atp_message, curve, matrix, pvm,
    rate,
};
use crate::Error;
use lastmeter_base::Bytes;
use lastmeter_ledger::drawing::Drawing;
use lastmeter_ledger::plots::{Plot, Series};
use std::fmt::Write;

const NAMES: [(&str, &str, &str); 3] = [
    (ATOMIC, "ATOMIC", "price_atomic"),
    (ATM, "ATM OC-3c", "price_atm"),
    (FAST, "fast Ethernet", "price_ethernet"),
];

fn sizes(setting: &Setting<'_>) -> Result<Vec<Bytes>, Error> {
    Ok(setting.constants.get::<Vec<u64>>("sizes")?.into_iter().map(Bytes).collect())
}

fn kib(size: Bytes) -> f64 {
    size.0 as f64 / 1024.0
}

pub(super) fn plots(setting: &Setting<'_>) -> Result<Vec<Plot>, Error> {
    let sizes = sizes(setting)?;
    let mut plots = Vec::new();
    let mut costs = Vec::new();
    for (host, protocol) in [(UDP, "UDP"), (TCP, "TCP")] {
        let mut series = Vec::new();
        for (adapter, name, price) in NAMES {
            let found = curve(setting, (host, adapter), &sizes)?;
            let points = sizes.iter().map(|&size| (kib(size), at(&found, size) / 1e6));
            series.push(Series { name: name.to_owned(), points: points.collect() });
            if host == UDP {
                let dollars = setting.constants.get::<u64>(price)? as f64;
                let points =
                    sizes.iter().map(|&size| (kib(size), dollars * 1e6 / at(&found, size)));
                costs.push(Series { name: name.to_owned(), points: points.collect() });
            }
        }
        plots.push(Plot::new(
            format!("Fig 7: {protocol} over three networks"),
            "Fast Ethernet is best below 1 KB, ATOMIC above 2 KB. What is longer than 1460 B \
             goes over fast Ethernet in several packets.",
            ("packet, KB", "throughput, Mbit/s"),
            series,
        ));
    }
    plots.push(Plot::new(
        "Cost of a delivered Mbit/s (N-53)",
        "UDP; $2000, $3000 and $500 a host.",
        ("packet, KB", "dollars per Mbit/s"),
        costs,
    ));
    plots.push(figure_9(setting)?);
    Ok(plots)
}

/// ATP, which waits for each message, beside streams of TCP and PVM.
fn figure_9(setting: &Setting<'_>) -> Result<Plot, Error> {
    let tcp = rate(setting, "transfer", (TCP, ATOMIC), LARGEST, &[])?;
    let most = rate(setting, "unchecked", (TCP, PIPELINED), LARGEST, &[])?;
    let pvm = pvm(setting)?;
    let messages: Vec<Bytes> = [4, 8, 16, 32, 64, 128, 256, 512].map(Bytes::from_kib).into();
    let flat = |name: &str, rate: f64| {
        let points = messages.iter().map(|&size| (kib(size), rate / 1e6));
        Series { name: name.to_owned(), points: points.collect() }
    };
    let mut points = Vec::new();
    for &message in &messages {
        points.push((kib(message), atp_message(message)? / 1e6));
    }
    Ok(Plot::new(
        "Fig 9: PVM over ATP, TCP and PVM",
        "Packets of 8 KB. ATP waits for each message, so it needs long ones; then copies overlap.",
        ("message, KB", "throughput, Mbit/s"),
        vec![
            Series { name: "ATP, by message".to_owned(), points },
            flat("ATP, stream", most),
            flat("TCP", tcp),
            flat("PVM", pvm),
        ],
    ))
}

/// A bar for every set of fixes (N-43).
pub(super) fn drawings(setting: &Setting<'_>) -> Result<Vec<Drawing>, Error> {
    const ROW: f64 = 30.0;
    const LEFT: f64 = 400.0;
    const WIDTH: f64 = 860.0;
    let rates = matrix(setting)?;
    let most = rates.iter().copied().fold(1.0, f64::max);
    let mut order: Vec<usize> = (0..rates.len()).collect();
    order.sort_by(|&a, &b| rates[a].total_cmp(&rates[b]).then(a.count_ones().cmp(&b.count_ones())));
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {}\" role=\"img\" \
         aria-label=\"What-ifs\" font-family=\"system-ui,sans-serif\" font-size=\"13\" \
         fill=\"currentColor\">\n",
        ROW * rates.len() as f64
    );
    for (row, &set) in order.iter().enumerate() {
        let names: Vec<&str> = FIXES
            .iter()
            .enumerate()
            .filter(|(bit, _)| set >> bit & 1 == 1)
            .map(|(_, name)| *name)
            .collect();
        let words = if names.is_empty() {
            "none: Ethernet of 10 Mbit/s, MD5".to_owned()
        } else {
            names.join(" + ")
        };
        let (y, rate) = (ROW * row as f64, rates[set]);
        let width = (WIDTH - LEFT - 190.0) * rate / most;
        let _ = writeln!(
            svg,
            "<text x=\"{:.0}\" y=\"{:.0}\" text-anchor=\"end\">{words}</text><rect x=\"{LEFT}\" \
             y=\"{:.0}\" width=\"{width:.1}\" height=\"{:.0}\" fill=\"#0072b2\"/><text x=\"{:.1}\" \
             y=\"{:.0}\">{:.1} Mbit/s, x {:.2}</text>",
            LEFT - 10.0,
            y + 20.0,
            y + 5.0,
            ROW - 10.0,
            LEFT + width + 8.0,
            y + 20.0,
            rate / 1e6,
            rate / rates[0]
        );
    }
    Ok(vec![Drawing {
        title: "Fig 3: gain of each fix, alone and together".to_owned(),
        caption: "A bulk transfer between two SPARC 20/71, authenticated, from MD5 over \
                  Ethernet: every set of fixes is a run of its own."
            .to_owned(),
        svg: svg + "</svg>\n",
    }])
}
