//! A plan and its results, as text.

use lastmeter_base::Duration;
use lastmeter_live::blast::report::{FlowOutcome, Percentiles, SinkReport, SourceReport};
use lastmeter_live::blast::traffic::{Pace, Pattern, Sizes, Traffic};
use lastmeter_live::blast::{Outcome, Plan};
use serde_json::{Value, json};

/// A plan, a line for each flow.
pub(super) fn plan(plan: &Plan) -> String {
    let mut text = String::new();
    for host in &plan.hosts {
        let token = if host.token.is_some() { ", with a token" } else { "" };
        text += &format!("host {}: {}{token}\n", host.name, host.at);
    }
    for flow in &plan.flows {
        let [from, to] = [flow.from, flow.to].map(|host| &plan.hosts[host].name);
        text += &format!("flow {}: {from} to {to}, {}\n", flow.name, words(&flow.traffic));
    }
    text + "The plan is valid."
}

fn words(traffic: &Traffic) -> String {
    let size = match &traffic.size {
        Sizes::InTurn(sizes) if sizes.len() == 1 => format!("{} B", sizes[0]),
        Sizes::InTurn(sizes) => format!("{} sizes in turn", sizes.len()),
        Sizes::Weighted(sizes) => format!("{} sizes drawn with weights", sizes.len()),
        Sizes::Between(low, high) => format!("{low} to {high} B"),
    };
    let pace = match traffic.pace {
        Pace::Rate(rate) => format!("at {rate}"),
        Pace::Packets(rate) => format!("at {rate}"),
        Pace::Fastest => "as fast as possible".to_owned(),
        Pace::Stored => format!("{} packets of a model or a capture", traffic.stored.len()),
    };
    let pattern = match traffic.pattern {
        _ if traffic.pace == Pace::Stored => "each at its time".to_owned(),
        Pattern::Periodic => "periodic".to_owned(),
        Pattern::Poisson => "Poisson".to_owned(),
        Pattern::OnOff { on, off } => format!("{on} on, {off} off"),
    };
    let duration = traffic.duration.map(|duration| format!("for {duration}"));
    let count = traffic.count.map(|count| format!("{count} packets"));
    let until: Vec<String> = duration.into_iter().chain(count).collect();
    let name = traffic.format.name();
    format!("{name}, {size}, {pace}, {pattern}, {}, after {}", until.join(", "), traffic.start)
}

/// A plan for programs.
pub(super) fn plan_json(schema: &str, plan: &Plan) -> Value {
    let host = |host: usize| plan.hosts[host].name.as_str();
    let flows: Vec<Value> = plan
        .flows
        .iter()
        .map(|flow| {
            let (from, to) = (host(flow.from), host(flow.to));
            json!({ "name": flow.name, "from": from, "to": to, "traffic": flow.traffic })
        })
        .collect();
    let hosts: Vec<Value> = plan
        .hosts
        .iter()
        .map(|host| {
            let (at, token) = (host.at.to_string(), host.token.is_some());
            json!({ "name": host.name, "at": at, "data": host.data, "token": token })
        })
        .collect();
    let drain = plan.drain.as_secs_f64();
    json!({ "schema": schema, "seed": plan.seed, "drain": drain, "hosts": hosts, "flows": flows })
}

const COUNTS: &str = "FLOW|FROM|TO|SENT|RECEIVED|LOST|DUP|REORD|DAMAGED|SENT AT|ARRIVED AT";
const TIMES: &str = "FLOW|IN 10 us|100 us|1 ms|WORST|DELAY p50|p99|MAX|JITTER|p99";

const LEGEND: &str = "
IN, WORST: share of departures at most that late, and the latest. DELAY: from the source's clock
to the sink's program; - where the clocks differ. JITTER: RFC 3550 A.8, and how much transit times
differ from packet to packet.
";

/// The results of a plan: counts of each flow, then times, then remarks.
pub(super) fn outcome(outcome: &Outcome) -> String {
    let table = |head: &str, row: fn(&FlowOutcome) -> Vec<String>, left: usize| {
        let head = head.split('|').map(str::to_owned).collect();
        let rows: Vec<_> = [head].into_iter().chain(outcome.flows.iter().map(row)).collect();
        table(&rows, left)
    };
    let mut text = table(COUNTS, counts, 3) + "\n" + &table(TIMES, times, 1);
    text += LEGEND;
    for note in outcome.notes.iter().cloned().chain(outcome.flows.iter().flat_map(remarks)) {
        text += &format!("{note}\n");
    }
    text += match (outcome.kept_up, outcome.complete) {
        (true, true) => "Every source kept up.",
        (true, false) => "The run is not complete.",
        (false, _) => "NOT ALL SOURCES KEPT UP: the traffic differed from the plan.",
    };
    text
}

/// Columns as wide as their longest cell; the first `left` are left-aligned.
fn table(rows: &[Vec<String>], left: usize) -> String {
    let columns = rows[0].len();
    let width = |at: usize| rows.iter().map(|row| row[at].chars().count()).max().unwrap_or(0);
    let widths: Vec<usize> = (0..columns).map(width).collect();
    let mut text = String::new();
    for row in rows {
        let cell = |(at, cell): (usize, &String)| {
            let width = widths[at];
            if at < left { format!("{cell:<width$}") } else { format!("{cell:>width$}") }
        };
        let cells: Vec<String> = row.iter().enumerate().map(cell).collect();
        text += cells.join("  ").trim_end();
        text.push('\n');
    }
    text
}

const UNKNOWN: &str = "-";

fn counts(flow: &FlowOutcome) -> Vec<String> {
    let of = |count: fn(&SinkReport) -> u64| {
        flow.sink.as_ref().map_or(UNKNOWN.to_owned(), |sink| count(sink).to_string())
    };
    vec![
        flow.name.clone(),
        flow.from.clone(),
        flow.to.clone(),
        flow.sent.to_string(),
        flow.received.to_string(),
        flow.lost.map_or(UNKNOWN.to_owned(), |lost| lost.to_string()),
        of(|sink| sink.duplicated),
        of(|sink| sink.reordered),
        of(|sink| sink.damaged),
        flow.source.as_ref().map_or(UNKNOWN.to_owned(), |source| rate(source.rate)),
        flow.sink.as_ref().map_or(UNKNOWN.to_owned(), |sink| rate(sink.rate)),
    ]
}

fn times(flow: &FlowOutcome) -> Vec<String> {
    let source = |share: fn(&SourceReport) -> Option<f64>| {
        let share = flow.source.as_ref().and_then(share);
        share.map_or(UNKNOWN.to_owned(), |share| format!("{:.2} %", share * 100.0))
    };
    let paced = flow.source.as_ref().filter(|source| source.within_1ms.is_some());
    let delay = |value: fn(&Percentiles) -> f64| {
        let delay = flow.sink.as_ref().and_then(|sink| sink.delay.as_ref());
        delay.map_or(UNKNOWN.to_owned(), |delay| time(value(delay)))
    };
    let variation = flow.sink.as_ref().and_then(|sink| sink.variation.as_ref());
    vec![
        flow.name.clone(),
        source(|source| source.within_10us),
        source(|source| source.within_100us),
        source(|source| source.within_1ms),
        paced.map_or(UNKNOWN.to_owned(), |source| time(source.worst_lag)),
        delay(|delay| delay.p50),
        delay(|delay| delay.p99),
        delay(|delay| delay.max),
        flow.sink.as_ref().map_or(UNKNOWN.to_owned(), |sink| time(sink.jitter)),
        variation.map_or(UNKNOWN.to_owned(), |variation| time(variation.p99)),
    ]
}

/// Remarks that a flow's figures need.
fn remarks(flow: &FlowOutcome) -> Vec<String> {
    let mut said = Vec::new();
    let name = &flow.name;
    if let Some(source) = &flow.source
        && !source.kept_up
    {
        let intended = source.intended_rate.map_or("-".to_owned(), rate);
        said.push(format!(
            "{name}: did not keep up: sent {} of {intended} packets; {} refused, \
             {} without time, the latest {} late",
            rate(source.rate),
            source.refused,
            source.behind,
            time(source.worst_lag),
        ));
    }
    if let Some(sink) = &flow.sink {
        let counts = [
            (sink.overrun, "were dropped by the receiving kernel, because the sink fell behind"),
            (sink.foreign, "were not of this flow"),
            (sink.ancient, "came too late to tell whether they were duplicates"),
        ];
        let counts = counts.into_iter().filter(|&(count, _)| count > 0);
        said.extend(counts.map(|(count, what)| format!("{name}: {count} packets {what}")));
        if sink.delay.is_none() && sink.packets > 0 {
            said.push(format!(
                "{name}: the one-way delay is unknown: its ends use different clocks"
            ));
        }
    }
    said
}

fn rate(bits: f64) -> String {
    let units = [(1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")];
    match units.into_iter().find(|&(unit, _)| bits >= unit) {
        Some((unit, name)) => format!("{:.3} {name}", bits / unit),
        None => format!("{bits:.0} bit/s"),
    }
}

fn time(seconds: f64) -> String {
    let units = [(1.0, "s"), (1e-3, "ms"), (1e-6, "us")];
    match units.into_iter().find(|&(unit, _)| seconds >= unit) {
        Some((unit, name)) => format!("{:.1} {name}", seconds / unit),
        None => Duration::from_ns((seconds * 1e9).max(0.0) as u64).to_string(),
    }
}
